"""Beat gone, killed, doubled: what waits for a supervisor waits no longer than the bound once there is a beat again."""

import random
import time
from typing import Any

import pytest

from tests.support.system import LEASE_S, SWEEP_S, System, step
from tests.support.waiting import eventually

GRACE_S = 1.0  # the system's, to stop what runs
# The first pass lets lapsed leases rest for one lease, in which holders that live renew; then a lease and two sweeps.
# What is promised is half of it: these machines are noisy.
BOUND_S = 2 * (2 * LEASE_S + 2 * SWEEP_S + GRACE_S)
AWAY_S = 60.0
PAUSE_S = 0.5


def test_two_beats_are_harmless(new_system: Any) -> None:
    system = new_system()
    system.start_control()
    system.processes.beat("second-beat")
    system.processes.worker("second-supervise", queues="supervise", concurrency=2)
    system.start_steps(concurrency=2)
    runs = [system.submit(*(step("test.note", f"s{i}", value=str(i)) for i in range(4))) for _ in range(5)]
    for run_id in runs:
        view = system.wait(run_id)
        assert (view.status, [one.attempt for one in view.steps]) == ("succeeded", [1] * 4)
        assert len(system.effects(run_id=run_id, what="noted")) == 4
        assert [event.event for event in system.events(run_id)].count("run.succeeded") == 1


@pytest.mark.full
def test_with_a_beat_that_is_alive_and_sends_nothing_nothing_is_lost(new_system: Any) -> None:
    """Nobody looks for a while that is long against every lease; healthy steps go on, the dead ones afterwards."""
    system = new_system()
    system.start_control()
    system.start_steps("first", concurrency=1)
    lost = system.submit(step("test.note", "a", value="x", hold_s=600))
    eventually(lambda: system.effects(run_id=lost, what="began"))
    system.processes.freeze("beat")
    system.processes.kill("first")
    system.start_steps("second", concurrency=1)
    healthy = system.submit(step("test.note", "a", value="x"), step("test.note", "b", value="y"))
    assert system.wait(healthy).status == "succeeded"
    lapsed = system.view(lost).steps[0]
    eventually(lambda: system.view(lost).steps[0].status == "STALE", what="a lease that nobody ends")
    assert lapsed.attempt == 1
    system.processes.thaw("beat")
    view = system.wait(lost)
    assert (view.status, view.steps[0].attempt) == ("succeeded", 2)


@pytest.mark.full
def test_a_beat_killed_at_random(new_system: Any) -> None:
    system = new_system()
    system.start_control()
    system.start_steps(concurrency=2)
    drawn = random.Random(20260117)
    runs = [system.submit(step("test.flaky", "a", failures=1), step("test.note", "b", value="x")) for _ in range(4)]
    name = "beat"
    for number in range(4):
        eventually_after(system, drawn.uniform(0, 2 * SWEEP_S))
        system.processes.kill(name)
        name = f"beat-{number}"
        system.processes.beat(name)
    assert ends_of(system, runs) == ["succeeded"] * len(runs)
    assert [len(system.effects(run_id=run_id, what="noted")) for run_id in runs] == [1] * len(runs)


def ends_of(system: System, runs: list[str]) -> list[str]:
    """How these runs ended, all of them within the bound from now on."""
    until = time.monotonic() + BOUND_S
    return [system.wait(run_id, timeout_s=until - time.monotonic()).status for run_id in runs]


def eventually_after(system: System, seconds: float) -> None:
    """Return when the store's clock is so much later."""
    store = system.installed.store
    then = store.now_ms() + seconds * 1000
    eventually(lambda: store.now_ms() >= then)


@pytest.mark.soak
@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_minute_without_a_beat_under_load(new_system: Any) -> None:
    """Healthy runs do not need one. A lost worker, a step in back-off and a deadline do: seen to at its return."""
    system = new_system(timeout_s=300)
    system.start_control()
    system.start_steps("first", concurrency=1)
    lost = system.submit(step("test.order", "a", value="x", hold_s=600))
    eventually(lambda: system.effects(run_id=lost, what="began"))
    system.processes.kill("beat")
    system.processes.kill("first")
    system.start_steps("second", concurrency=3)
    overdue = system.submit(
        step("test.order", "a", value="x"), step("test.order", "b", value="y", hold_s=600), deadline_s=5
    )
    healthy, again = load(system)
    assert [system.wait(run_id).status for run_id in healthy] == ["succeeded"] * len(healthy)
    assert {system.view(run_id).status for run_id in (lost, overdue, *again)} == {"running"}
    assert system.view(lost).steps[0].status == "STALE"
    system.processes.beat("new-beat")
    assert ends_of(system, [lost, *again]) == ["succeeded"] * (1 + len(again))
    assert ends_of(system, [overdue]) == ["compensated"]
    assert system.view(lost).steps[0].attempt == 2
    assert {one.attempt for run_id in healthy for one in system.view(run_id).steps} == {1}
    for run_id in (lost, *healthy, *again):
        assert len(system.effects(run_id=run_id, what="noted")) == 1


def load(system: System) -> tuple[list[str], list[str]]:
    """A minute of runs, of which every tenth has a step that fails once. Answers those that need no beat, and those."""
    runs: list[str] = []
    until = time.monotonic() + AWAY_S
    while time.monotonic() < until:
        fails = int(len(runs) % 10 == 0)
        runs.append(system.submit(step("test.flaky", "a", failures=fails), step("test.note", "b", value="x")))
        time.sleep(PAUSE_S)
    return [run_id for i, run_id in enumerate(runs) if i % 10], runs[::10]
