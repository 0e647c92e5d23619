"""Attempts that do not end by themselves, children and workers that end too early: each run ends, and says why."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.ids import step_task_id
from tests.support.system import LEASE_S, System, step
from tests.support.waiting import eventually

LIMIT_S, GRACE_S = 1.0, 1.0  # test.sleep_for_ever's, and the system's
ELSEWHERE_S = 2 * 5.0  # a step that listens runs elsewhere in seconds; what is promised is half of it
SOFT_STOP_S = 12.0  # 16 s is what it has


@pytest.fixture
def planning(new_system: Callable[..., System]) -> System:
    """A system whose planner calls end after a second."""
    actions = "tests.support.business,tests.support.hanging"
    system = new_system(actions=actions, planner_timeout_s=1, planner_attempts=2, backoff_s=0.2)
    system.start_control()
    system.start_steps(concurrency=1)
    return system


def moves(system: System, run_id: str) -> list[str]:
    """The names of the run's transitions, in order."""
    return [event.event for event in system.events(run_id)]


def assert_quiet(system: System) -> None:
    """Nobody printed a traceback, and Celery's result store had nothing to complain of."""
    wrong = [line for line in system.processes.lines() if "Traceback" in line or "celery.backends" in line]
    assert not wrong, "\n".join(wrong)


def test_a_step_that_sleeps_for_ever_is_killed_tried_again_and_ends_its_run(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.sleep_for_ever", value="x"))
    view = system.wait(run_id, timeout_s=60)
    assert view.status == "failed"
    (slept,) = view.steps
    assert slept.attempt == 2
    assert slept.error is not None
    assert slept.error.kind == "step_timeout"
    first, second = system.effects(run_id=run_id, what="began")
    assert first["pid"] != second["pid"]
    assert LIMIT_S < second["at"] - first["at"] < LIMIT_S + GRACE_S + LEASE_S + 10
    eventually(lambda: system.installed.ledger.run(run_id).status == "failed")  # type: ignore[union-attr]
    assert_quiet(system)


def test_a_worker_that_killed_a_step_takes_the_next_one(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.sleep_for_ever", value="x"))
    eventually(lambda: system.effects(run_id=run_id, what="began", attempt=2), timeout_s=60)
    assert system.wait(system.submit(step("test.echo", value="y")), timeout_s=60).status == "succeeded"


def test_a_child_that_cannot_even_kill_itself_is_killed_by_its_parent(system: System) -> None:
    """Frozen, or deep in a library that holds the interpreter: Celery's own time limit is the outer net."""
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.sleep_for_ever", value="x"))
    first = eventually(lambda: system.effects(run_id=run_id, what="began"))[0]
    os.kill(first["pid"], signal.SIGSTOP)
    second = eventually(lambda: system.effects(run_id=run_id, what="began", attempt=2), timeout_s=60)[0]
    assert second["pid"] != first["pid"]
    assert not Path(f"/proc/{first['pid']}").exists() or "T (stopped)" not in _status(first["pid"])
    assert system.wait(run_id, timeout_s=60).status == "failed"


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()


@pytest.mark.full
def test_a_planner_that_hangs_is_killed_and_asked_again(planning: System) -> None:
    run_id = planning.send({"planner": "test.hang_once"})
    view = planning.wait(run_id, timeout_s=60)
    assert view.status == "succeeded"
    assert moves(planning, run_id).count("plan.claimed") == 2


@pytest.mark.full
def test_a_planner_that_always_hangs_ends_its_run(planning: System) -> None:
    run_id = planning.send({"planner": "test.hang"})
    assert planning.wait(run_id, timeout_s=60).status == "failed"
    planner = planning.effect_log.with_name(f"planner-{run_id}")
    assert len(planner.read_text().split()) == 2


@pytest.mark.full
def test_a_worker_that_is_asked_to_stop_hands_its_step_back_uncounted(system: System) -> None:
    system.start_steps("first", concurrency=1)
    run_id = system.submit(step("test.note", "s", value="x", hold_s=6))
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    system.start_steps("second", concurrency=1)
    asked_at = time.time()
    system.processes.child("first").signal(signal.SIGTERM)
    eventually(lambda: len(system.effects(run_id=run_id, what="began")) == 2, timeout_s=30)
    assert system.effects(run_id=run_id, what="began")[1]["at"] - asked_at < ELSEWHERE_S
    eventually(lambda: system.processes.child("first").poll() is not None, what="the end of a worker that is idle")
    assert time.time() - asked_at < SOFT_STOP_S, "it ends with its last step, not with its time"
    view = system.wait(run_id, timeout_s=60)
    assert view.status == "succeeded"
    assert view.steps[0].attempt == 1
    assert "step.handed_back" in moves(system, run_id)
    assert [line["value"] for line in system.effects(run_id=run_id, what="noted")] == ["x"]


def test_revoking_a_step_in_celery_changes_nothing(system: System) -> None:
    """Somebody looks at Flower and clicks: the id is the same for every copy, so the step could never run again."""
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.note", "a", value="x", hold_s=1), step("test.echo", "b", value="y"))
    for step_id in ("a", "b"):
        system.installed.app.control.revoke(step_task_id(run_id, step_id))
    system.processes.wait_for_line(f"flagged as revoked.*{run_id}", name="steps")
    assert system.wait(run_id, timeout_s=60).status == "succeeded"
    assert_quiet(system)


def test_a_step_that_was_terminated_in_celery_is_tried_again(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.note", "a", value="x", hold_s=2))
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    system.installed.app.control.revoke(step_task_id(run_id, "a"), terminate=True, signal="SIGKILL")
    view = system.wait(run_id, timeout_s=60)
    assert (view.status, view.steps[0].attempt) == ("succeeded", 2)


@pytest.mark.full
def test_a_failing_run_is_settled_at_once_not_when_a_sweep_comes(new_system: Any) -> None:
    system = new_system(lease_s=6, sweep_s=1.4)
    system.processes.worker("control", queues="control", concurrency=1)
    system.processes.worker("planner", queues="plan", concurrency=1)
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.flaky", failures=9, for_good=True))
    began = time.monotonic()
    view = system.wait(run_id)
    assert view.status == "failed"
    assert time.monotonic() - began < 10
    assert_quiet(system)
