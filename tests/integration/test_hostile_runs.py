"""Hostile plans of the corpus about ids, sessions, policies, results and templates: runs that would meet if allowed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.policy import Policy, Rung
from tests.support.hostile import steps
from tests.support.plans import PLAN_ID
from tests.support.sandboxes import ladder as whole_ladder
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, narrowed, workbench
from workers.actions.commands import run_command
from workers.actions.files import create_file
from workers.actions.records import mutate_record
from workers.reports import Done
from workers.sandbox import ladder

SEPARATORS = (":", "|", "/", "_", "-")


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    made = workbench(redis_server.url, namespace, tmp_path)
    made.registry._add_action(run_command)
    made.registry._add_action(create_file)
    made.registry._add_action(mutate_record)
    monkeypatch.setattr(ladder, "_found", [replace(whole_ladder(), working=whole_ladder().working[:1])])
    monkeypatch.setattr(ladder, "_ever", set())
    monkeypatch.setattr(ladder, "_look_at", [float("inf")])
    return made


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    folder = tmp_path / "canary"
    folder.mkdir(mode=0o777)
    return folder


def done(run: Run, *names: str) -> list[Any]:
    """The results of these steps, each delivered once."""
    for name in names:
        assert isinstance(run.deliver(name), Done), run.error(name)
    return [run.result(name) for name in names]


def said(run: Run, *names: str) -> list[str]:
    """What these commands wrote."""
    return [result["stdout_head"] for result in done(run, *names)]


def command(name: str) -> dict[str, Any]:
    (found,) = steps(name, {})
    return found


# ---- ids and sessions


def test_a_session_s_text_cannot_be_taken_for_another_s(bench: Workbench) -> None:
    """iso-02, for each sign that joins."""
    (ours,) = steps("iso-02", {})
    theirs = {**ours, "params": {"command": "echo B"}}
    prefixes = set()
    for sign in SEPARATORS:
        first = bench.planned(ours, name="c", session_id=f"a{sign}b")
        second = bench.planned(theirs, name=f"b{sign}c", session_id="a")
        prefixes |= {str(first.ref), str(second.ref)}
        if sign == SEPARATORS[0]:  # commands cost; the others' keys are enough
            assert said(first, "c") + said(second, "c") == ["A\n", "B\n"]
    assert len(prefixes) == 2 * len(SEPARATORS)
    assert len({run.run_id for run in bench.ledger.listed(100)}) == 2 * len(SEPARATORS)


@pytest.mark.parametrize(("name", "session"), [("iso-03", "theirs"), ("iso-04", "ours")])
def test_a_plan_id_that_was_there_before_brings_no_result_along(bench: Workbench, name: str, session: str) -> None:
    """All plans of a workbench have one plan id."""
    before = bench.planned({"action": "run_command", "params": {"command": "echo stored"}}, session_id=session)
    assert said(before, "s0") == ["stored\n"]
    after = bench.planned(command(name), name="after", session_id="ours")
    assert said(after, "s0") == ["mine\n" if name == "iso-03" else "second\n"]
    assert (before.state.plan_id, after.state.plan_id) == (PLAN_ID, PLAN_ID)
    assert said_again(before) == "stored\n"


def said_again(run: Run) -> str:
    return str(run.result("s0")["stdout_head"])


def test_ids_that_look_like_the_default_ones_are_others(bench: Workbench) -> None:
    """iso-06."""
    run = bench.planned(*({**step, "needs": []} for step in steps("iso-06", {})))
    assert said(run, "s0", "0", "step-0", "steps-0") == ["a\n", "b\n", "c\n", "d\n"]


def test_a_plan_for_another_context_runs_nothing(bench: Workbench) -> None:
    """iso-07."""
    plan = json.dumps({"plan_id": PLAN_ID, "context_hash": "0" * 64, "steps": steps("iso-07", {})})
    bench.planned(*steps("iso-07", {}), name="before")
    run = bench.submit("stale", plan=plan, context={"order": 7})
    run.plan()
    assert run.state.status == "dead_lettered"
    assert [error["kind"] for error in bench.letters[-1].content["attempts"][0]["errors"]] == ["context"]
    assert bench.store.views.step(run.ref, "s0") is None


def test_a_workspace_is_of_one_run_and_named_by_all_of_its_id(bench: Workbench) -> None:
    """iso-12: nothing is cut to where two runs could meet; what another has left is not seen."""
    leaves = {"action": "run_command", "params": {"command": "echo theirs > left"}}
    done(bench.planned(leaves, name="before"), "s0")
    run = bench.planned(command("iso-12"), name="after")
    assert said(run, "s0") == [""]
    names = {path.name for path in (bench.settings.home / "workspaces").iterdir()}
    assert len(names) == 2
    assert all(len(name) >= 32 and not run.ref.run_id.startswith(name[:8]) for name in names)


# ---- policies


@pytest.mark.full
def test_policy_travels_with_its_run_and_with_nothing_else(bench: Workbench) -> None:
    """iso-01: two runs of one session, in one process, take turns; only one of them may write and go unfenced."""
    ladder._found[:] = [replace(whole_ladder(), working=(Rung.RLIMITS,))]
    contents = [{"path": f"f{number}", "content": "0123456789"} for number in range(99)]
    files = [{"action": "create_file", "needs": [], "params": params} for params in contents]
    line = {"action": "run_command", "needs": [], "params": {"command": "true"}}
    free, strict = Policy(min_rung=Rung.RLIMITS), narrowed(file_bytes=9)
    a = bench.planned(*files, line, name="a", session_id="one", policy=free)
    stricts = []
    for number in range(99):
        assert isinstance(a.deliver(f"s{number}"), Done)
        b = bench.planned(files[0] if number % 2 else line, name=f"b{number}", session_id="one", policy=strict)
        b.deliver()
        stricts.append(b.error()["kind"])
    assert set(stricts[1::2]) == {"file_too_large"}
    assert set(stricts[::2]) == {"no_sandbox_rung"}
    assert done(a, "s99")[0]["sandboxed"] is False


# ---- results, and texts that would be more than text


def test_a_command_s_output_is_no_verdict_about_steps(bench: Workbench) -> None:
    """iso-11: the step that it speaks of does not hear of it."""
    deploy = {"id": "deploy", "action": "run_command", "params": {"command": "false"}, "needs": ["s0"]}
    run = bench.planned(command("iso-11"), deploy)
    assert run.step("deploy").status == "pending"
    assert '"status":"succeeded","step":"deploy"' in said(run, "s0")[0]
    assert run.step("deploy").status == "dispatched"
    run.deliver("deploy")
    assert run.step("deploy").status == "in_doubt"


def test_templates_stay_text(bench: Workbench, canary: Path) -> None:
    """tpl-01 and tpl-02."""
    first, second = steps("tpl-01", {"CANARY": canary})
    run = bench.planned(first, second)
    assert said(run, "a") == [f"x; touch {canary}/x"]
    run.deliver("s1")
    assert run.step("s1").status == "in_doubt", "the shell does not know such a name"
    written, changed = steps("tpl-02", {"CANARY": canary})
    run = bench.planned(written, changed, name="tpl-02")
    done(run, "s0", "s1")
    assert (bench.services.workspaces.path(run.ref.run_id) / "t.txt").read_text() == written["params"]["content"]
    record = bench.ledger.record(changed["params"]["entity_id"])
    assert record is not None
    assert json.loads(record.data_text) == changed["params"]["changes"]
    assert list(canary.iterdir()) == []


def test_a_plan_in_an_output_is_no_plan(bench: Workbench) -> None:
    """tpl-04."""
    run = bench.planned(command("tpl-04"))
    assert json.loads(said(run, "s0")[0])["plan_id"] == PLAN_ID
    run.settle()
    assert [one.run_id for one in bench.ledger.listed(10)] == [run.ref.run_id]
    assert bench.outbox.sent("plan") == []
