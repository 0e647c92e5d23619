"""The action run_command, delivered like any step: what it answers, what it refuses, what may be tried again."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.settings import Settings
from orchestrator.telemetry import facts
from orchestrator.telemetry.commands import CommandRun, SandboxFailed
from orchestrator.telemetry.events import Occurrence
from schemas.policy import Policy, Rung
from tests.support.sandboxes import alive
from tests.support.sandboxes import ladder as whole_ladder
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, workbench
from workers import workspace
from workers.actions import commands
from workers.actions.commands import SandboxUnavailable, run_command
from workers.belonging import alone
from workers.context import Context
from workers.outcomes import LeaseLost, NoEffect, RunEnding, TimeUp, WorkerStopping
from workers.reports import Done, GivenUp, Later
from workers.sandbox import ladder
from workers.sandbox.ladder import Ladder
from workers.workspace import WorkspaceFault, Workspaces

SANDBOXES = (Rung.BUBBLEWRAP, Rung.NAMESPACES)
STOP = Policy.model_validate({"on_failure": "stop"})


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    made = workbench(redis_server.url, namespace, tmp_path)
    made.registry._add_action(run_command)
    return made


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> Ladder:
    """What works here; each test may put something else in its place. Nothing is known to have worked before, and no
    look is due.
    """
    made = ladder.find(Settings())
    for name, value in {"_found": [made], "_ever": set(), "_look_at": [float("inf")]}.items():
        monkeypatch.setattr(ladder, name, value)
    return made


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[CommandRun]:
    """The commands that are counted from here on."""
    heard: list[CommandRun] = []

    def hear(fact: Occurrence) -> None:
        if isinstance(fact, CommandRun):
            heard.append(fact)

    monkeypatch.setattr(facts, "_listeners", [hear])
    return heard


def command(bench: Workbench, line: str, *, name: str = "run", policy: Policy | None = STOP, **params: Any) -> Run:
    """A run of one command."""
    return bench.planned({"action": "run_command", "params": {"command": line, **params}}, name=name, policy=policy)


def result(run: Run) -> dict[str, Any]:
    """What the step has answered."""
    text = run.bench.store.views.result(run.ref, "s0")
    assert text is not None
    answer: dict[str, Any] = json.loads(text)
    return answer


def test_the_result_says_what_was_written_and_what_fenced_it_in(bench: Workbench, found: Ladder) -> None:
    run = command(bench, "echo out; echo err >&2; printf '\\377'")
    assert isinstance(run.deliver(), Done)
    assert found.best is not None
    assert {name: value for name, value in result(run).items() if name != "duration_ms"} == {
        "exit_code": 0,
        "stdout_head": "out\n\ufffd",
        "stdout_tail": "",
        "stdout_bytes": 5,
        "stderr_head": "err\n",
        "stderr_tail": "",
        "stderr_bytes": 4,
        "rung": found.best.value,
        "sandboxed": True,
    }


def test_a_result_fits_whatever_a_command_writes(bench: Workbench) -> None:
    policy = STOP.model_copy(update={"result_bytes": 4096})
    run = command(bench, "head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2", policy=policy)
    assert isinstance(run.deliver(), Done)
    assert result(run)["stdout_bytes"] == 100_000


@pytest.mark.parametrize(
    ("line", "kind"),
    [("echo why >&2; exit 4", "command_failed"), ("kill -9 $$", "command_killed"), ("sleep 9", "timed_out")],
)
def test_a_command_that_fails_is_never_run_again(bench: Workbench, found: Ladder, line: str, kind: str) -> None:
    run = command(bench, line, timeout_ms=400)
    assert isinstance(run.deliver(), GivenUp)
    assert run.error()["kind"] == kind
    assert ("its last words: why" in run.error()["message"]) == ("why" in line)
    assert f"; on the rung {found.best}" in run.error()["message"]
    assert run.step().status == "in_doubt", "what it did before, nobody knows"


def test_policy_bounds_how_long_a_command_may_run_whatever_its_step_says(bench: Workbench) -> None:
    run = command(bench, "sleep 9", timeout_ms=30_000, policy=STOP.model_copy(update={"command_time_s": 0.3}))
    run.deliver()
    assert run.error()["kind"] == "timed_out"


def test_too_much_output_has_a_kind_of_its_own(bench: Workbench) -> None:
    run = command(bench, "cat /dev/zero", policy=STOP.model_copy(update={"command_output_bytes": 100_000}))
    run.deliver()
    assert run.error()["kind"] == "command_flooded"


def test_no_sandbox_no_command(bench: Workbench, found: Ladder, tmp_path: Path) -> None:
    ladder._found[:] = [replace(found, working=())]
    run = command(bench, "true")
    assert isinstance(run.deliver(), GivenUp)
    assert (run.error()["kind"], run.step().status) == ("no_sandbox_rung", "failed")


def test_policy_decides_how_strong_it_must_be(bench: Workbench, found: Ladder) -> None:
    ladder._found[:] = [replace(found, working=(Rung.NAMESPACES,))]
    run = command(bench, "true", policy=STOP.model_copy(update={"min_rung": Rung.BUBBLEWRAP}))
    run.deliver()
    assert (run.error()["kind"], run.step().status) == ("no_sandbox_rung", "failed")
    assert "bubblewrap" in run.error()["message"]


def test_without_a_sandbox_the_result_says_so(bench: Workbench) -> None:
    ladder._found[:] = [replace(whole_ladder(), working=(Rung.RLIMITS,))]
    run = command(bench, "id -u", policy=STOP.model_copy(update={"min_rung": Rung.RLIMITS}))
    assert isinstance(run.deliver(), Done)
    assert (result(run)["rung"], result(run)["sandboxed"]) == ("rlimits", False)
    assert result(run)["stdout_head"] != "0\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "echo no >&2; exit 7",
            "the command ended with code 7; on the rung rlimits: it had no sandbox; its last words: no",
        ),
        ("kill -9 $$", "signal 9 ended the command; on the rung rlimits: it had no sandbox"),
        ("yes", "it had no sandbox"),
        ("sleep 30", "it had no sandbox"),
        (
            "truncate -s 100000000 hole; sleep 29",
            "MANDOR_WORKSPACE_BYTES); on the rung rlimits: it had no sandbox",
        ),
    ],
)
def test_one_that_fails_without_a_sandbox_says_so_too(bench: Workbench, line: str, said: str) -> None:
    ladder._found[:] = [replace(whole_ladder(), working=(Rung.RLIMITS,))]
    small = {"command_output_bytes": 100_000, "workspace_bytes": 1_000_000}
    policy = STOP.model_copy(update={"min_rung": Rung.RLIMITS, **small})
    run = command(bench, line, policy=policy, timeout_ms=1500)
    assert isinstance(run.deliver(), GivenUp)
    assert said in run.error()["message"]


def test_a_start_that_fails_is_tried_again_on_what_works_by_then(bench: Workbench, found: Ladder) -> None:
    gone = replace(found, host=replace(found.host, python="/gone", bubblewrap="/gone"))
    ladder._found[:] = [gone]
    run = command(bench, "echo hi")
    assert isinstance(run.deliver(), Later)
    assert run.step().status == "backoff"
    assert ladder._found[0].host == found.host
    run.wait_out_backoff()
    assert isinstance(run.deliver(), Done)
    assert result(run)["stdout_head"] == "hi\n"


def test_what_failed_for_a_moment_disables_no_command_for_good(
    bench: Workbench, found: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start fails, and there is room for no probe: the step is tried again, not before it is worth a look."""
    monkeypatch.setattr(ladder, "_ever", set(found.working))
    ladder._found[:] = [replace(found, host=replace(found.host, python="/gone", bubblewrap="/gone"))]
    run, later = command(bench, "echo hi"), command(bench, "echo later", name="later")
    with monkeypatch.context() as full:
        full.setattr(tempfile, "tempdir", "/gone")
        assert isinstance(run.deliver(), Later)
        assert ladder._found[0].working == ()
        assert isinstance(later.deliver(), Later), "no look is due, and what worked once may work again"
    due_at = bench.clock.now + 1000 * ladder.LOOK_EVERY_S
    for one in (run, later):
        assert (one.error()["kind"], one.step().status) == ("sandbox_failed", "backoff")
        assert one.step().not_before >= due_at
        one.wait_out_backoff()
    ladder._look_at[0] = 0.0
    assert isinstance(run.deliver(), Done)
    assert isinstance(later.deliver(), Done)
    assert ladder._found == [found]


def test_where_less_works_than_did_it_is_looked_for_now_and_then(
    bench: Workbench, found: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One start of the stronger sandbox that failed keeps no child on the weaker one."""
    if len(found.working) < len(SANDBOXES):
        pytest.skip(str(found.missing))
    monkeypatch.setattr(ladder, "_ever", set(SANDBOXES))
    ladder._found[:] = [replace(found, working=(Rung.NAMESPACES,))]
    for due, rung in ((float("inf"), "namespaces"), (0.0, "bubblewrap")):
        ladder._look_at[0] = due
        run = command(bench, "true", name=rung)
        assert isinstance(run.deliver(), Done)
        assert result(run)["rung"] == rung


def test_where_nothing_has_worked_a_command_that_comes_later_has_it_looked_for(bench: Workbench, found: Ladder) -> None:
    ladder._found[:] = [replace(found, working=())]
    ladder._look_at[0] = 0.0
    assert isinstance(command(bench, "true").deliver(), Done)


def test_a_start_that_fails_tells_no_folder_of_the_host(
    bench: Workbench, found: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failed program says of it, that of bubblewrap with a workspace's secret name too, is for the log alone."""
    if Rung.BUBBLEWRAP not in found.working:
        pytest.skip(found.missing[Rung.BUBBLEWRAP])
    heard: list[Occurrence] = []
    monkeypatch.setattr(facts, "_listeners", [heard.append])
    ladder._found[:] = [replace(found, host=replace(found.host, prefix="/nowhere/here"))]
    once = STOP.model_validate({"per_action": {"run_command": {"attempts": 1}}})
    run = command(bench, "true", policy=once)
    assert isinstance(run.deliver(), GivenUp)
    assert (run.error()["kind"], run.step().status) == ("sandbox_failed", "failed")
    assert run.error()["message"].startswith(
        "the sandbox could not be made: setup, errno 0; on the rung bubblewrap (nothing was"
    )
    assert "/" not in json.dumps(run.error())
    assert ["/nowhere/here" in fact.said for fact in heard if isinstance(fact, SandboxFailed)] == [True]


def test_a_workspace_that_cannot_be_used_leaves_no_doubt(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds it: nothing was started, and the next try may find it free."""
    monkeypatch.setattr(workspace, "LOCK_WAIT_S", 0.1)
    run = command(bench, "echo hi")
    tree = Workspaces(bench.settings.home).open(run.ref.run_id, 1).path
    with alone(tree.parent) as held:
        assert held
        assert isinstance(run.deliver(), Later)
    assert run.step().status == "backoff"
    run.wait_out_backoff()
    assert isinstance(run.deliver(), Done)


@pytest.mark.parametrize(
    "stop", [LeaseLost("lost"), TimeUp("over"), RunEnding("no"), WorkerStopping("bye"), SystemExit()]
)
def test_whatever_ends_a_command_it_is_counted(
    bench: Workbench, found: Ladder, counted: list[CommandRun], monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    """None of it is told by an outcome of its own."""

    def stopped(_: Context) -> None:
        if alive("sleep\x004729"):
            raise stop

    monkeypatch.setattr(Context, "check", stopped)
    command(bench, "exec sleep 4729", timeout_ms=20_000).deliver()
    (one,) = counted
    assert (one.rung, one.outcome, one.duration_ms > 0) == (found.best, "ended", True)


@pytest.mark.parametrize("fault", [OSError(28, "full", "/home/secret"), WorkspaceFault("full")], ids=["system", "ours"])
def test_what_the_file_system_cannot_do_before_the_start_is_no_doubt(fault: Exception) -> None:
    with pytest.raises(SandboxUnavailable, match=r"full|No space left") as told, commands._nothing_started():
        raise fault
    assert isinstance(told.value, NoEffect)
    assert "secret" not in str(told.value)


def test_a_line_that_no_kernel_takes_is_refused(bench: Workbench) -> None:
    run = command(bench, "echo " + "a" * 200_000)
    assert isinstance(run.deliver(), GivenUp)
    assert (run.error()["kind"], run.step().status) == ("command_too_long", "failed")


@pytest.mark.parametrize(
    ("line", "quota"),
    [
        ("i=0; while :; do : >n$i; i=$((i+1)); done", {"workspace_files": 500}),
        ("mkdir d; cd d; while :; do mkdir d; cd d; done 2>/dev/null", {"workspace_files": 100}),
        ("head -c 3000000 /dev/zero >big; sleep 29", {"workspace_bytes": 1_000_000}),
        ("truncate -s 100000000 hole; sleep 29", {"workspace_bytes": 1_000_000}),
    ],
)
def test_a_command_is_ended_that_fills_its_workspace(
    bench: Workbench, found: Ladder, counted: list[CommandRun], line: str, quota: dict[str, int]
) -> None:
    """The case cf-30 of the corpus, and others like it."""
    run = command(bench, line, policy=STOP.model_copy(update=quota), timeout_ms=30_000)
    assert isinstance(run.deliver(), GivenUp)
    assert run.error()["kind"] == "workspace_full"
    assert f"; on the rung {found.best}" in run.error()["message"]
    assert [(one.rung, one.outcome) for one in counted] == [(found.best, "ended")]
    assert run.step().status == "in_doubt"


def test_a_command_that_leaves_too_much_behind_fails(bench: Workbench) -> None:
    """It has ended before any look, and can move nothing out of sight any more."""
    run = command(bench, "truncate -s 2000000 big", policy=STOP.model_copy(update={"workspace_bytes": 1_000_000}))
    assert isinstance(run.deliver(), GivenUp)
    assert (run.error()["kind"], run.step().status) == ("workspace_full", "in_doubt")
    assert "the command has left too much" in run.error()["message"]


def test_nothing_is_started_where_the_workspace_is_too_full_already(bench: Workbench) -> None:
    policy = STOP.model_copy(update={"workspace_bytes": 1_000_000})
    run = command(bench, "touch started", policy=policy)
    tree = Workspaces(bench.settings.home).open(run.ref.run_id, 1).path
    (tree / "big").write_bytes(b"x" * 2_000_000)
    assert isinstance(run.deliver(), GivenUp)
    assert (run.error()["kind"], run.step().status) == ("workspace_full", "failed")
    assert not (tree / "started").exists()


def test_a_command_is_ended_that_takes_too_much_memory_altogether(bench: Workbench) -> None:
    policy = STOP.model_copy(update={"command_memory_bytes": 48 << 20})
    run = command(bench, "head -c 60000000 /dev/zero > /tmp/big; sleep 29", policy=policy, timeout_ms=30_000)
    assert isinstance(run.deliver(), GivenUp)
    assert (run.error()["kind"], run.step().status) == ("command_too_heavy", "in_doubt")
