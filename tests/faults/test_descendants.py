"""A child is killed in a step that has started processes of its own: they end before anybody tries the step again."""

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt what others leave")

KILLS = 12
AGAIN_S = 2.0  # from a child's death to the next attempt's start, nineteen times in twenty
LAST = int(KILLS * 0.95)


@pytest.fixture(scope="module")
def running(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("descendants")
    actions = "tests.support.business,tests.support.brood"
    with (
        running_server(folder / "server", server_kind) as server,
        running_system(server.url, folder, actions=actions) as made,
    ):
        made.start_control()
        made.start_steps(concurrency=3)
        yield made


@pytest.fixture
def system(running: System) -> Iterator[System]:
    with running.installed.in_force():
        yield running


def test_nothing_that_a_killed_child_has_started_sees_the_next_attempt(system: System) -> None:
    steps = [step("test.brood", f"s{i}", [], value="x") for i in range(KILLS)]
    run_id = system.submit(*steps, policy={"max_parallel": 2})
    killed: dict[str, float] = {}
    while len(killed) < KILLS:
        kill_next(system, run_id, killed)
    view = system.wait(run_id, timeout_s=60)
    assert (view.status, [one.attempt for one in view.steps]) == ("succeeded", [2] * KILLS)
    again = system.effects(run_id=run_id, what="began", attempt=2)
    assert {line["step_id"]: line["value"] for line in again} == {one.id: "" for one in view.steps}
    waits = sorted(line["at"] - killed[line["step_id"]] for line in again)
    assert waits[LAST] < 2 * AGAIN_S, waits
    assert {event.event for event in system.events(run_id)} >= {"step.claim_ended", "step.expired"}


def kill_next(system: System, run_id: str, killed: dict[str, float]) -> None:
    """Kill the child that holds a step, once all that the step starts is there."""
    line = eventually(
        lambda: [one for one in system.effects(run_id=run_id, what="hatched") if one["step_id"] not in killed]
    )[0]
    killed[line["step_id"]] = time.time()
    os.kill(line["pid"], signal.SIGKILL)


@pytest.mark.full
def test_nor_does_anything_of_a_child_that_outlasts_its_time(system: System) -> None:
    """It ends itself; its parent ends what is left of it."""
    run_id = system.submit(step("test.brood", "s", value="x"), policy={"limits": {"timeout_s": 3}})
    view = system.wait(run_id, timeout_s=60)
    assert (view.status, view.steps[0].attempt) == ("succeeded", 2)
    assert system.effects(run_id=run_id, what="hatched")
    assert [line["value"] for line in system.effects(run_id=run_id, what="began")] == ["", ""]
