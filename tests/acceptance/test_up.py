"""`mandor up`: started, used, stopped and mistreated, at a terminal and without one."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from orchestrator.local import procfile
from tests.support.business import effects
from tests.support.environment import clean_environment
from tests.support.servers import Server
from tests.support.system import plan_text, step
from tests.support.up import Up, processes_in, running_up
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300)
READY_S = 120
HASTE = {"lease_s": 3, "sweep_s": 0.5, "dispatch_check_s": 1}
NAMES = {"beat", "supervise", "control", "planner", "steps", "deliver", "exporter", "flower"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory, in whose home nothing lives on."""
    folder = tmp_path / "work"
    folder.mkdir()
    yield folder
    assert processes_in(folder / ".mandor") == {}


def environment(folder: Path, **settings: object) -> dict[str, str]:
    env = clean_environment(actions="tests.support.business", **HASTE, **settings)
    return {**env, "EFFECT_LOG": str(folder / "effects.log"), "PYTHONWARNINGS": "default"}


def submit(up: Up, *steps: dict[str, object]) -> str:
    return str(up.answer("run", "submit", "--plan", "-", stdin=plan_text(*steps))["run_id"])


def held_run(up: Up) -> str:
    """A run whose step has begun, and will not end by itself."""
    run_id = submit(up, step("test.note", value="x", hold_s=600))
    eventually(lambda: effects(up.folder / "effects.log"), timeout_s=30)
    return run_id


def wait_for_success(up: Up, run_id: str) -> None:
    eventually(lambda: up.status(run_id) == "succeeded", timeout_s=90, what=f"success of {run_id}")


def is_well(up: Up, role: str) -> bool:
    return up.command("health", "--role", role).stdout == "ok\n"


def test_a_terminal_from_start_to_ctrl_c(folder: Path) -> None:
    env = environment(folder)
    with running_up(folder, env, terminal=True) as up:
        up.wait_ready()
        assert set(re.search(r"ready after [\d.]+ s: (.*)", up.text)[1].split(", ")) == NAMES  # type: ignore[index]
        assert "\x1b[1mmandor" in up.text
        assert up.text.count("password ") == 1
        command = next(line.strip() for line in up.said() if " run submit " in line)
        tried = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, check=True)
        assert "succeeded" in tried.stdout
        run_id = tried.stdout.split()[0]

        for role in ("steps", "exporter"):
            eventually(partial(is_well, up, role), timeout_s=60, what=f"health of {role}")

        second = up.command("up")
        assert second.returncode == 1
        assert f"as process {up.pid}" in second.stderr
        assert "MANDOR_HOME" in second.stderr

        up.press_ctrl_c()
        assert up.wait() == 0, up.text
        order = [line.removeprefix("stopping ") for line in up.said() if line.startswith("stopping ")]
        assert order == ["control", "beat", "planner, steps, supervise, deliver", "exporter, flower", "the server"]
        assert "Traceback" not in up.text
        assert processes_in(folder / ".mandor") == {}
    with running_up(folder, env) as again:
        again.wait_ready()
        assert again.status(run_id) == "succeeded"
        assert "password as first shown" in again.text
        again.signal(signal.SIGTERM)
        assert again.wait() == 0
        assert "\x1b" not in again.text
        assert [line for line in again.said() if line.startswith("stopping ")][-1] == "stopping the server"


@pytest.mark.full
def test_two_homes_do_not_meet(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with running_up(one, environment(tmp_path), "--json") as first:
        first.wait_for('"event": "ready"')
        with running_up(two, environment(tmp_path), "--json") as second:
            second.wait_for('"event": "ready"')
            facts = [
                next(fact for line in up.text.splitlines() if (fact := json.loads(line)).get("event") == "ready")
                for up in (first, second)
            ]
            assert facts[0]["flower"] != facts[1]["flower"]
            assert facts[0]["home"] == str(one / ".mandor")
            runs = [submit(up, step("test.echo", value=up.folder.name)) for up in (first, second)]
            for up, run_id, other in ((first, runs[0], runs[1]), (second, runs[1], runs[0])):
                wait_for_success(up, run_id)
                assert up.answer("run", "show", other)["error"]["kind"] == "not_found"
            assert first.answer("run", "result", runs[0])["results"]["s0"] == {"value": "one"}
    assert processes_in(one / ".mandor") == processes_in(two / ".mandor") == {}


@pytest.mark.full
def test_a_second_ctrl_c_hurries_and_the_next_start_finishes_the_work(folder: Path) -> None:
    env = environment(folder)
    with running_up(folder, env, terminal=True) as up:
        up.wait_ready()
        run_id = submit(up, step("test.note", value="x", hold_s=600, deaf=True))
        eventually(lambda: effects(folder / "effects.log"), timeout_s=30)
        up.press_ctrl_c()
        up.wait_for(r"stopping planner, steps, supervise")
        up.press_ctrl_c()
        assert up.wait(15) == 130, up.text
        assert re.search(r"ending .*steps.* at once", up.text)
        assert processes_in(folder / ".mandor") == {}
    with running_up(folder, env) as again:
        again.wait_ready()
        wait_for_success(again, run_id)


@pytest.mark.soak
@pytest.mark.full
def test_a_killed_mandor_up_leaves_what_the_next_one_adopts_or_clears(folder: Path) -> None:
    env, home = environment(folder), folder / ".mandor"
    with running_up(folder, env) as up:
        up.wait_ready()
        server = re.search(r"server started: process (\d+)", up.text)
        assert server
        run_id = held_run(up)
        before = processes_in(home)
        up.signal(signal.SIGKILL)
        up.wait()
        with running_up(folder, env) as again:
            again.wait_ready()
            assert f"server adopted: process {server[1]}" in again.text
            assert "the last start are still ending" in again.text
            assert set(processes_in(home)) & set(before) == {int(server[1])}
            wait_for_success(again, run_id)


@pytest.mark.full
def test_what_dies_is_started_again(folder: Path) -> None:
    with running_up(folder, environment(folder)) as up:
        up.wait_ready()
        run_id = held_run(up)
        steps = [pid for pid, line in processes_in(folder / ".mandor").items() if " -Q steps " in line]
        os.kill(os.getpgid(steps[0]), signal.SIGKILL)
        up.wait_for(r"steps was killed \(SIGKILL\); it starts again in 1 s")
        up.wait_for(r"steps starts again")
        wait_for_success(up, run_id)

        server = re.search(r"server started: process (\d+)", up.text)
        assert server
        os.kill(int(server[1]), signal.SIGKILL)
        up.wait_for(r"the server has ended; starting it again")
        up.wait_for(r"the server has its state back")
        assert up.status(run_id) == "succeeded"
        again = submit(up, step("test.echo", value="after"))
        wait_for_success(up, again)
        assert [line for line in up.text.splitlines() if not re.match(r"\w+ +\| ", line)] == []


def test_who_refuses_to_start_ends_them_all_and_says_why(folder: Path) -> None:
    with running_up(folder, environment(folder) | {"MANDOR_ACTIONS": "no_such_module"}) as up:
        assert up.wait(READY_S) == 1
        assert "no_such_module" in up.text
        refused = re.search(r"error: (\w+) refuses to start", up.text)
        assert refused
        assert refused[1] in {command.name for command in procfile.commands({})}  # whichever looked first
        assert "Traceback" not in up.text


@pytest.mark.full
def test_a_named_server_is_used_as_it_is_and_never_set_up_by_the_way(
    folder: Path, redis_server: Server, namespace: str
) -> None:
    env = environment(folder, redis_url=redis_server.url, namespace=namespace)
    with running_up(folder, env) as up:
        assert up.wait(READY_S) == 3
        assert "mandor ledger upgrade" in up.text
        assert up.command("ledger", "upgrade").returncode == 0
    with running_up(folder, env) as up:
        up.wait_ready()
        run_id = submit(up, step("test.echo", value="there"))
        wait_for_success(up, run_id)
        up.signal(signal.SIGTERM)
        assert up.wait() == 0
    assert not (folder / ".mandor" / "server").exists()
    assert redis_server.client.ping()


def test_a_port_that_was_named_and_is_taken_is_refused(folder: Path, redis_server: Server) -> None:
    taken = redis_server.url.rpartition(":")[2].partition("/")[0]
    with running_up(folder, environment(folder, flower_port=taken)) as up:
        assert up.wait(READY_S) == 2
        assert f"MANDOR_FLOWER_PORT: port {taken} is taken" in up.text
