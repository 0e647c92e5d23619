"""A child is killed in a step that has started processes of its own: they end before anybody tries the step again."""

import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from tests.support.system import System, step
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt what others leave")

KILLS = 12
AGAIN_S = 2.0  # from a child's death to the next attempt's start, nineteen times in twenty
LAST = int(KILLS * 0.95)


@pytest.fixture
def system(new_system: Callable[..., System]) -> System:
    made = new_system(actions="tests.support.business,tests.support.brood")
    made.start_control()
    made.start_steps(concurrency=3)
    return made


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
