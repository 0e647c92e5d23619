"""run_command in real workers: what it answers, and that a command never outlives the claim it runs under."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from schemas.ids import RunRef, session_key
from schemas.policy import Rung
from tests.support.sandboxes import alive, ladder
from tests.support.system import System, step
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def best() -> Rung:
    """The sandbox that workers find here."""
    found = ladder().best
    if found is None or found is Rung.RLIMITS:
        pytest.skip(f"no sandbox here: {ladder().missing}")
    return found


def command(line: str, name: str = "s", needs: list[str] | None = None, **params: Any) -> dict[str, Any]:
    return step("run_command", name, needs, command=line, **params)


def test_a_command_works_in_the_run_s_workspace(system: System, best: Rung) -> None:
    system.start_steps(concurrency=1)
    written = step("create_file", "w", [], path="in.txt", content="two\nlines\n")
    run_id = system.submit(
        written, command("wc -l < in.txt > out.txt; cat out.txt; id -u", "c", ["w"]), command("cat out.txt", "d", ["c"])
    )
    view = system.wait(run_id)
    assert view.status == "succeeded", view
    results = {one.id: one.result for one in view.steps}
    assert (results["c"]["rung"], results["c"]["sandboxed"]) == (best, True)
    count, user = results["c"]["stdout_head"].split()
    assert (count, results["d"]["stdout_head"]) == ("2", "2\n")
    assert user != "0", "a command never runs as root"


def test_how_it_ended_is_told_apart(system: System) -> None:
    system.start_steps(concurrency=2)
    lines = {"exit 7": "command_failed", "kill -9 $$": "command_killed", "sleep 30": "timed_out"}
    runs = {kind: system.submit(command(line, timeout_ms=500)) for line, kind in lines.items()}
    for kind, run_id in runs.items():
        view = system.wait(run_id)
        assert view.steps[0].error is not None
        assert view.steps[0].error.kind == kind


def test_a_cancelled_run_s_command_ends(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(command("setsid -f sleep 4721; sleep 4722", timeout_ms=30_000))
    eventually(lambda: alive("sleep\x004722"))
    system.installed.store.runs.cancel(RunRef(run_id, session_key(None)), 1)
    eventually(lambda: not alive("sleep\x004721") and not alive("sleep\x004722"), timeout_s=15)
    system.wait(run_id)


def test_a_killed_child_takes_its_command_along(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(
        command("setsid -f sleep 4731; sleep 4732", timeout_ms=30_000), policy={"on_failure": "stop"}
    )
    (pid,) = eventually(lambda: alive("sleep\x004732"))
    os.kill(worker_above(pid), signal.SIGKILL)
    eventually(lambda: not alive("sleep\x004731") and not alive("sleep\x004732"), timeout_s=5)
    view = system.wait(run_id)
    assert (view.steps[0].status, view.steps[0].attempt) == ("in_doubt", 1), "nobody knows what it did: never again"


def worker_above(pid: int) -> int:
    """The worker's child that this process descends from."""
    while b"celery" not in (process := Path(f"/proc/{pid}")).joinpath("cmdline").read_bytes():
        pid = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return pid
