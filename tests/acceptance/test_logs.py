"""One child of one worker runs everything, in every order, with every end: each line belongs to the run it is about."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from orchestrator import dispatch
from orchestrator.store.replies import Dispatch
from orchestrator.telemetry.logs import IDENTITY
from schemas.ids import RunRef
from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.talkative import End
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]
ENDS = get_args(End)
QUICK = ("success", "failure", "retry", "snooze")
ROUNDS = 4
QUICK_ROUNDS = 25
REJECTED = "reject requeue=True: store_moved"


@pytest.fixture(scope="module")
def lines(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """All log lines of a system that has run many talkative steps in one child."""
    folder = tmp_path_factory.mktemp("logs")
    with (
        running_server(folder / "server", server_kind) as server,
        running_system(server.url, folder, actions="tests.support.talkative") as system,
    ):
        system.start_control()
        system.start_steps(concurrency=1)
        with system.installed.in_force():
            work(system)
            meet_a_busy_step(system, folder / "held")
            meet_a_store_that_moved(system)
            stop_softly(system, folder / "stopped")
        system.processes.stop("again")
        yield parsed(system.processes.lines())


def work(system: System) -> None:
    marks = [f"{end}-{number}" for number in range(QUICK_ROUNDS) for end in (ENDS if number < ROUNDS else QUICK)]
    runs = [system.submit(step("test.talk", mark=mark, end=mark.split("-")[0]), request_id=mark) for mark in marks]
    for run_id in runs:
        system.wait(run_id, timeout_s=90)


def quick(system: System, name: str) -> list[str]:
    marks = [f"success-{name}-{number}" for number in range(6)]
    return [system.submit(step("test.talk", mark=mark, end="success"), request_id=mark) for mark in marks]


def held(system: System, mark: str, gate: Path) -> str:
    """A step that a child holds until there is a file."""
    run_id = system.submit(step("test.hold", "s", mark=mark, gate=str(gate)), request_id=mark)
    eventually(lambda: any(one.status == "running" for one in system.view(run_id).steps), what="a step that is held")
    return run_id


def send_copies(system: System, run_id: str, step_id: str) -> None:
    """Of a step's message, between those of others."""
    state = system.installed.store.views.step(RunRef(run_id, "-"), step_id)
    assert state is not None
    copy = Dispatch("step", RunRef(run_id, "-"), 1, step_id, state.index, state.queue, state.limit_ms)
    dispatch.publish(system.installed.app, [copy] * 3)


def meet_a_busy_step(system: System, gate: Path) -> None:
    """Its copies are ignored, in another worker's child."""
    system.start_steps("more", concurrency=1)
    runs = [held(system, "busy", gate)]
    send_copies(system, runs[0], "s")
    runs += quick(system, "busy")
    system.processes.wait_for_line('"claim.refused".*"busy"')
    for run_id in runs[1:]:
        system.wait(run_id)
    gate.touch()
    system.wait(runs[0])


def meet_a_store_that_moved(system: System) -> None:
    """Messages go back to their queue until a supervisor has seen to it; here it is put back by hand."""
    store = system.installed.store
    (done, *_) = runs = quick(system, "before")
    system.wait(done)
    system.processes.freeze("supervise")
    key = store.keys.shard_part(store.keys.shard_of(done), "server")
    ours = store.scripts.ask("GET", key)
    store.scripts.tell("SET", key, "another")
    send_copies(system, done, system.view(done).steps[0].id)
    system.processes.wait_for_line(REJECTED, name="steps")
    system.processes.wait_for_line(REJECTED, name="more")
    store.scripts.tell("SET", key, ours)
    system.processes.thaw("supervise")
    for run_id in (*runs, *quick(system, "after")):
        system.wait(run_id)


def stop_softly(system: System, gate: Path) -> None:
    """The step is handed back, and goes on in another worker."""
    run_id = held(system, "stopped", gate)
    system.processes.stop("steps", "more")
    gate.touch()
    system.start_steps("again", concurrency=1)
    assert system.wait(run_id).status == "succeeded"


def parsed(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_every_line_of_user_code_and_libraries_belongs_to_its_own_run(lines: list[dict[str, Any]]) -> None:
    said = [line for line in lines if line["event"] == "talk" or line["event"].startswith("library of ")]
    assert len(said) >= 2 * QUICK_ROUNDS * len(QUICK)
    for line in said:
        mark = line.get("mark") or line["event"].split()[2]
        assert line["request_id"] == mark
        assert line["job_id"] == f"{line['run_id']}.step.{line['step_id']}"


def test_lines_of_one_run_never_name_another(lines: list[dict[str, Any]]) -> None:
    of_jobs = [line for line in lines if ".step." in str(line.get("job_id")) or ".plan" in str(line.get("job_id"))]
    assert len(of_jobs) > 5 * QUICK_ROUNDS * len(QUICK)
    assert [line for line in of_jobs if not line["job_id"].startswith(f"{line['run_id']}.")] == []


def test_a_line_of_an_attempt_carries_all_ten_fields(lines: list[dict[str, Any]]) -> None:
    starts = [line for line in lines if line["event"] == "job.start"]
    assert {name for line in starts for name in IDENTITY if line[name] is None} == {"session_id"}


def test_every_line_says_which_service_and_process_it_comes_from(lines: list[dict[str, Any]]) -> None:
    assert all({"timestamp", "level", "event", "service", "host", "pid"} <= set(line) for line in lines)


def test_every_end_of_a_task_was_met(lines: list[dict[str, Any]]) -> None:
    """Of those that talk ends in by itself, its own lines tell."""
    assert {"busy"} <= {line["reply"] for line in lines if line["event"] == "claim.refused"}
    assert "worker_stopping" in {line.get("reason") for line in lines if line["event"] == "step.handed_back"}
    assert any(re.search(REJECTED, line["event"]) for line in lines)


def test_before_and_after_a_task_a_child_works_for_nobody(lines: list[dict[str, Any]]) -> None:
    """Each line is in front of a task, or behind one, whatever its end was."""
    between = [line for line in lines if line["event"] == "between tasks"]
    assert len(between) > 2 * QUICK_ROUNDS * len(QUICK)
    assert [line for line in between if set(IDENTITY) & {name for name in line if line[name] is not None}] == []


def test_nothing_between_tasks_carries_a_run(lines: list[dict[str, Any]]) -> None:
    idle = [
        line
        for line in lines
        if line.get("logger", "").startswith(("celery.beat", "celery.apps", "celery.worker.consumer"))
    ]
    assert idle
    assert [line for line in idle if "run_id" in line] == []


def test_no_line_holds_a_secret_or_a_forged_second_line(lines: list[dict[str, Any]]) -> None:
    assert "hunter2" not in json.dumps(lines)
    library = next(line for line in lines if line["event"].startswith("library of "))
    assert library["event"].endswith("second line, token=***")
