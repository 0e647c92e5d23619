"""Workers killed, frozen and woken; messages lost and doubled: a crash costs time, never a second effect."""

import os
import signal
from typing import Any

import pytest

from orchestrator import dispatch
from orchestrator.store.replies import Dispatch
from schemas.ids import RunRef, session_key
from tests.support.system import LEASE_S, SWEEP_S, System, result_of, step
from tests.support.waiting import eventually

# what is promised is half of it: these machines are noisy
RECOVERY_S = 2 * (LEASE_S + 2 * SWEEP_S)


def test_a_killed_worker_with_ten_running_steps(system: System) -> None:
    system.start_steps("first", concurrency=10)
    run_id = system.submit(*(step("test.note", f"s{i}", [], value=str(i), hold_s=600) for i in range(10)))
    eventually(lambda: len(system.effects(run_id=run_id, what="began")) == 10, what="ten steps begun")
    system.start_steps("second", concurrency=4)
    assert not system.effects(run_id=run_id, what="noted")
    system.processes.kill("first")
    view = system.wait(run_id, timeout_s=RECOVERY_S)
    assert view.status == "succeeded"
    assert [one.attempt for one in view.steps] == [2] * 10
    committed = [event.fields["step_id"] for event in system.events(run_id) if event.event == "step.committed"]
    assert sorted(committed) == sorted(f"s{i}" for i in range(10))


def test_recovery_of_a_killed_worker_takes_a_lease_and_two_sweeps(system: System) -> None:
    system.start_steps("first", concurrency=1)
    run_id = system.submit(step("test.note", "s", value="x", hold_s=600))
    began = eventually(lambda: system.effects(run_id=run_id, what="began"))
    system.start_steps("second", concurrency=1)
    system.processes.kill("first")
    again = eventually(lambda: system.effects(run_id=run_id, what="began", attempt=2), timeout_s=RECOVERY_S)
    assert again[0]["fence"] > began[0]["fence"]
    assert system.wait(run_id).status == "succeeded"


def test_a_killed_child_is_noticed_by_its_parent(system: System) -> None:
    """Not after the lease: the parent ends the claim, and the message comes back at once."""
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.note", "s", value="x", hold_s=600))
    first = eventually(lambda: system.effects(run_id=run_id, what="began"))[0]
    os.kill(first["pid"], signal.SIGKILL)
    second = eventually(lambda: system.effects(run_id=run_id, what="began", attempt=2), timeout_s=RECOVERY_S)[0]
    assert second["pid"] != first["pid"]
    view = system.wait(run_id)
    assert view.status == "succeeded"
    ends = [event for event in system.events(run_id) if event.event in ("step.claim_ended", "step.expired")]
    assert [event.event for event in ends] == ["step.claim_ended", "step.expired"]


def test_a_frozen_worker_that_wakes_up_commits_nothing(system: System) -> None:
    system.start_steps("first", concurrency=1)
    run_id = system.submit(step("test.note", "s", value="x", hold_s=600), step("test.echo", "t", value=result_of("s")))
    first = eventually(lambda: system.effects(run_id=run_id, what="began"))[0]
    system.processes.freeze("first")
    system.start_steps("second", concurrency=1)
    eventually(lambda: system.effects(run_id=run_id, what="began", attempt=2), timeout_s=RECOVERY_S)
    view = system.wait(run_id)
    assert view.status == "succeeded"
    system.processes.thaw("first")
    system.processes.wait_for_line("lease.lost|effect.refused|commit.fenced", name="first")
    after = system.view(run_id)
    assert after == view
    commits = [event for event in system.events(run_id) if event.event == "step.committed"]
    assert [int(event.fields["fence"]) for event in commits if event.fields["step_id"] == "s"] > [first["fence"]]
    assert len(commits) == 2


def test_the_same_message_fifty_times(system: System) -> None:
    for name in ("first", "second"):
        system.start_steps(name, concurrency=2)
    run_id = system.submit(step("test.note", "s", value="x", hold_s=0.5), step("test.note", "t", value="y"))
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    ref = RunRef(run_id, session_key(None))
    copies = [Dispatch("step", ref, 1, step_id, i, "mandor.steps", 60_000) for i, step_id in enumerate(("s", "t"))]
    dispatch.publish(system.installed.app, copies * 25)
    assert system.wait(run_id).status == "succeeded"
    eventually(lambda: dispatch.queue_depth(system.installed.app, "mandor.steps") == 0)
    assert [line["value"] for line in system.effects(run_id=run_id, what="noted")] == ["x", "y"]
    assert [one.attempt for one in system.view(run_id).steps] == [1, 1]
    assert_no_errors(system)


@pytest.mark.full
def test_connections_that_are_cut_start_nothing_again(system: System) -> None:
    """A worker that loses the broker gives back what it runs, at once, and goes on running it."""
    for name in ("first", "second"):
        system.start_steps(name, concurrency=2)
    run_id = system.submit(step("test.send", "s", value="x", hold_s=4), step("test.note", "t", value="y"))
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    redis = system.installed.app.backend.client
    for kind in ("normal", "pubsub"):
        redis.client_kill_filter(_type=kind, skipme=True)
    for name in ("first", "second"):
        system.processes.wait_for_line("[Cc]onnection to broker lost", name=name)
    view = system.wait(run_id)
    assert (view.status, [one.attempt for one in view.steps], view.dead_letters) == ("succeeded", [1, 1], ())
    lines = [(line["what"], line["value"]) for line in system.effects(run_id=run_id)]
    assert lines == [("began", "x"), ("noted", "x"), ("began", "y"), ("noted", "y")]


@pytest.mark.full
def test_a_lost_message_is_sent_again(new_system: Any) -> None:
    system = new_system(dispatch_check_s=1)
    system.start_control()
    run_id = system.submit(step("test.note", "s", value="x"))
    redis = system.installed.app.backend.client
    eventually(lambda: redis.delete("mandor.steps"), what="the message in its queue")
    system.start_steps()
    view = system.wait(run_id)
    assert view.status == "succeeded"
    assert [one.attempt for one in view.steps] == [1]
    assert any(event.event == "step.republished" for event in system.events(run_id))


def assert_no_errors(system: System) -> None:
    """Celery's backend reports what it could not do with a chord at level error."""
    wrong = [line for line in system.processes.lines() if '"level": "error"' in line or "Traceback" in line]
    assert not wrong, "\n".join(wrong)
