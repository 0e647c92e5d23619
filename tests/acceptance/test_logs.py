"""One child of one worker runs everything, in every order, with every end: each line belongs to the run it is about."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from orchestrator.telemetry.logs import IDENTITY
from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.talkative import End

pytestmark = pytest.mark.timeout(240)
ENDS = get_args(End)
QUICK = ("success", "failure", "retry", "snooze")
ROUNDS = 4
QUICK_ROUNDS = 25


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
        system.processes.stop("steps")
        yield parsed(system.processes.lines())


def work(system: System) -> None:
    marks = [f"{end}-{number}" for number in range(QUICK_ROUNDS) for end in (ENDS if number < ROUNDS else QUICK)]
    runs = [system.submit(step("test.talk", mark=mark, end=mark.split("-")[0]), request_id=mark) for mark in marks]
    for run_id in runs:
        system.wait(run_id, timeout_s=90)


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
