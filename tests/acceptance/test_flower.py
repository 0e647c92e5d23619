"""Flower on a running system: closed, for reading, and with the runs' tasks in the states they are in."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.flower import password
from orchestrator.local.address import free_port
from schemas.ids import plan_task_id, step_task_id
from tests.support.browser import browser
from tests.support.environment import clean_environment
from tests.support.flower import FLOWER, READY, Flower
from tests.support.processes import Processes
from tests.support.servers import Server, running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server"), server_kind) as started:
        yield started


@pytest.fixture(scope="module")
def system(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running_system(server.url, tmp_path_factory.mktemp("flower")) as started:
        started.start_control()
        started.start_steps()
        yield started


@pytest.fixture(scope="module")
def flower(system: System) -> Flower:
    return started(system, "flower", free_port())


def started(system: System, name: str, port: int) -> Flower:
    system.processes.python(name, *FLOWER, ready=READY, env={"MANDOR_FLOWER_PORT": str(port)})
    return Flower(port, password(system.installed.settings.home).text)


@pytest.mark.parametrize("path", ["/", "/tasks", "/workers", "/broker", "/metrics", "/api/tasks", "/api/workers"])
@pytest.mark.parametrize("credentials", ["", "mandor:", "mandor:wrong", ":"])
def test_nobody_comes_in_without_the_password(flower: Flower, path: str, credentials: str) -> None:
    assert flower.ask(path, credentials=credentials)[0] == 401
    assert flower.ask(path)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/task/revoke/x",
        "/api/task/send-task/workers.step",
        "/api/task/async-apply/workers.step",
        "/api/worker/shutdown/steps@x",
        "/api/worker/pool/grow/steps@x",
    ],
)
def test_it_changes_nothing(flower: Flower, path: str) -> None:
    assert flower.ask(path, method="POST", credentials="")[0] == 401
    assert flower.ask(path, method="POST")[0] == 403


def test_tasks_are_in_the_states_that_their_steps_are_in(system: System, flower: Flower) -> None:
    run_id = system.submit(
        step("test.echo", "good", [], value="secret-value"),
        step("test.flaky", "flaky", ["good"], failures=1),
    )
    broken = system.submit(step("test.flaky", "bad", [], failures=0, for_good=True))
    retried = step_task_id(run_id, "flaky")
    eventually(lambda: flower.state(retried) == "RETRY")
    system.wait(run_id)
    system.wait(broken)
    eventually(lambda: flower.state(retried) == "SUCCESS")
    eventually(lambda: flower.state(step_task_id(broken, "bad")) == "FAILURE")
    tasks = flower.tasks()
    assert {tasks[step_task_id(run_id, "good")]["state"], tasks[plan_task_id(run_id)]["state"]} == {"SUCCESS"}
    assert f"'run_id': '{run_id}'" in tasks[retried]["kwargs"]
    assert "'step_id': 'flaky'" in tasks[retried]["kwargs"]
    assert tasks[retried]["retried"]
    assert "secret-value" not in json.dumps(tasks)
    assert not [task for task in tasks.values() if (task["name"] or "").startswith("orchestrator.supervise")]


def test_an_attempt_killed_at_its_limit_looks_retried_until_there_is_none_left(system: System, flower: Flower) -> None:
    run_id = system.submit(step("test.sleep_for_ever", "hang", [], value="x"))
    task_id = step_task_id(run_id, "hang")
    eventually(lambda: flower.state(task_id) == "RETRY", timeout_s=60)
    eventually(lambda: flower.state(task_id) == "FAILURE", timeout_s=60)
    assert system.wait(run_id).status == "failed"


def test_a_duplicate_is_no_failure(system: System, flower: Flower) -> None:
    run_id = system.submit(step("test.echo", "once", [], value="x"))
    system.wait(run_id)
    task_id = step_task_id(run_id, "once")
    eventually(lambda: flower.state(task_id) == "SUCCESS")
    fields = {"run_id": run_id, "session": "-", "generation": 1, "step_id": "once"}
    received = flower.tasks()[task_id]["received"]
    for _ in range(3):
        system.installed.app.send_task(
            "workers.step", kwargs=fields, task_id=task_id, queue="mandor.steps", ignore_result=True
        )
    eventually(lambda: flower.tasks()[task_id]["received"] > received)
    assert flower.state(task_id) == "SUCCESS"


def hears(system: System, flower: Flower) -> bool:
    """Whether a new run's task gets there."""
    run_id = system.submit(step("test.echo", "heard", value="x"))
    assert system.wait(run_id).status == "succeeded"
    until = time.monotonic() + 2
    while (found := flower.state(step_task_id(run_id, "heard"))) != "SUCCESS" and time.monotonic() < until:
        time.sleep(0.1)
    return found == "SUCCESS"


def test_it_is_killed_and_cut_off_under_load_and_no_run_is_the_worse_for_it(system: System, flower: Flower) -> None:
    """What it did not hear it does not know; the run's own state knows all of it."""
    port = free_port()
    started(system, "mortal", port)
    run_id = system.submit(
        *(step("test.echo", f"s{i}", [f"s{i - 1}"] if i else [], value=str(i)) for i in range(40)),
    )
    eventually(lambda: sum(one.status == "completed" for one in system.view(run_id).steps) > 5)
    system.processes.kill("mortal")
    again = started(system, "mortal again", port)
    system.installed.app.backend.client.client_kill_filter(_type="pubsub", skipme=True)
    view = system.wait(run_id, timeout_s=60)
    assert (view.status, {(one.status, one.attempt) for one in view.steps}) == ("succeeded", {("completed", 1)})
    for one in (again, flower):
        eventually(lambda one=one: hears(system, one), timeout_s=60, what="a task of a later run")  # type: ignore[misc]
    assert again.state(step_task_id(run_id, "s0")) is None


@pytest.mark.full
def test_a_person_finds_a_run_in_the_browser(system: System, flower: Flower, tmp_path: Path) -> None:
    run_id = system.submit(
        step("test.echo", "first", [], value="a"), step("test.flaky", "last", ["first"], failures=0, for_good=True)
    )
    system.wait(run_id)
    eventually(lambda: flower.state(step_task_id(run_id, "last")) == "FAILURE")
    with browser(tmp_path / "profile") as window:
        window.open(flower.url.replace("//", f"//{flower.credentials}@"))
        assert "Flower" in window.title
        eventually(lambda: "steps@" in window.text("body"), what="the workers")
        window.open(f"{flower.url}/tasks?search={run_id}")
        window.run(f"$('#tasks-table').DataTable().search('{run_id}').draw()")
        eventually(lambda: "FAILURE" in window.text("#tasks-table"), what="the run's tasks")
        rows = [line for line in window.text("#tasks-table tbody").splitlines() if "workers.step" in line]
        window.photograph(tmp_path / "tasks.png")
        assert len(rows) == 2
        assert {("first" in row, "SUCCESS" in row, "FAILURE" in row) for row in rows} == {
            (True, True, False),
            (False, False, True),
        }
        window.open(f"{flower.url}/task/{step_task_id(run_id, 'last')}")
        eventually(lambda: "FAILURE" in window.text("body"), what="the task")
        assert "Revoke" not in window.text("body")
        window.photograph(tmp_path / "task.png")


def test_it_does_not_start_open(tmp_path: Path) -> None:
    home = tmp_path / "home"
    env = clean_environment(home=home, redis_url="redis://127.0.0.1:1/0")
    with Processes(env, tmp_path) as processes:
        child = processes.python("flower", *FLOWER, env={"MANDOR_FLOWER_ADDRESS": "0.0.0.0"})
        assert child.wait(60) == 2
        assert any("MANDOR_FLOWER_PUBLIC" in line for line in processes.lines())
        assert not home.exists()


def test_no_variable_or_file_of_its_own_opens_it_and_it_waits_for_its_server(tmp_path: Path) -> None:
    (tmp_path / "flowerconfig.py").write_text("basic_auth = []\nread_only = False\naddress = '0.0.0.0'\n")
    port = free_port()
    env = clean_environment(home=tmp_path / "home", redis_url="redis://127.0.0.1:1/0", flower_port=port)
    own = {"FLOWER_BASIC_AUTH": "a:b", "FLOWER_UNAUTHENTICATED_API": "true", "FLOWER_ADDRESS": "0.0.0.0"}
    with Processes({**env, **own}, tmp_path) as processes:
        processes.python("flower", *FLOWER, ready=READY)
        processes.wait_for_line("FLOWER_UNAUTHENTICATED_API")
        flower = Flower(port, password(tmp_path / "home").text)
        assert any(flower.credentials.partition(":")[2] in line for line in processes.lines())
        assert flower.ask("/api/tasks", credentials="a:b")[0] == 401
        assert flower.ask("/api/tasks")[0] == 200
        processes.wait_for_line("Failed to capture events")
        processes.child("flower").signal(signal.SIGTERM)
        assert processes.child("flower").wait(20) == 0
