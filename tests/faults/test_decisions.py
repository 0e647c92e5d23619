"""People's decisions while work is under way: real workers, real beats, and the keys of Celery's chord gone."""

import io
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from orchestrator import decisions, dispatch
from orchestrator.cli.command import run
from orchestrator.decisions import Desk
from orchestrator.ledger import LedgerRun
from orchestrator.store import Store
from orchestrator.store.decided import Ending, TooLate
from orchestrator.store.replies import Committed, Fenced, Settled
from schemas.states import Fact
from tests.support.servers import Server
from tests.support.stores import Clock, Scene, clocked_store, new_step, ref_of
from tests.support.system import System, result_of, step
from tests.support.waiting import eventually
from workers.cli import mandor

TIMES = 1000


def desk_of(system: System) -> Desk:
    installed = system.installed
    return Desk(installed.app, installed.store, installed.ledger)


def mandor_says(*arguments: str, code: int = 0) -> Any:
    """What a command answers under --json."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert run(mandor, [*arguments, "--json"]) == code, out.getvalue()
    return json.loads(out.getvalue())


def in_ledger(system: System, run_id: str) -> LedgerRun:
    row = system.installed.ledger.run(run_id)
    assert row is not None
    return row


def statuses(system: System, run_id: str) -> dict[str, str]:
    return {one.id: one.status for one in system.view(run_id).steps}


# ---- decided while steps run


def test_cancel_stops_what_runs_and_starts_nothing_more(system: System) -> None:
    system.start_steps(concurrency=2)
    policy = {"on_failure": "stop"}
    run_id = system.submit(*(step("test.note", f"s{i}", [], value=str(i), hold_s=600) for i in range(6)), policy=policy)
    eventually(lambda: len(system.effects(run_id=run_id, what="began")) == 2, what="two steps begun")
    answer = mandor_says("run", "cancel", run_id, "--by", "ann", "--reason", "too dear")
    assert (answer["outcome"], answer["carried_out"]) == ("ending", True)
    view = system.wait(run_id)
    assert (view.status, view.reason) == ("cancelled", "cancelled")
    assert len(system.effects(run_id=run_id, what="began")) == 2
    assert not system.effects(run_id=run_id, what="noted")
    (kept,) = system.installed.ledger.decisions_of(run_id)
    assert (kept.made_by, kept.reason) == ("ann", "too dear")


def test_cancel_needs_nobody_that_listens(new_system: Any) -> None:
    """No step worker, no supervisor, and an empty queue: the decision is carried out by who made it."""
    system = new_system()
    system.start_control()
    run_id = system.submit(
        *(step("test.note", f"s{i}", [], value="x") for i in range(3)), policy={"on_failure": "stop"}
    )
    eventually(lambda: system.view(run_id).status == "running")
    system.installed.app.backend.client.delete("mandor.steps")
    system.processes.kill("supervise")
    assert decisions.cancel(desk_of(system), run_id, "ann").carried_out
    assert system.wait(run_id).status == "cancelled"


@pytest.mark.full
def test_pause_and_resume_under_load(system: System) -> None:
    system.start_steps(concurrency=4)
    policy = {"max_parallel": 4}
    run_id = system.submit(*(step("test.note", f"s{i}", [], value=str(i)) for i in range(120)), policy=policy)
    eventually(lambda: len(system.effects(run_id=run_id, what="noted")) >= 10, what="ten steps done")
    desk = desk_of(system)
    assert decisions.pause(desk, run_id, "ann").outcome == "paused"
    eventually(lambda: "running" not in statuses(system, run_id).values(), what="the end of what ran")
    done = len(system.effects(run_id=run_id, what="noted"))
    why = mandor_says("run", "why", run_id)
    assert {"pause"} <= {wait["what"] for wait in why["waits"]}
    assert "paused by ann" in next(wait["text"] for wait in why["waits"] if wait["what"] == "pause")
    for _ in range(3):  # passes of every supervisor go by, and nothing moves
        pass_of(system)
    assert len(system.effects(run_id=run_id, what="noted")) == done < 120
    assert decisions.resume(desk, run_id, "bob").outcome == "resumed"
    view = system.wait(run_id, timeout_s=60)
    assert view.status == "succeeded"
    assert [one.attempt for one in view.steps] == [1] * 120
    assert len(system.effects(run_id=run_id, what="noted")) == 120


def pass_of(system: System) -> None:
    """Return when a pass over dispatches has begun after this call."""
    views, store = system.installed.store.views, system.installed.store
    now = store.now_ms()
    eventually(lambda: views.last_passes()["dispatches"] > now, what="a pass of a supervisor")


def test_an_approval_outlives_the_chords_keys(system: System) -> None:
    system.start_steps()
    policy = {"approvals": ["test.note"]}
    run_id = system.submit(
        step("test.echo", "a", value="x"),
        step("test.note", "b", value=result_of("a")),
        step("test.echo", "c", value=result_of("b")),
        policy=policy,
    )
    eventually(lambda: statuses(system, run_id).get("b") == "waiting_approval")
    waits = mandor_says("run", "why", run_id)["waits"]
    assert [(wait["what"], wait["step_id"], wait["mover"]) for wait in waits] == [("approval", "b", "a person")]
    app = system.installed.app
    keys = [app.backend.get_key_for_group(f"{run_id}.g1", suffix) for suffix in (".s", ".j", ".t", ".d")]
    assert app.backend.client.delete(*keys) > 0
    assert not system.effects(run_id=run_id)
    assert mandor_says("run", "approve", run_id, "--by", "ann")["step_id"] == "b"
    assert system.wait(run_id).status == "succeeded"
    assert [line["value"] for line in system.effects(run_id=run_id, what="noted")] == ["x"]


def test_a_refusal_ends_the_run(system: System) -> None:
    system.start_steps()
    run_id = system.submit(step("test.note", "a", value="x"), policy={"approvals": ["test.note"]})
    eventually(lambda: statuses(system, run_id).get("a") == "waiting_approval")
    answer = mandor_says("run", "approve", run_id, "a", "--refuse", "--reason", "no")
    assert answer["outcome"] == "failed"
    view = system.wait(run_id)
    assert (view.status, view.reason) == ("failed", "not_approved:a")
    assert not system.effects(run_id=run_id)


@pytest.mark.full
def test_nobody_approves_in_time(system: System) -> None:
    system.start_steps()
    policy = {"approvals": ["test.note"], "wait_s": 1}
    run_id = system.submit(step("test.note", "a", value="x"), policy=policy)
    view = system.wait(run_id)
    assert (view.status, view.reason) == ("failed", "not_approved:a")
    assert [letter.reason for letter in view.dead_letters] == ["nobody approved this step in time"]


@pytest.mark.full
def test_a_doubt_is_settled_by_a_person(new_system: Any) -> None:
    """Its worker dies with the effect under way; a person finds that it happened, and says with what result."""
    system = new_system()
    system.start_control()
    system.start_steps("first", concurrency=1)
    run_id = system.submit(
        step("test.send", "a", value="x", hold_s=600),
        step("test.note", "b", value=result_of("a")),
        policy={"on_doubt": "wait"},
    )
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    system.processes.kill("first")
    eventually(lambda: statuses(system, run_id)["a"] == "in_doubt", what="the doubt")
    assert system.view(run_id).status == "running"
    (wait,) = mandor_says("run", "why", run_id)["waits"]
    assert (wait["what"], wait["step_id"], wait["until"] > wait["since"]) == ("doubt", "a", True)
    mandor_says("run", "resolve", run_id, "--result", '{"value": "seen"}', "--reason", "in their dashboard")
    system.start_steps("second")
    assert system.wait(run_id).status == "succeeded"
    assert [line["value"] for line in system.effects(run_id=run_id, what="noted")] == ["seen"]


def not_told(system: System) -> Path:
    """The file that the action `test.until_told` waits for, not there yet."""
    told = system.effect_log.parent / "told"
    told.unlink(missing_ok=True)
    return told


def test_a_failed_run_is_started_over(system: System) -> None:
    told = not_told(system)
    system.start_steps()
    run_id = system.submit(
        step("test.note", "a", value="kept"),
        step("test.until_told", "b", value="now"),
        step("test.echo", "c", value=result_of("b")),
        policy={"on_failure": "stop"},
    )
    first = system.wait(run_id)
    assert (first.status, first.reason) == ("failed", "step_failed:b")
    eventually(lambda: in_ledger(system, run_id).ended_at, what="the end in the ledger")
    told.touch()
    answer = mandor_says("run", "retry", run_id, "--by", "ann")
    assert (answer["outcome"], answer["message"]) == ("retried:2", "started over, as generation 2")
    view = system.wait(run_id)
    assert (view.status, view.generation) == ("succeeded", 2)
    assert len(system.effects(run_id=run_id, what="noted")) == 1
    assert mandor_says("run", "retry", run_id, code=1)["error"]["kind"] == "decision_refused"
    eventually(lambda: in_ledger(system, run_id).ended_at, what="the second end in the ledger")
    row = in_ledger(system, run_id)
    assert (row.status, row.generation, row.ended_at is not None) == ("succeeded", 2, True)


def test_a_run_is_started_over_from_a_step(system: System) -> None:
    """With a new key the order is placed twice; without one its row answers, whatever else is done again before it."""
    told = not_told(system)
    system.start_steps()
    run_id = system.submit(
        step("test.note", "a", value="price"),
        step("test.order", "b", value=result_of("a")),
        step("test.until_told", "c", value="now"),
        step("test.echo", "d", [], value="aside"),
        policy={"on_failure": "stop"},
    )

    def noted() -> list[int]:
        return [len(system.effects(run_id=run_id, step_id=step_id, what="noted")) for step_id in "ab"]

    assert system.wait(run_id).status == "failed"
    assert "needs no new key" in mandor_says("run", "retry", run_id, "--new-key", "b", code=1)["error"]["message"]
    twice = mandor_says("run", "retry", run_id, "--from", "a", "--new-key", "b", "--reason", "the bank took it back")
    assert twice["outcome"] == "retried:2"
    assert (system.wait(run_id).status, noted()) == ("failed", [2, 2])
    told.touch()
    mandor_says("run", "retry", run_id, "--from", "a")
    view = system.wait(run_id)
    assert (view.status, view.generation, noted()) == ("succeeded", 3, [3, 2])
    assert {one.id: one.attempt_group for one in view.steps} == {"a": 0, "b": 1, "c": 0, "d": 0}


def test_steps_are_named_in_one_run_only(system: System) -> None:
    refused = mandor_says("run", "retry", "--status", "failed", "--from", "a", "--yes", code=2)
    assert "are about one run" in refused["error"]["message"]


def test_many_runs_by_a_filter(system: System) -> None:
    session = f"session-{random.randrange(10**9)}"
    runs = [
        system.submit(step("test.note", "a", value="x"), session_id=session, policy={"approvals": ["test.note"]})
        for _ in range(3)
    ]
    other = system.submit(step("test.note", "a", value="x"), policy={"approvals": ["test.note"]})
    for run_id in (*runs, other):
        eventually(lambda run_id=run_id: statuses(system, run_id).get("a") == "waiting_approval")  # type: ignore[misc]
    refused = mandor_says("run", "cancel", "--session", session, code=2)
    assert "3 runs" in refused["error"]["message"]
    done = mandor_says("run", "cancel", "--session", session, "--status", "running", "--yes")["decisions"]
    assert sorted(one["run_id"] for one in done) == sorted(runs)
    assert all(system.wait(run_id).status == "cancelled" for run_id in runs)
    assert system.view(other).status == "running"
    assert mandor_says("run", "cancel", other)["carried_out"]


def test_a_decision_whose_process_died_is_finished_by_the_supervisor(system: System) -> None:
    run_id = system.submit(step("test.note", "a", value="x"), policy={"approvals": ["test.note"]})
    eventually(lambda: statuses(system, run_id).get("a") == "waiting_approval")
    system.installed.ledger.decide(run_id, 1, "cancel", "ann", None)
    assert system.wait(run_id).status == "cancelled"


# ---- a decision and the last commit at the same moment: two processes' worth of connections, in every order


@pytest.mark.parametrize("decision", ["cancel", "deadline"])
def test_a_decision_and_the_last_commit_at_once(redis_server: Server, namespace: str, decision: str) -> None:
    """A thousand times. Whoever comes first decides; the other one is told, and there is one end."""
    store, clock = clocked_store(redis_server.url, namespace, shards=4)
    ends: set[tuple[str, str]] = set()
    with ThreadPoolExecutor(2) as pool:
        for number in range(TIMES):
            scene = last_step_runs(store, clock, f"race-{number}")
            ends.add(raced(pool, scene, decision))
    store.close()
    assert ends == {
        ("commit first", "succeeded"),
        ("decision first", "cancelled" if decision == "cancel" else "failed"),
    }


def last_step_runs(store: Store, clock: Clock, name: str) -> Scene:
    """A run whose last step is about to commit."""
    scene = Scene(store, clock, ref_of(name))
    scene.accept(on_failure="stop", deadline_ms=1).admit(new_step("a", 0))
    scene.claim("a")
    clock.advance(2)
    return scene


def raced(pool: ThreadPoolExecutor, scene: Scene, decision: str) -> tuple[str, str]:
    """Who came first, and how the run ended."""
    runs, start = scene.store.runs, Barrier(2)
    decide: Callable[[], Any] = (
        (lambda: runs.cancel(scene.ref, 1)) if decision == "cancel" else (lambda: runs.deadline(scene.ref))
    )

    def at_once(call: Callable[[], Any]) -> Any:
        start.wait()
        return call()

    # asked in turns to come first, for one thread is always released a little earlier
    calls = [lambda: scene.complete("a"), decide]
    flip = scene.ref.run_id[-1] in "01234567"
    futures = [pool.submit(at_once, call) for call in (reversed(calls) if flip else calls)]
    committed, decided = (future.result() for future in (reversed(futures) if flip else futures))
    settled = runs.settle(scene.ref, 1)
    assert isinstance(settled, Settled)
    assert isinstance(committed, Committed)  # the holder's commit counts either way: its effect has happened
    assert scene.status("a") == "completed"
    ends = [event.event for event in scene.store.views.events(scene.ref) if event.event in ENDS]
    assert ends == [f"run.{settled.status}"]
    assert not isinstance(scene.complete("a"), Fenced)
    if isinstance(decided, TooLate):
        assert settled.status == "succeeded"
        return "commit first", settled.status
    assert isinstance(decided, Ending)
    return "decision first", settled.status


ENDS = {"run.succeeded", "run.failed", "run.cancelled"}


def test_a_reclaimed_step_and_its_commit_at_once(redis_server: Server, namespace: str) -> None:
    """The lease has lapsed and a pass ends the claim while its holder commits: one of the two, a thousand times."""
    store, clock = clocked_store(redis_server.url, namespace, shards=4)
    seen: set[tuple[str, str]] = set()
    with ThreadPoolExecutor(2) as pool:
        for number in range(TIMES):
            scene = Scene(store, clock, ref_of(f"lapse-{number}"))
            scene.accept(on_failure="stop").admit(new_step("a", 0, max_attempts=1))
            scene.claim("a")
            clock.advance(15_001)
            seen.add(expired_at_commit(pool, scene, flip=bool(number % 2)))
    store.close()
    assert seen == {("Committed", "Fenced"), ("Fenced", "Failed")}


def expired_at_commit(pool: ThreadPoolExecutor, scene: Scene, *, flip: bool) -> tuple[str, str]:
    start = Barrier(2)

    def expire() -> Any:
        start.wait()
        return scene.store.guard.expire_lease(scene.ref, "a", scene.fences["a"], Fact.NONE)

    def commit() -> Any:
        start.wait()
        return scene.complete("a")

    first, second = (expire, commit) if flip else (commit, expire)
    one, other = pool.submit(first), pool.submit(second)
    committed, expired = (other.result(), one.result()) if flip else (one.result(), other.result())
    settled = scene.store.runs.settle(scene.ref, 1)
    assert isinstance(settled, Settled)
    assert (settled.status == "succeeded") == isinstance(committed, Committed)
    return type(committed).__name__, type(expired).__name__


def test_the_queue_holds_nothing_of_a_cancelled_run_that_would_still_start(system: System) -> None:
    run_id = system.submit(
        *(step("test.note", f"s{i}", [], value="x") for i in range(5)), policy={"on_failure": "stop"}
    )
    eventually(lambda: dispatch.queue_depth(system.installed.app, "mandor.steps") == 5)
    decisions.cancel(desk_of(system), run_id, "ann")
    assert system.wait(run_id).status == "cancelled"
    system.start_steps()
    eventually(lambda: dispatch.queue_depth(system.installed.app, "mandor.steps") == 0)
    other = system.submit(step("test.note", "s", value="last"))
    assert system.wait(other).status == "succeeded"
    assert not system.effects(run_id=run_id)
