"""When a worker is said to stand still; the clock is in the test's hand."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.healing.progress import LATE_KILL_S, Pool, Progress

WEDGED = 60.0
BUSY = Pool((11, 12), {"t": 30.0}, frozenset({"w"}))


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    made = Progress(WEDGED, 0, clock)
    made.connect()
    return made


def failing(progress: Progress) -> dict[str, str]:
    return {found.check: found.fault.text for found in progress.look() if found.fault}


def test_a_loop_that_stands_still_and_turns_again(progress: Progress, clock: Clock) -> None:
    clock.now += WEDGED
    assert failing(progress) == {}
    clock.now += 1
    assert failing(progress) == {"loop": "the event loop has not turned for 61 s"}
    progress.tick(Pool((11,)))
    assert failing(progress) == {}


def test_a_broker_that_is_away_is_no_fault_of_the_loop(progress: Progress, clock: Clock) -> None:
    progress.disconnect()
    clock.now += 10 * WEDGED
    assert failing(progress) == {}
    progress.connect()
    assert failing(progress) == {}


def test_a_loop_that_waits_for_a_silent_broker_has_time_to_come_back(progress: Progress, clock: Clock) -> None:
    progress.tick(BUSY)
    for _ in range(20):  # nobody has told the loop, which hangs in a call
        clock.now += WEDGED / 2
        progress.wait()
        assert failing(progress) == {}
    clock.now += WEDGED
    assert failing(progress) == {}
    clock.now += 1
    assert failing(progress).keys() == {"loop", "pool"}


def ticks(progress: Progress, clock: Clock, pool: Pool, seconds: float) -> None:
    for _ in range(round(seconds)):
        progress.tick(pool)
        clock.now += 1
    progress.tick(pool)


def test_a_task_beyond_its_limit_that_nobody_kills(progress: Progress, clock: Clock) -> None:
    ticks(progress, clock, Pool((11,), {"t": 30.0}), 30 + LATE_KILL_S)
    assert failing(progress) == {}
    ticks(progress, clock, Pool((11,), {"t": 30.0}), 1)
    assert failing(progress) == {"pool": "task t runs for 41 s, beyond its limit, and nothing ends it"}
    progress.tick(Pool((11,)))
    assert failing(progress) == {}


def test_a_long_task_within_its_limit_is_progress(progress: Progress, clock: Clock) -> None:
    ticks(progress, clock, Pool((11,), {"t": 3600.0}), 600)
    assert failing(progress) == {}


def test_a_message_that_waits_while_a_child_is_idle(progress: Progress, clock: Clock) -> None:
    ticks(progress, clock, BUSY, WEDGED - 20)
    assert failing(progress) == {}
    progress.tick(Pool((11, 12), {}, frozenset({"w"})))
    clock.now += 21
    progress.tick(Pool((11, 12), {}, frozenset({"w"})))
    assert failing(progress) == {"pool": "task w waits for 61 s while a child is idle"}


def test_a_message_that_waits_for_busy_children_is_a_backlog(progress: Progress, clock: Clock) -> None:
    ticks(progress, clock, Pool((11,), {"t": 3600.0}, frozenset({"w"})), 10 * WEDGED)
    assert failing(progress) == {}


def test_a_pool_without_children(progress: Progress, clock: Clock) -> None:
    ticks(progress, clock, Pool(), WEDGED + 1)
    assert failing(progress) == {"pool": "there has been no child for 61 s"}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell")
def test_a_process_that_grows_beyond_the_limit_is_named() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "x = b'x' * 80_000_000; print(flush=True); input()"], stdin=-1, stdout=-1
    )
    assert child.stdout is not None
    child.stdout.readline()
    progress = Progress(WEDGED, 60)
    progress.tick(Pool((child.pid,)))
    try:
        assert progress.memory()[child.pid] > 60 * 2**20
        ours = progress.memory()[os.getpid()] > progress.memory()[child.pid]
        assert failing(progress)["memory"].startswith(f"process {os.getpid() if ours else child.pid} has ")
    finally:
        child.communicate(b"\n")
    assert failing(Progress(WEDGED, 1 << 20)) == {}
