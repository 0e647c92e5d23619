"""Undos that were given up and that people have begun again: in which order, how often, and with how many attempts."""

import json

import pytest
from redis import Redis

from orchestrator.store.decided import Undoing
from orchestrator.store.replies import Committed, NotDue, RetryAt, UndoGranted
from schemas.states import Fact
from tests.support.servers import Server
from tests.support.stores import Scene, clocked_store, new_step, ref_of

STEPS = (("a", 0), ("b", 1, "a"), ("c", 2, "b"))


@pytest.fixture
def scene(redis_server: Server, namespace: str) -> Scene:
    """a is needed by b, and that by c; all have had effects, and k has failed, so that they are undone."""
    store, clock = clocked_store(redis_server.url, namespace)
    scene = Scene(store, clock, ref_of("undo-again"))
    scene.accept().admit(*(new_step(*named, effect="keyed") for named in STEPS), new_step("k", 3))
    for step_id in ("a", "b", "c"):
        scene.claim(step_id)
        scene.complete(step_id)
    scene.claim("k")
    store.guard.fail_step(scene.ref, "k", scene.fences["k"], "claim-k", Fact.NONE, "{}", False)
    store.runs.settle(scene.ref, 1)
    return scene


def give_up(scene: Scene, *step_ids: str) -> None:
    """All are undone but these, and the run ends so."""
    for step_id in ("c", "b", "a"):
        scene.undo(step_id, well=step_id not in step_ids)
    scene.store.runs.settle(scene.ref, 1)
    assert scene.run_status == "compensation_failed"


def again(scene: Scene, step_id: str) -> list[str]:
    """Begin it again; answers which undos are sent."""
    reply = scene.store.runs.undo_again(scene.ref, step_id, scene.fences[step_id], "ann")
    assert isinstance(reply, Undoing)
    scene.generation = reply.generation
    return [str(message.step_id) for message in reply.publish if message.kind == "undo"]


def ended_as(scene: Scene) -> str:
    scene.store.runs.settle(scene.ref, scene.generation)
    return scene.run_status


def test_it_has_all_its_attempts_in_a_new_generation_and_the_run_ends_anew(scene: Scene) -> None:
    give_up(scene, "b")
    before = scene.fences["b"]
    assert again(scene, "b") == ["b"]
    claim = scene.claim_undo("b")
    assert isinstance(claim, UndoGranted)
    assert (claim.step.attempt, claim.step.fence > before, scene.generation) == (1, True, 2)
    scene.store.guard.complete_undo(scene.ref, "b", claim.step.fence, "undo-b")
    assert ended_as(scene) == "compensated"


def test_one_that_is_given_up_again_ends_the_run_as_it_did(scene: Scene) -> None:
    give_up(scene, "b")
    old = scene.fences["b"]
    again(scene, "b")
    scene.undo("b", well=False)
    assert ended_as(scene) == "compensation_failed"
    assert scene.store.runs.undo_again(scene.ref, "b", old, "bob") == NotDue("compensation_failed")
    assert (again(scene, "b"), scene.generation) == (["b"], 3)


def test_one_of_which_an_older_release_has_forgotten_the_fence_is_begun_again(
    scene: Scene, redis_server: Server
) -> None:
    give_up(scene, "b")
    steps = scene.store.keys.part(scene.ref, "steps")
    record = json.loads(redis_server.client.hget(steps, "b") or "{}")
    del record["undo"]
    redis_server.client.hset(steps, "b", json.dumps(record))
    assert again(scene, "b") == ["b"]


@pytest.mark.parametrize("first", ["a", "c"])
def test_of_two_the_one_that_needed_the_other_comes_first_whoever_is_named_first(scene: Scene, first: str) -> None:
    give_up(scene, "a", "c")
    second = "c" if first == "a" else "a"
    assert again(scene, first) == [first]
    assert again(scene, second) == (["c"] if second == "c" else [])
    assert scene.claim_undo("a") == NotDue("waiting")
    scene.undo("c")
    assert isinstance(scene.claim_undo("a"), UndoGranted)
    scene.store.guard.complete_undo(scene.ref, "a", scene.fences["a"], "undo-a")
    assert ended_as(scene) == "compensated"


def test_one_that_waits_again_gives_its_place_up(redis_server: Server, scene: Scene) -> None:
    give_up(scene, "a", "c")
    again(scene, "a")
    again(scene, "c")
    with Redis.from_url(redis_server.url) as client:
        assert client.hget(scene.store.keys.state(scene.ref), "active") == b"1"


def test_one_that_is_under_way_already_waits_for_nobody(scene: Scene) -> None:
    give_up(scene, "a", "c")
    again(scene, "a")
    assert isinstance(scene.claim_undo("a"), UndoGranted)
    assert again(scene, "c") == ["c"]
    scene.store.guard.complete_undo(scene.ref, "a", scene.fences["a"], "undo-a")
    assert ended_as(scene) == "compensating"
    scene.undo("c")
    assert ended_as(scene) == "compensated"


def test_while_the_others_are_still_undone_it_joins_them(scene: Scene) -> None:
    scene.undo("c", well=False)
    assert again(scene, "c") == ["c"]
    assert (scene.generation, scene.claim_undo("b")) == (1, NotDue("waiting"))
    for step_id in ("c", "b", "a"):
        scene.undo(step_id)
    assert ended_as(scene) == "compensated"


def test_it_keeps_the_order_also_of_steps_that_were_undone_in_between(scene: Scene) -> None:
    """b, which lies between them, was undone long ago: a waits for c all the same."""
    give_up(scene, "a", "c")
    again(scene, "c")
    assert isinstance(scene.claim_undo("c"), UndoGranted)
    assert again(scene, "a") == []
    claim = (scene.ref, "c", scene.fences["c"], "undo-c")
    over = scene.store.guard.complete_undo(*claim)
    assert isinstance(over, Committed)
    assert [message.step_id for message in over.publish] == ["a"]


def test_one_that_was_under_way_and_lost_its_worker_waits_for_the_one_that_needed_it(scene: Scene) -> None:
    under_way_before(scene)
    scene.store.guard.expire_undo(scene.ref, "a", scene.fences["a"], Fact.NONE)
    assert waited(scene)


def test_one_that_was_under_way_and_failed_waits_for_the_one_that_needed_it(scene: Scene) -> None:
    under_way_before(scene)
    failed = scene.store.guard.fail_undo(scene.ref, "a", scene.fences["a"], "undo-a", Fact.NONE, "{}", True)
    assert isinstance(failed, RetryAt)
    scene.clock.advance(60_000)
    scene.store.runs.retry_due(scene.ref, "a")
    assert waited(scene)


def under_way_before(scene: Scene) -> None:
    """The undo of a runs already when that of c, which comes before it, is begun again."""
    give_up(scene, "a", "c")
    again(scene, "a")
    assert isinstance(scene.claim_undo("a"), UndoGranted)
    assert again(scene, "c") == ["c"]


def waited(scene: Scene) -> bool:
    """a is not undone before c, and is afterwards."""
    waits = scene.claim_undo("a") == NotDue("waiting")
    scene.undo("c")
    scene.undo("a")
    return waits and ended_as(scene) == "compensated"
