"""Runs that people pause, and have go on."""

from redis import Redis

from orchestrator.store.decided import Paused, Resumed
from orchestrator.store.keys import member
from orchestrator.store.replies import NotDue
from tests.support.calls import accepted, dispatched, planning
from tests.support.stores import CHECK, Scene, new_step


def pause(scene: Scene, by: str = "ann", call_id: str | None = None) -> object:
    return scene.store.runs.pause(scene.ref, 1, by, call_id)


def is_paused(scene: Scene) -> bool:
    run = scene.store.views.run(scene.ref)
    assert run is not None
    return run.paused_at > 0


def looked_for_at(scene: Scene, client: Redis) -> float | None:
    """When the message of its planner is looked for."""
    return client.zscore(scene.store.keys.due(0, "dispatches"), member(scene.ref, None))


def test_who_repeats_a_pause_after_others_had_the_run_go_on_does_not_pause_it_again(scene: Scene) -> None:
    dispatched(scene)
    first = pause(scene, call_id="once")
    scene.store.runs.resume(scene.ref, 1, "bob")
    scene.clock.advance(1000)
    assert pause(scene, call_id="once") == first
    assert not is_paused(scene)


def test_a_run_is_paused_once_by_who_came_first(scene: Scene, client: Redis) -> None:
    dispatched(scene)
    since = scene.clock.now
    assert pause(scene) == Paused(since)
    before = scene.version
    scene.clock.advance(1000)
    assert pause(scene, "bob") == Paused(since)
    assert scene.version == before
    assert client.hget(scene.store.keys.state(scene.ref), "paused_by") == b"ann"


def test_the_planner_of_a_run_that_goes_on_is_asked_and_looked_for(scene: Scene, client: Redis) -> None:
    accepted(scene)
    pause(scene)
    assert scene.store.runs.claim_plan(scene.ref, 1, "planner", "host:1:1") == NotDue("paused")
    assert looked_for_at(scene, client) is None
    scene.clock.advance(60_000)
    reply = scene.store.runs.resume(scene.ref, 1, "ann")
    assert isinstance(reply, Resumed)
    assert [message.kind for message in reply.publish] == ["plan"]
    assert looked_for_at(scene, client) == scene.clock.now + CHECK


def test_but_not_before_the_time_when_it_is_to_be_asked_again(scene: Scene, client: Redis) -> None:
    planning(scene)
    scene.store.runs.fail_plan(scene.ref, scene.fences["plan"], "planner", "{}", True)
    pause(scene)
    scene.store.runs.resume(scene.ref, 1, "ann")
    assert looked_for_at(scene, client) is None


def test_what_waits_for_room_is_sent_when_the_run_goes_on(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0), new_step("y", 1), max_parallel=1)
    scene.claim("x")
    pause(scene)
    assert scene.complete("x").publish == ()
    reply = scene.store.runs.resume(scene.ref, 1, "ann")
    assert [message.step_id for message in reply.publish] == ["y"]  # type: ignore[union-attr]
