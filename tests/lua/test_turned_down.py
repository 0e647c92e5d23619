"""What is of another generation or attempt is turned down; what is not due any more is taken off by whoever looks."""

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from orchestrator.store.keys import member
from orchestrator.store.replies import DUTIES, Ended, Fenced, Lost, NotDue, Other, OtherGeneration, Renewed
from orchestrator.store.scripts import load
from schemas.states import Fact
from tests.support.calls import (
    CALLS,
    PLAN,
    Act,
    completed,
    doubtful,
    needs_approval,
    owing,
    planning,
    running,
    settled,
    undo_claimed,
    undoing,
)
from tests.support.stores import CHECK, LEASE, START, Scene, new_step, ref_of

GENERATIONS = [name for name in CALLS if " " not in name and "other_generation" in load()[name].replies]


def due(scene: Scene, client: Redis, step_id: str | None = "x") -> dict[str, float]:
    """When somebody looks at it, by duty."""
    found = {duty: client.zscore(scene.store.keys.due(0, duty), member(scene.ref, step_id)) for duty in DUTIES}
    return {duty: at for duty, at in found.items() if at is not None}


@pytest.mark.parametrize("name", GENERATIONS)
def test_what_is_said_of_another_generation_is_turned_down(name: str, scene: Scene, client: Redis) -> None:
    prepare, call = CALLS[name]
    prepare(scene)
    client.hset(scene.store.keys.state(scene.ref), "generation", 2)
    before = scene.version
    assert call(scene) == OtherGeneration(2)
    assert scene.version == before


# ---- due, though nothing is to be done


def planned(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0))


def undone(scene: Scene) -> None:
    undo_claimed(scene)
    scene.store.guard.complete_undo(scene.ref, "x", scene.fences["x"], "undo-x")


OVER: dict[str, tuple[Act, Act, str, str | None]] = {
    "expire_lease": (completed, lambda s: s.store.guard.expire_lease(s.ref, "x", 99, Fact.NONE), "leases", "x"),
    "expire_undo": (undone, lambda s: s.store.guard.expire_undo(s.ref, "x", 99, Fact.NONE), "leases", "x"),
    "expire_plan": (planned, lambda s: s.store.runs.expire_plan(s.ref), "leases", None),
    "retry_due": (planned, lambda s: s.store.runs.retry_due(s.ref, "x"), "retries", "x"),
    "retry_due of an undo": (undo_claimed, lambda s: s.store.runs.retry_due(s.ref, "x"), "retries", "x"),
    "wait_over": (planned, lambda s: s.store.runs.wait_over(s.ref, "x"), "waits", "x"),
    "check_dispatch": (completed, lambda s: s.store.runs.check_dispatch(s.ref, "x", False), "dispatches", "x"),
    "check_dispatch of a plan": (
        planned,
        lambda s: s.store.runs.check_dispatch(s.ref, None, False),
        "dispatches",
        None,
    ),
    "check_dispatch of an undo": (
        undo_claimed,
        lambda s: s.store.runs.check_dispatch(s.ref, "x", False),
        "dispatches",
        "x",
    ),
    "settle": (planned, lambda s: s.store.runs.settle(s.ref, 1), "settles", None),
    "settle of an undo": (undo_claimed, lambda s: s.store.runs.settle(s.ref, 1), "undos", None),
    "deadline": (settled, lambda s: s.store.runs.deadline(s.ref), "deadlines", None),
}


@pytest.mark.parametrize("name", OVER)
def test_what_is_over_is_taken_off(name: str, scene: Scene, client: Redis) -> None:
    prepare, call, duty, step_id = OVER[name]
    prepare(scene)
    client.zadd(scene.store.keys.due(0, duty), {member(scene.ref, step_id): START})
    call(scene)
    assert duty not in due(scene, client, step_id)


def test_of_a_run_that_ends_nobody_waits_for_an_answer(scene: Scene, client: Redis) -> None:
    scene.accept(on_doubt="wait").admit(new_step("x", 0, approval=True), new_step("y", 1))
    assert "waits" in due(scene, client)
    scene.store.runs.cancel(scene.ref, 1)
    assert due(scene, client) == {}


@pytest.mark.parametrize("prepare", [running, undo_claimed])
def test_a_lease_is_not_taken_off_by_who_comes_late_for_another_claim(
    scene: Scene, client: Redis, prepare: Act
) -> None:
    prepare(scene)
    scene.store.guard.expire_lease(scene.ref, "x", 99, Fact.NONE)
    assert "leases" in due(scene, client)


def test_a_deadline_that_finds_its_run_ending_comes_again(scene: Scene, client: Redis) -> None:
    owing(scene)
    scene.clock.advance(3_600_001)
    scene.store.runs.deadline(scene.ref)
    assert due(scene, client, None)["deadlines"] == scene.clock.now + 60_000


# ---- whose claim it is

Held = Callable[[Scene, int, str], Any]  # what the holder of this fence and this claim says
OF_HOLDERS: dict[str, tuple[Act, str, str, Held]] = {
    "admit_plan": (planning, "plan", "planner", lambda s, *claim: s.store.runs.admit_plan(s.ref, *claim, PLAN)),
    "reject_plan": (planning, "plan", "planner", lambda s, *c: s.store.runs.reject_plan(s.ref, *c, "drift", "{}")),
    "fail_plan": (planning, "plan", "planner", lambda s, *c: s.store.runs.fail_plan(s.ref, *c, "{}", True)),
    "renew_lease of planning": (planning, "plan", "planner", lambda s, *c: s.store.guard.renew_lease(s.ref, None, *c)),
    "renew_lease": (running, "x", "claim-x", lambda s, *c: s.store.guard.renew_lease(s.ref, "x", *c)),
    "complete_step": (running, "x", "claim-x", lambda s, *c: s.store.guard.complete_step(s.ref, "x", *c, "{}")),
    "fail_step": (
        running,
        "x",
        "claim-x",
        lambda s, *c: s.store.guard.fail_step(s.ref, "x", *c, Fact.NONE, "{}", True),
    ),
    "hand_back": (
        running,
        "x",
        "claim-x",
        lambda s, *c: s.store.guard.hand_back(s.ref, "x", *c, Fact.NONE, "snooze", 1000, 5, 0, "{}"),
    ),
    "renew_lease of an undo": (
        undo_claimed,
        "x",
        "undo-x",
        lambda s, *c: s.store.guard.renew_lease(s.ref, "x", *c, "undo"),
    ),
    "complete_undo": (undo_claimed, "x", "undo-x", lambda s, *c: s.store.guard.complete_undo(s.ref, "x", *c)),
    "fail_undo": (
        undo_claimed,
        "x",
        "undo-x",
        lambda s, *c: s.store.guard.fail_undo(s.ref, "x", *c, Fact.NONE, "{}", retryable=True),
    ),
}


@pytest.mark.parametrize("name", OF_HOLDERS)
def test_a_claim_is_of_one_fence_and_of_one_holder(name: str, scene: Scene, client: Redis) -> None:
    """Who has the fence of it and not its id, or its id and another fence, says nothing about it."""
    prepare, of, claim_id, say = OF_HOLDERS[name]
    prepare(scene)
    fence, before = scene.fences[of], stored(scene, client)
    for other in ((fence, "another"), (fence - 1, claim_id), (fence + 1, claim_id)):
        assert type(say(scene, *other)) in (Fenced, Lost)
        assert stored(scene, client) == before
    assert type(say(scene, fence, claim_id)) not in (Fenced, Lost)


def stored(scene: Scene, client: Redis) -> list[Any]:
    """The run, its steps, and when somebody looks at them."""
    keys = scene.store.keys
    parts = (keys.state(scene.ref), keys.part(scene.ref, "steps"))
    return [
        *(client.hgetall(key) for key in parts),
        *(client.zrange(keys.due(0, duty), 0, -1, withscores=True) for duty in DUTIES),
    ]


def test_the_lease_of_planning_is_kept_by_its_holder_until_its_child_is_dead(scene: Scene) -> None:
    fence = scene.accept().plan().fence
    guard = scene.store.guard
    assert isinstance(guard.renew_lease(scene.ref, None, fence, "planner"), Renewed)
    for other in ((fence + 1, "planner"), (fence, "another")):
        assert guard.renew_lease(scene.ref, None, *other) == Lost()
    assert guard.end_claim(scene.ref, None, "host:9:9") == Other()
    assert guard.end_claim(scene.ref, None, "host:1:1") == Ended(fence)
    assert guard.renew_lease(scene.ref, None, fence, "planner") == Lost()
    before = scene.version
    assert guard.end_claim(scene.ref, None, "host:1:1") == Ended(fence)
    assert scene.version == before


def test_the_undo_of_a_dead_child_is_ended_once(scene: Scene) -> None:
    undo_claimed(scene)
    ended = [(scene.store.guard.end_claim(scene.ref, "x", "host:3:3"), scene.version) for _ in range(2)]
    assert ended[0] == ended[1]


def test_a_person_s_word_is_about_one_attempt(scene: Scene) -> None:
    doubtful(scene)
    answer = scene.store.runs.resolve(scene.ref, "x", scene.fences["x"] - 1, 1, "ann", landed=True)
    assert type(answer).__name__ == "NotClosed"
    assert scene.status("x") == "in_doubt"


@pytest.mark.parametrize("landed", [False, True])
def test_a_person_s_word_is_too_late_once_the_run_is_undone(scene: Scene, landed: bool) -> None:
    """The turn of x comes when w is undone."""
    scene.accept(on_doubt="wait")
    scene.admit(new_step("x", 0, effect="once"), new_step("w", 1, effect="keyed"), max_parallel=1)
    scene.claim("x")
    scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.MAYBE, "{}", True)
    scene.claim("w")
    scene.complete("w")
    scene.store.runs.cancel(scene.ref, 1)
    scene.store.runs.settle(scene.ref, 1)
    answer = scene.store.runs.resolve(scene.ref, "x", scene.fences["x"], 1, "ann", landed=landed)
    assert answer == NotDue("compensating")
    assert scene.status("x") == "in_doubt"


@pytest.mark.parametrize("allowed", [False, True])
def test_what_nobody_will_do_any_more_is_not_approved_and_it_is_said_why(scene: Scene, allowed: bool) -> None:
    needs_approval(scene)
    scene.store.runs.cancel(scene.ref, 1)
    assert scene.store.runs.approve(scene.ref, "x", 1, "ann", allowed=allowed) == NotDue("failing")


@pytest.mark.parametrize(
    ("on_failure", "well", "status"), [("stop", False, "failed"), ("compensate", True, "succeeded")]
)
def test_what_is_done_is_undone_where_the_run_failed_and_its_policy_says_so(
    scene: Scene, on_failure: str, well: bool, status: str
) -> None:
    scene.accept(on_failure=on_failure).admit(new_step("w", 0, effect="keyed"), new_step("x", 1))
    for step_id in ("w", "x"):
        scene.claim(step_id)
    scene.complete("w")
    if well:
        scene.complete("x")
    else:
        scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.NONE, "{}", False)
    scene.store.runs.settle(scene.ref, 1)
    assert (scene.run_status, scene.status("w")) == (status, "completed")


def test_who_turns_a_step_down_before_its_turn_has_not_approved_it(scene: Scene) -> None:
    scene.accept().admit(new_step("w", 0), new_step("x", 1, "w", approval=True))
    assert scene.store.runs.approve(scene.ref, "x", 1, "ann", allowed=False) == NotDue("pending")
    scene.claim("w")
    scene.complete("w")
    assert scene.status("x") == "waiting_approval"


def test_a_run_that_has_moved_is_not_taken_back(scene: Scene) -> None:
    scene.accept().plan()
    assert not scene.store.runs.forget_fresh(scene.ref)
    scene.clock.advance(LEASE + 1)
    scene.store.runs.expire_plan(scene.ref)
    assert not scene.store.runs.forget_fresh(scene.ref)
    assert scene.run_status == "accepted"


def test_a_run_that_has_not_moved_is_taken_back(scene: Scene, client: Redis) -> None:
    scene.accept()
    assert scene.store.runs.forget_fresh(scene.ref)
    assert scene.store.views.run(scene.ref) is None
    assert due(scene, client, None) == {}


def test_an_undo_whose_turn_has_not_come_is_not_begun(scene: Scene) -> None:
    undoing(scene)
    assert scene.claim_undo("w") == NotDue("completed")


@pytest.mark.parametrize("undoes", [False, True])
def test_a_claim_says_how_far_its_queue_has_come(scene: Scene, client: Redis, undoes: bool) -> None:
    claimed = scene.store.keys.shard_part(0, "claimed")
    owing(scene)
    scene.clock.advance(CHECK)
    if undoes:
        scene.store.runs.settle(scene.ref, 1)
        scene.claim_undo("x")
    else:
        completed(Scene(scene.store, scene.clock, ref_of("another")))
    assert client.hget(claimed, "mandor.steps") == str(scene.clock.now).encode()


def test_a_run_of_which_nothing_failed_has_no_letter_owed(scene: Scene) -> None:
    """What is lost may be tried again; with its last attempt lost a letter is owed."""
    scene.accept(on_failure="stop").admit(new_step("x", 0))
    owed = list[Any]()
    for _ in range(2):
        scene.claim("x")
        scene.clock.advance(60_000)
        scene.store.guard.expire_lease(scene.ref, "x", scene.fences["x"], Fact.NONE)
        step = scene.store.views.step(scene.ref, "x")
        assert step is not None
        owed.append(len(step.given_up))
    assert owed == [0, 1]


def test_of_what_a_run_that_ends_leaves_in_doubt_no_letter_is_owed(scene: Scene) -> None:
    """Nobody has given it up."""
    scene.accept(on_failure="stop").admit(new_step("x", 0, effect="keyed"))
    scene.claim("x")
    scene.store.runs.cancel(scene.ref, 1)
    scene.store.guard.expire_lease(scene.ref, "x", scene.fences["x"], Fact.MAYBE)
    step = scene.store.views.step(scene.ref, "x")
    assert step is not None
    assert (step.status, step.given_up) == ("in_doubt", ())
