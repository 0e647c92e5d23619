"""Where the values of a policy come from, and names in it that mean nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.admission.catalogue import ActionSpec
from orchestrator.policies import stages
from orchestrator.provenance import Term, action_terms, run_terms, unknown_actions
from orchestrator.settings import Settings
from schemas.policy import Policy, PolicyRequest, Quota, SomeLimits
from schemas.states import EffectClass
from tests.support.plans import built_in
from workers.actions.files import CreateFile

PAY = ActionSpec("pay", EffectClass.ONCE, CreateFile, attempts=1, timeout_s=45.0, origin="shop.py:7")
FILE = {
    "max_steps": 100,
    "effects": ["pure", "keyed"],
    "limits": {"timeout_s": 30},
    "per_action": {"pay": {"attempts": 9}},
    "principals": {"anna": {"max_steps": 7, "approvals": ["pay"]}},
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(FILE))
    return Settings(policy_file=path, deadline_s=600.0, max_parallel=100, lease_s=20.0)


def named(terms: tuple[Term, ...]) -> dict[str, tuple[Any, str, str | None]]:
    return {term.field: (term.value, term.source, term.at) for term in terms}


def test_each_value_of_a_run_has_the_last_layer_that_changed_it(settings: Settings) -> None:
    request = PolicyRequest(limits=SomeLimits(attempts=2), wait_s=60.0)
    terms = named(run_terms(settings, stages(settings, request, principal="anna")))
    file = str(settings.policy_file)
    assert {name: terms[name] for name in ("effects", "max_steps", "approvals", "limits.timeout_s")} == {
        "effects": (["keyed", "pure"], "file", file),
        "max_steps": (7, "principal", file),
        "approvals": (["pay"], "principal", file),
        "limits.timeout_s": (30, "file", file),
    }
    assert terms["deadline_s"] == (600, "environment", "MANDOR_DEADLINE_S")
    assert terms["max_parallel"] == (100, "environment", "MANDOR_MAX_PARALLEL")
    assert terms["limits.lease_s"] == (20, "environment", "MANDOR_LEASE_S")
    assert (terms["limits.attempts"], terms["wait_s"]) == ((2, "request", None), (60, "request", None))
    assert terms["plan_bytes"] == (1024 * 1024, "default", None)
    assert (terms["on_failure"][:2], terms["on_doubt"][:2]) == (("compensate", "default"), ("end", "default"))


def test_what_an_action_declares_stands_between_the_settings_and_the_file(settings: Settings) -> None:
    found = action_terms(settings, stages(settings), PAY)
    terms = named(found.terms)
    assert terms["attempts"] == (9, "file", str(settings.policy_file))
    assert terms["timeout_s"] == (30, "file", str(settings.policy_file))
    assert terms["lease_s"] == (20, "environment", "MANDOR_LEASE_S")
    assert terms["steps"] == (100, "file", str(settings.policy_file))
    assert (found.refused, found.approval) == ("pay has effects of class once, which the policy does not allow", False)
    declared = named(action_terms(Settings(), stages(Settings()), PAY).terms)
    assert declared["attempts"] == (1, "action", "shop.py:7")
    assert declared["timeout_s"] == (45, "action", "shop.py:7")
    assert declared["backoff_s"] == (1, "default", None)


def test_an_action_that_a_person_approves(settings: Settings) -> None:
    assert action_terms(settings, stages(settings, principal="anna"), PAY).approval


def test_names_that_no_action_has_are_found_wherever_they_stand() -> None:
    policy = Policy(
        actions=frozenset({"create_file", "creat_file"}),
        approvals=frozenset({"nothing.like.it"}),
        per_action={"run_comand": SomeLimits()},
        ceiling_per_action={"mutate_record": SomeLimits()},
        quotas={"mutate_recrod": Quota(steps=1)},
    )
    found = [(one.field, one.name, one.meant) for one in unknown_actions(policy, built_in().actions)]
    assert found == [
        ("actions", "creat_file", "create_file"),
        ("approvals", "nothing.like.it", None),
        ("per_action", "run_comand", "run_command"),
        ("quotas", "mutate_recrod", "mutate_record"),
    ]
