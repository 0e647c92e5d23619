"""Each script's header against the script itself and against the Python that calls it."""

import re

import pytest

from orchestrator import machine
from orchestrator.store.guard import _CLAIMS, _VERDICTS
from orchestrator.store.keys import GROUPS
from orchestrator.store.runs import _PLAN_CLAIMS
from orchestrator.store.scripts import COMMON_ARGS, Script, load

SCRIPTS = sorted(load().values(), key=lambda script: script.name)
VERDICTS = ("complete_step", "fail_step", "hand_back", "expire_lease", "retry_due")
UNDO_VERDICTS = ("complete_undo", "fail_undo", "expire_undo")


def body(script: Script) -> str:
    """The file itself, behind the prelude and the libraries."""
    return script.text[script.text.index(f"-- {script.name}:") :]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_uses_what_its_contract_names(script: Script) -> None:
    text = body(script)
    argued = set(re.findall(r"\bA\.(\w+)", text))
    assert argued <= set(script.args), "an argument that the contract does not name"
    unused = set(script.args) - set(COMMON_ARGS) - set(re.findall(r"\bA\.(\w+)", script.text))
    assert not unused, "an argument that nobody reads"
    assert set(re.findall(r"\bK\.(\w+)", text)) <= set(script.keys)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_answer_is_one_of_the_contract(script: Script) -> None:
    assert set(re.findall(r"return \{ '(\w+)'", body(script))) <= set(script.replies)
    assert all(f"'{word}'" in script.text for word in script.replies), "an answer that is never given"


@pytest.mark.parametrize("name", VERDICTS)
def test_python_knows_every_end_of_a_claim(name: str) -> None:
    known = {*_VERDICTS, "not_lapsed", "not_due", "plan_again"}
    assert set(load()[name].replies) <= known


@pytest.mark.parametrize("name", UNDO_VERDICTS)
def test_python_knows_every_end_of_an_undo(name: str) -> None:
    assert set(load()[name].replies) <= {*_VERDICTS, "given_up"}


def test_python_knows_every_answer_to_a_claim() -> None:
    assert set(load()["claim_undo"].replies) <= {*_CLAIMS}
    assert set(load()["claim_step"].replies) == {*_CLAIMS, "inputs_too_large"}
    assert set(load()["claim_plan"].replies) == {*_PLAN_CLAIMS}


def test_key_groups_are_named_in_the_contracts() -> None:
    assert all(set(script.keys) >= {"epoch", "server"} for script in SCRIPTS)
    used = {key for script in SCRIPTS for key in script.keys}
    assert {key for keys in GROUPS.values() for key in keys} == used - {"epoch", "server"}


def test_the_table_names_scripts_that_exist() -> None:
    rules = (*machine.STEP_RULES, *machine.UNDO_RULES, *machine.RUN_RULES)
    assert {rule.script for rule in rules} <= set(load())
    assert all(rule.reply in load()[rule.script].replies for rule in rules)
