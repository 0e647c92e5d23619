"""Steps whose effects stay in their run's workspace: its end undoes them, and no compensation has to be declared."""

import fcntl
from pathlib import Path
from typing import Any

import pytest

from orchestrator.late_effects import REASON
from orchestrator.store.new import plan_from_text
from schemas.policy import OnDoubt, Policy, Rung
from schemas.states import Fact
from tests.support.servers import Server
from tests.support.undoing import Doubled, Office, Params, claim_and_die, come_late, opened, row_of, write
from tests.support.workbench import narrowed, workbench
from workers.actions.commands import CommandResult, is_fenced
from workers.actions.files import create_file
from workers.context import Context, PermanentError
from workers.reports import Done, Later, Nothing

CONFINABLE = ("idempotent", "once")
RESULT = {
    "exit_code": 0,
    "stdout_head": "",
    "stdout_tail": "",
    "stdout_bytes": 0,
    "stderr_head": "",
    "stderr_tail": "",
    "stderr_bytes": 0,
    "duration_ms": 1,
    "rung": "namespaces",
}


@pytest.fixture
def office(redis_server: Server, namespace: str, tmp_path: Path) -> Office:
    return opened(workbench(redis_server.url, namespace, tmp_path))


def declare(office: Office, effect: str, *, confined: Any = True, fails: bool = False) -> None:
    """An action that writes into its workspace, and is not undone by anybody."""

    def act(params: Params, ctx: Context) -> Doubled:
        (ctx.workspace.path / "made.txt").write_text("made")
        if fails:
            raise PermanentError("nobody knows how far it came")
        return Doubled(value=2 * params.x)

    office.bench.registry.action("make", effect=effect, attempts=1, confined=confined)(act)


def file_of(run: Any) -> Path:
    return Path(run.bench.services.workspaces.path(run.ref.run_id) / "made.txt")


@pytest.mark.parametrize("effect", CONFINABLE)
def test_what_stays_in_the_workspace_needs_no_compensation(office: Office, effect: str) -> None:
    declare(office, effect)
    run = office.failed_after("make", "make")
    assert run.undo_all() == ["s1", "s0"]
    assert (run.state.status, office.bench.letters) == ("compensated", [])
    assert [row_of(run, name) for name in ("s0", "s1")] == ["AlreadyLanded"] * 2


@pytest.mark.parametrize("effect", CONFINABLE)
def test_in_doubt_it_goes_with_the_workspace_as_well(office: Office, effect: str) -> None:
    declare(office, effect, fails=True)
    run = office.bench.planned({"action": "make", "params": {}}, policy=narrowed(on_doubt="end"))
    run.deliver()
    assert run.step().status == "in_doubt"
    run.undo_all()
    assert (run.state.status, run.step().status) == ("compensated", "compensated")


@pytest.mark.parametrize("confined", [True, False, lambda policy, done: False])
def test_the_ledger_keeps_of_each_step_whether_it_may_be_confined(office: Office, confined: Any) -> None:
    """For whoever starts the run over, who may know no actions."""
    declare(office, "idempotent", confined=confined)
    run = office.bench.planned({"action": "make", "params": {}})
    text = run.bench.ledger.history.admitted_plan(run.ref.run_id, 1)
    assert text is not None
    assert [step.confined for step in plan_from_text(text).steps] == [confined is not False]


def test_compensations_of_other_steps_find_the_files(office: Office) -> None:
    found: list[str] = []
    office.declare(
        "send", "keyed", undo=lambda _p, _d, ctx: found.append((ctx.workspace.path / "made.txt").read_text())
    )
    declare(office, "once")
    run = office.failed_after("send", "make")
    assert run.undo_all() == ["s1", "s0"]
    assert (found, run.state.status) == (["made"], "compensated")


@pytest.mark.parametrize("effect", CONFINABLE)
def test_a_child_that_died_over_it_is_followed(office: Office, effect: str) -> None:
    declare(office, effect)
    run = office.failed_after("make")
    run.settle()
    claim_and_die(run)
    assert isinstance(run.undo(), Done)
    run.settle()
    assert (run.state.status, office.bench.letters) == ("compensated", [])


def test_one_that_is_frozen_until_somebody_else_has_done_it_says_nothing(office: Office) -> None:
    undone: list[Any] = []

    def confined(policy: Policy, done: Doubled | None) -> bool:
        if not undone:
            run = runs[0]
            undone.append(run)
            fence = run.step().undo.fence
            office.bench.ledger.effects.close(run.ref.run_id, "s0", "undo", fence)
            office.bench.store.guard.expire_undo(run.ref, "s0", fence, Fact.NONE)
            undone.append(run.undo())
        return True

    declare(office, "once", confined=confined)
    runs: list[Any] = [office.failed_after("make")]
    runs[0].settle()
    assert isinstance(runs[0].undo(), Nothing)
    assert isinstance(undone[1], Done)
    assert office.bench.letters == []


@pytest.mark.parametrize("effect", CONFINABLE)
def test_what_comes_late_goes_with_the_workspace_too(office: Office, effect: str) -> None:
    declare(office, effect)
    run = office.failed_after("make")
    run.undo_all()
    come_late(office, run)
    late = office.bench.ledger.late.of(run.ref.run_id, "s0")
    assert late is not None
    run.undo_late(late.fence)
    assert office.bench.ledger.late.of(run.ref.run_id, "s0") is None
    assert [letter.reason for letter in office.bench.letters if letter.reason != REASON] == []


def test_what_it_says_of_its_result_is_asked(office: Office) -> None:
    declare(office, "once", confined=lambda policy, done: done is not None and done.value != 2)
    run = office.failed_after("make", "make")
    run.undo_all()
    assert [run.step(name).status for name in ("s0", "s1")] == ["compensated", "compensation_failed"]
    (letter,) = office.bench.letters
    assert letter.reason == "no compensation declared for make"


def test_a_compensation_that_gives_up_leaves_it_to_the_workspace(office: Office) -> None:
    def refuse(*_: Any) -> None:
        raise PermanentError("a folder stands where the file should be")

    office.declare("act", "once", undo=refuse, confined=True)
    office.declare("kept", "once", undo=refuse)
    run = office.failed_after("act", "kept")
    run.undo_all()
    assert [run.step(name).status for name in ("s0", "s1")] == ["compensated", "compensation_failed"]


def test_one_that_may_yet_succeed_is_tried_again(office: Office) -> None:
    office.declare("act", "idempotent", confined=True)
    office.faults.append(OSError("not now"))
    run = office.failed_after("act")
    run.settle()
    assert isinstance(run.undo(), Later)
    run.wait_out_backoff()
    assert isinstance(run.undo(), Done)
    assert len(office.undone) == 1


def test_a_file_in_whose_place_something_else_stands_is_no_trouble(office: Office) -> None:
    office.bench.registry._add_action(create_file)
    run = office.bench.planned(write("a", "a.txt"), {"id": "bad", "action": "fail", "params": {}})
    run.deliver("a")
    tree = office.bench.services.workspaces.path(run.ref.run_id)
    (tree / "a.txt").unlink()
    (tree / "a.txt").mkdir()
    run.deliver("bad")
    run.undo_all()
    assert (run.state.status, office.bench.letters) == ("compensated", [])


def test_a_file_that_cannot_be_taken_away_now_goes_with_the_workspace(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a command has shut its folder, or the disk is full."""
    office.bench.registry._add_action(create_file)
    run = office.bench.planned(write("a", "a.txt"), {"id": "bad", "action": "fail", "params": {}})
    run.deliver("a")
    run.deliver("bad")
    lock = office.bench.services.workspaces.path(run.ref.run_id).parent / "lock"
    monkeypatch.setattr("workers.workspace.LOCK_WAIT_S", 0.05)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        run.undo_all()
    assert (run.state.status, office.bench.letters) == ("compensated", [])


@pytest.mark.parametrize(
    ("min_rung", "ends"), [(Rung.NAMESPACES, "compensated"), (Rung.RLIMITS, "compensation_failed")]
)
def test_of_a_result_that_cannot_be_read_the_policy_says_whether_it_was_confined(
    office: Office, min_rung: Rung, ends: str
) -> None:
    """Such as the word of a person that a command in doubt has landed, and no more."""

    def crash(params: Params, ctx: Context) -> CommandResult:
        raise PermanentError("nobody knows how far it came")

    office.bench.registry.action("make", effect="once", attempts=1, confined=is_fenced)(crash)
    steps = ({"id": "a", "action": "make", "params": {}}, {"id": "bad", "action": "fail", "params": {}})
    run = office.bench.planned(*steps, policy=Policy(on_doubt=OnDoubt.WAIT, min_rung=min_rung))
    run.deliver("a")
    step, ref = run.step("a"), run.ref
    office.bench.store.runs.resolve(ref, "a", step.fence, 1, "ann", landed=True)
    run.deliver("bad")
    run.undo_all()
    assert (run.state.status, run.step("a").status) == (ends, ends)
    assert [letter.reason for letter in office.bench.letters] == ["no compensation declared for make"] * (
        ends != "compensated"
    )


def test_a_command_is_confined_by_a_sandbox_alone() -> None:
    fenced, unfenced = (CommandResult.model_validate({**RESULT, "sandboxed": said}) for said in (True, False))
    strict, lax = Policy(), Policy(min_rung=Rung.RLIMITS)
    assert [is_fenced(strict, None), is_fenced(lax, None)] == [True, False]
    assert [is_fenced(lax, fenced), is_fenced(lax, unfenced)] == [True, False]
