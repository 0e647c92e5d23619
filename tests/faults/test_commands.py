"""run_command in real workers: what it answers, and that a command never outlives the claim it runs under.

The first are held for workers of two users on both rungs: everybody can enter the folders of this system.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from orchestrator.home import has_workspace
from schemas.ids import RunRef, session_key
from schemas.policy import Rung
from tests.support.commanding import ME, NOBODYS, commander
from tests.support.sandboxes import NEEDS_ROOT, alive, ladder
from tests.support.scraping import probed, scraped
from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually

SANDBOXED: Final = {"min_rung": "namespaces"}
STOP: Final = {"on_failure": "stop"}
BAD: Final = step("test.flaky", "bad", failures=0, for_good=True)
NOBODY_KNOWS: Final = "no compensation declared for run_command"
OFTEN: Final = {"MANDOR_WORKSPACE_SWEEP_S": "0.5"}
A_RUN: Final = 1000  # steps of one, at most


@pytest.fixture(scope="module")
def shared_system(server_kind: str) -> Iterator[System]:
    """Its operator allows commands without a sandbox where there is none; runs may be stricter."""
    with TemporaryDirectory(prefix="mandor-commands-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with (
            running_server(folder / "server", server_kind) as server,
            running_system(server.url, folder, min_rung="rlimits") as made,
        ):
            made.start_control()
            yield made


@pytest.fixture(autouse=True)
def best() -> Rung:
    """The sandbox that workers find here."""
    found = ladder().best
    if found is None or found is Rung.RLIMITS:
        pytest.skip(f"no sandbox here: {ladder().missing}")
    return found


def command(line: str, name: str = "s", needs: list[str] | None = None, **params: Any) -> dict[str, Any]:
    return step("run_command", name, needs, command=line, **params)


# ---- each user, each rung


EACH = pytest.mark.parametrize(
    ("user", "rung"),
    [
        (ME, Rung.BUBBLEWRAP),
        pytest.param(ME, Rung.NAMESPACES, marks=pytest.mark.full),
        pytest.param(NOBODYS, Rung.BUBBLEWRAP, marks=[pytest.mark.full, NEEDS_ROOT]),
        pytest.param(NOBODYS, Rung.NAMESPACES, marks=[pytest.mark.full, NEEDS_ROOT]),
    ],
)


@EACH
def test_a_worker_runs_commands_on_its_rung(system: System, user: str, rung: Rung) -> None:
    worker = commander(system, user, rung)
    assert probed(worker.url, "/health")[1]["about"] == {"sandbox": rung}
    chain = system.submit(*of_one_workspace(), policy=SANDBOXED)
    lines = {"exit 7": "command_failed", "kill -9 $$": "command_killed", "sleep 30": "timed_out"}
    failing = {kind: system.submit(command(line, timeout_ms=500), policy=SANDBOXED) for line, kind in lines.items()}
    view = system.wait(chain)
    assert view.status == "succeeded", view
    results = {one.id: one.result for one in view.steps}
    assert (results["c"]["rung"], results["c"]["sandboxed"]) == (rung, True)
    count, uid = results["c"]["stdout_head"].split()
    assert (count, results["d"]["stdout_head"]) == ("2", "2\n")
    assert uid != "0", "a command never runs as root"
    for kind, run_id in failing.items():
        error = system.wait(run_id).steps[0].error
        assert error is not None
        assert error.kind == kind
    assert scraped(worker.url)[f'mandor_commands_total{{rung="{rung}"}}'] == 2 + len(failing)


def of_one_workspace() -> list[dict[str, Any]]:
    """A file that a step writes and a command reads, and one that a command writes and another reads."""
    written = step("create_file", "w", [], path="in.txt", content="two\nlines\n")
    both = command("wc -l < in.txt > out.txt; cat out.txt; id -u", "c", ["w"])
    return [written, both, command("cat out.txt", "d", ["c"])]


@pytest.mark.full
def test_where_the_operator_allows_it_commands_run_unfenced_and_everybody_is_told(system: System) -> None:
    worker = commander(system, ME, Rung.RLIMITS, concurrency=1)
    warned = system.processes.wait_for_line(r"sandbox\.unfenced", name="steps")
    assert '"level": "warning"' in warned or '"level":"warning"' in warned
    assert probed(worker.url, "/health")[1]["about"] == {"sandbox": "rlimits"}
    view = system.wait(system.submit(command("id -u")))
    result = view.steps[0].result
    assert (result["rung"], result["sandboxed"]) == ("rlimits", False)
    assert result["stdout_head"] != "0\n"
    assert scraped(worker.url)['mandor_commands_total{rung="rlimits"}'] == 1
    undone = system.wait(system.submit(command("id -u"), BAD))
    assert (undone.status, [letter.reason for letter in undone.dead_letters]) == ("compensation_failed", [NOBODY_KNOWS])
    stricter = system.wait(system.submit(command("id -u"), policy=SANDBOXED)).steps[0]
    assert stricter.error is not None
    assert (stricter.error.kind, stricter.status) == ("no_sandbox_rung", "failed")


@pytest.mark.full
@pytest.mark.parametrize("rung", [Rung.BUBBLEWRAP, Rung.NAMESPACES])
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(100, marks=pytest.mark.timeout(220)),
        pytest.param(5000, marks=[pytest.mark.soak, pytest.mark.timeout(5120)]),  # half an hour on both
    ],
)
def test_nothing_is_left_of_many_commands(system: System, rung: Rung, count: int) -> None:
    worker = commander(system, ME, rung)
    run_trivial(system, 10)
    before = worker.holds()
    assert before["zombies"] == 0
    run_trivial(system, count)
    eventually(lambda: more_than(before, worker.holds()) == {}, what=f"no more than {before}")
    eventually(lambda: worker.workspaces() == [], timeout_s=60)


def more_than(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """What there is more of. A few connections of the worker's own come and go; a leak is one for each command."""
    slack = {"descriptors": 10}
    return {name: count for name, count in now.items() if count > before[name] + slack.get(name, 0)}


def run_trivial(system: System, count: int) -> None:
    """So many commands, all of which succeed."""
    for first in range(0, count, A_RUN):
        steps = [command("true", f"s{number}", []) for number in range(first, min(first + A_RUN, count))]
        view = system.wait(system.submit(*steps, policy={"workspace_keep_s": 0}), timeout_s=60 + count)
        assert view.status == "succeeded", view.reason


# ---- a command and its claim


def test_a_cancelled_run_s_command_ends(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(command("setsid -f sleep 4721; sleep 4722", timeout_ms=30_000))
    eventually(lambda: alive("sleep\x004722"))
    system.installed.store.runs.cancel(RunRef(run_id, session_key(None)), 1)
    eventually(lambda: not alive("sleep\x004721") and not alive("sleep\x004722"), timeout_s=15)
    view = system.wait(run_id)  # here commands may run without a sandbox, so nobody knows where this one wrote
    assert (view.status, view.reason) == ("compensation_failed", "cancelled")


@pytest.mark.full
def test_an_overdue_run_s_command_ends(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(command("setsid -f sleep 4751; sleep 4752", timeout_ms=30_000), deadline_s=2, policy=STOP)
    eventually(lambda: alive("sleep\x004752"))
    eventually(lambda: not alive("sleep\x004751") and not alive("sleep\x004752"), timeout_s=15)
    assert system.wait(run_id).reason == "deadline"


@pytest.mark.full
def test_a_stopping_worker_s_command_ends(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(command("setsid -f sleep 4761; sleep 4762", timeout_ms=30_000), policy=STOP)
    eventually(lambda: alive("sleep\x004762"))
    system.processes.stop("steps")
    assert alive("sleep\x004761") == alive("sleep\x004762") == []
    assert system.wait(run_id).steps[0].status == "in_doubt"


def test_a_killed_child_takes_its_command_along(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(command("setsid -f sleep 4731; sleep 4732", timeout_ms=30_000), policy=STOP)
    (pid,) = eventually(lambda: alive("sleep\x004732"))
    os.kill(worker_above(pid), signal.SIGKILL)
    eventually(lambda: not alive("sleep\x004731") and not alive("sleep\x004732"), timeout_s=5)
    view = system.wait(run_id)
    assert (view.steps[0].status, view.steps[0].attempt) == ("in_doubt", 1), "nobody knows what it did: never again"


def test_a_command_in_doubt_is_undone_by_the_end_of_its_workspace(system: System) -> None:
    system.start_steps(concurrency=1, env=OFTEN)
    written = step("create_file", "w", [], path="in.txt", content="x")
    line = command("echo > made; setsid -f sleep 4771; sleep 4772", "c", ["w"], timeout_ms=30_000)
    run_id = system.submit(written, line, policy=SANDBOXED)
    (pid,) = eventually(lambda: alive("sleep\x004772"))
    os.kill(worker_above(pid), signal.SIGKILL)
    view = system.wait(run_id)
    assert (view.status, [one.status for one in view.steps]) == ("compensated", ["compensated"] * 2)
    assert [letter.kind for letter in view.dead_letters] == ["step"], "about the doubt"
    eventually(lambda: not has_files(system, run_id), what="the end of the workspace")
    assert not alive("sleep\x004771")


@pytest.mark.full
def test_the_files_of_commands_stay_for_other_compensations_whoever_dies_over_them(system: System) -> None:
    system.start_steps("first", concurrency=1, env=OFTEN)
    kept = step("test.file", "k", [], value="x", undo_hold_s=600)
    run_id = system.submit(kept, command("echo > made", "c", ["k"]), BAD, policy=SANDBOXED)
    eventually(lambda: system.effects(run_id=run_id, what="undoing"))
    system.start_steps("second", concurrency=1, env=OFTEN)
    system.processes.kill("first")
    view = system.wait(run_id)
    assert (view.status, view.dead_letters) == ("compensated", ())
    assert [one.status for one in view.compensations] == ["compensated"] * 2
    assert [line["value"] for line in system.effects(run_id=run_id, what="found")] == ["made"]
    eventually(lambda: not has_files(system, run_id), what="the end of the workspace")


def has_files(system: System, run_id: str) -> bool:
    """Whether its workspace is there."""
    return has_workspace(system.installed.settings.home, run_id)


def worker_above(pid: int) -> int:
    """The worker's child that this process descends from."""
    while b"celery" not in (process := Path(f"/proc/{pid}")).joinpath("cmdline").read_bytes():
        pid = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return pid


@pytest.mark.full
def test_a_worker_that_has_lost_its_lease_ends_its_command(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(command("setsid -f sleep 4741; sleep 4742", timeout_ms=30_000), policy=STOP)
    (pid,) = eventually(lambda: alive("sleep\x004742"))
    child = worker_above(pid)
    os.kill(child, signal.SIGSTOP)
    try:
        eventually(lambda: system.view(run_id).steps[0].status == "in_doubt", timeout_s=30)
        assert alive("sleep\x004742")
    finally:
        os.kill(child, signal.SIGCONT)
    eventually(lambda: not alive("sleep\x004741") and not alive("sleep\x004742"), timeout_s=10)
    assert system.wait(run_id).steps[0].attempt == 1
