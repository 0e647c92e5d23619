"""Poison: what stops no worker, starts nothing again, and is read by a person in the end."""

import json
import os
import signal
from typing import Any
from uuid import uuid4

import pytest

from orchestrator import dispatch
from tests.support.held import GIVEN_UP
from tests.support.poison import envelope, garbage, step_body, stranger_of, strangers
from tests.support.system import LEASE_S, SWEEP_S, System, step
from tests.support.waiting import eventually

# of an embedded server: `control` takes from Celery's own queue, too
FED = {"mandor.steps", "mandor.control", "mandor.plan", "mandor.supervise", "celery"}
GARBAGE = dict(garbage("mandor.steps"))
STRANGERS = dict(strangers("mandor.steps"))
# long enough for every lease and every pass to have shown what a reconnect would have done
SETTLED_S = 2 * (LEASE_S + 2 * SWEEP_S)
# it is read as it comes, and no sweep has a part in it
LETTER_S = 2 * (2 * SWEEP_S)


def lay(system: System, queue: str, *entries: bytes) -> None:
    """Put entries into a queue, behind the back of everything that would check them."""
    for entry in entries:
        system.installed.app.backend.client.lpush(queue, entry)


def drained(system: System, *queues: str) -> None:
    app = system.installed.app
    eventually(lambda: not any(dispatch.queue_depth(app, queue) for queue in queues), what=f"empty {queues}")


def predecessors_done(system: System) -> None:
    """Steps that earlier tests left behind lie before everything else, and their worker takes one after the other."""
    worker = system.installed.app.control.inspect(pattern="steps@*", matcher="glob", limit=1)

    def idle() -> bool:
        depth = dispatch.queue_depth(system.installed.app, "mandor.steps")
        return depth == 0 and not any((worker.active() or {"steps": ["no answer"]}).values())

    eventually(idle, timeout_s=60, what="an idle worker")


def letters(system: System) -> list[Any]:
    return [letter for letter in system.installed.ledger.letters(1000) if letter.kind == "message"]


def ids(system: System) -> set[str]:
    return {letter.id for letter in letters(system)}


@pytest.mark.full
def test_garbage_in_every_queue_stops_no_worker_and_starts_no_step_again(new_system: Any) -> None:
    """A step runs in every worker that can hold one, while its queue is fed with what no message is."""
    system = new_system(embedded=True)
    system.start_control()
    system.start_steps(concurrency=2)
    running = system.processes.running()
    run_id = system.submit(step("test.note", "s", value="x", hold_s=SETTLED_S + 5))
    began = eventually(lambda: system.effects(run_id=run_id, what="began"))
    for queue in FED:
        lay(system, queue, *dict(garbage(queue)).values(), *dict(strangers(queue)).values())
    drained(system, *FED - {"mandor.supervise"})  # beat goes on
    other = system.submit(step("test.echo", "s", value="after it all"))
    assert system.wait(other, timeout_s=60).status == "succeeded"
    view = system.wait(run_id, timeout_s=60)
    assert (view.status, view.steps[0].attempt) == ("succeeded", 1)
    assert system.effects(run_id=run_id, what="began") == began
    assert system.processes.running() == running
    for sign in ("Connection to broker lost", "Unrecoverable error", "Restoring", "consumer: Connection"):
        assert not [line for line in system.processes.lines() if sign in line]
    eventually(lambda: FED - {letter.content["queue"] for letter in letters(system)} == set(), what="letters of each")


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_kept_as_it_came(system: System, name: str) -> None:
    system.start_steps(concurrency=1)
    predecessors_done(system)
    before = ids(system)
    lay(system, "mandor.steps", GARBAGE[name])
    (letter,) = eventually(
        lambda: [one for one in letters(system) if one.id not in before], timeout_s=LETTER_S, what="a letter"
    )
    assert "not a message" in letter.reason
    assert letter.content["queue"] == "mandor.steps"
    assert letter.content["bytes"] > 0 or GARBAGE[name] == b""


def test_every_stranger_is_kept(system: System) -> None:
    """One letter each."""
    system.start_steps(concurrency=1)
    before = ids(system)
    lay(system, "mandor.steps", *STRANGERS.values())
    drained(system, "mandor.steps")
    run_id = system.submit(step("test.echo", "s", value="x"))
    assert system.wait(run_id).status == "succeeded"
    found = [letter for letter in letters(system) if letter.id not in before]
    kept = [stranger_of(letter.content["headers"]) for letter in found]
    assert sorted(kept) == sorted(STRANGERS)
    assert any("shop.tasks.resize" in letter.reason for letter in found)


def test_a_broadcast_that_is_none_disturbs_nobody(system: System) -> None:
    """Somebody else's pub/sub on the same server: celery's control channel gets JSON that is no message."""
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.note", "s", value="x", hold_s=3))
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    client = system.installed.app.backend.client
    for pattern in ("/*pidbox*", "*celeryev*"):
        for channel in client.pubsub_channels(pattern):
            for data in ("{}", "[]", "not json", json.dumps({"properties": {}}), json.dumps(envelope("x"))):
                client.publish(channel, data)
    view = system.wait(run_id)
    assert (view.status, view.steps[0].attempt) == ("succeeded", 1)
    assert not [line for line in system.processes.lines("steps") if "Connection to broker lost" in line]


def test_forged_messages_of_ours_move_nothing(system: System) -> None:
    """Well-formed, with ids of runs that are not there: refused by the store, with nothing left behind."""
    system.start_steps(concurrency=1)
    lay(system, "mandor.steps", json.dumps(envelope("mandor.steps", step_body(run_id=str(uuid4())))).encode())
    lay(system, "mandor.steps", json.dumps(envelope("mandor.steps", step_body())).encode())
    drained(system, "mandor.steps")
    run_id = system.submit(step("test.echo", "s", value="x"))
    assert system.wait(run_id).status == "succeeded"


# ---- steps that kill


@pytest.mark.parametrize(("action", "end"), [("test.die", "failed"), ("test.die_keyed", "in_doubt")])
def test_a_step_that_kills_its_worker_every_time_is_a_dead_letter(system: System, action: str, end: str) -> None:
    """Its child dies; the others of its worker, and its neighbours in the run, are not disturbed."""
    system.start_steps(concurrency=2)
    run_id = system.submit(
        step(action, "poison", [], value="x"),
        *(step("test.note", f"s{i}", [], value=str(i)) for i in range(4)),
        policy={"on_failure": "stop"},
    )
    other = system.submit(*(step("test.note", f"s{i}", value=str(i)) for i in range(6)))
    view = system.wait(run_id, timeout_s=90)
    assert view.status == "failed"
    poison = next(one for one in view.steps if one.id == "poison")
    assert (poison.status, poison.attempt) == (end, 2)
    (letter,) = [one for one in view.dead_letters if one.step_id == "poison"]
    assert letter.reason == "retry_exhausted"
    assert len({line["pid"] for line in system.effects(run_id=run_id, what="dying")}) == 2
    neighbour = system.wait(other, timeout_s=60)
    assert (neighbour.status, [one.attempt for one in neighbour.steps]) == ("succeeded", [1] * 6)
    assert {one.attempt for one in view.steps if one is not poison} <= {0, 1}
    told = system.installed.ledger.letter(letter.id)
    assert told is not None
    assert {attempt["worker_id"] for attempt in told.content["attempts"] if attempt["worker_id"]}


@pytest.mark.full
def test_a_step_that_takes_the_whole_worker_along_is_a_dead_letter(new_system: Any) -> None:
    """Nobody is left to tell: the lease lapses, twice."""
    system = new_system()
    system.start_control()
    run_id = system.submit(step("test.die_keyed", "poison", value="all"), policy={"on_failure": "stop"})
    for number in (1, 2):
        system.start_steps(f"worker-{number}", concurrency=1)
        eventually(lambda number=number: len(system.effects(run_id=run_id, what="dying")) == number)  # type: ignore[misc]
        system.processes.kill(f"worker-{number}")
    view = system.wait(run_id, timeout_s=60)
    assert [(letter.step_id, letter.reason) for letter in view.dead_letters] == [("poison", "retry_exhausted")]
    assert view.steps[0].status == "in_doubt"


@pytest.mark.full
def test_a_planner_that_kills_its_worker_every_time_is_a_dead_letter(new_system: Any) -> None:
    system = new_system(planner_attempts=2)
    system.start_control()
    run_id = system.send({"planner": "test.die", "context": {}})
    view = system.wait(run_id, timeout_s=60)
    assert (view.status, view.reason) == ("failed", "planner_failed")
    assert [(letter.kind, letter.reason) for letter in view.dead_letters] == [("plan", "retry_exhausted")]


# ---- steps that nobody can run


@pytest.mark.full
def test_an_action_that_no_worker_has_is_handed_back_and_then_a_dead_letter(new_system: Any) -> None:
    """The planner knows it, the step workers are of another release: passed on, until it has lasted too long."""
    system = new_system(dispatch_deadline_s=2)
    system.start_control()
    system.start_steps(concurrency=2, env={"MANDOR_ACTIONS": "tests.support.waiting"})
    run_id = system.submit(step("test.note", "s", value="x"), policy={"on_failure": "stop"})
    view = system.wait(run_id, timeout_s=60)
    assert view.status == "failed"
    assert [letter.reason for letter in view.dead_letters] == ["no worker supports test.note"]
    back = [event for event in system.events(run_id) if event.event == "step.handed_back"]
    assert len(back) >= 3
    assert int(back[-1].at) - int(back[0].at) >= 2000
    assert view.steps[0].attempt <= 1


@pytest.mark.full
def test_a_worker_killed_before_that_letter_leaves_it_to_the_end_of_the_run(
    new_system: Any,
) -> None:
    system = new_system(dispatch_deadline_s=2, actions="tests.support.talkative")
    system.start_control()
    system.start_steps(concurrency=1, env={"MANDOR_ACTIONS": "tests.support.held"})
    run_id = system.submit(step("test.talk", GIVEN_UP, mark="x", end="success"))
    held = eventually(lambda: system.effects(run_id=run_id, what="held"), timeout_s=30, what="the step given up")
    os.kill(held[0]["pid"], signal.SIGKILL)
    assert system.wait(run_id, timeout_s=60).status == "failed"
    eventually(lambda: system.view(run_id).dead_letters, what="the letter that the end of the run owes")
    assert [letter.reason for letter in system.view(run_id).dead_letters] == ["no worker supports test.talk"]


@pytest.mark.full
def test_an_action_that_another_worker_has_runs_there(new_system: Any) -> None:
    system = new_system(dispatch_deadline_s=60)
    system.start_control()
    system.start_steps("old", concurrency=1, env={"MANDOR_ACTIONS": "tests.support.waiting"})
    run_id = system.submit(step("test.note", "s", value="x"))
    eventually(lambda: any(event.event == "step.handed_back" for event in system.events(run_id)))
    system.start_steps("new", concurrency=1)
    system.processes.stop("old")
    assert system.wait(run_id, timeout_s=60).status == "succeeded"
