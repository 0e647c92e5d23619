"""What is told of a call: its event, the error that is kept, the letter that is owed, the messages to be sent."""

import json

import pytest
from redis import Redis

from orchestrator.store.decided import Retried
from orchestrator.store.replies import Publish, RetryAt, TooOften, UndoGivenUp
from schemas.states import Fact
from tests.support.calls import CALLS, doubtful, ended, needs_approval, planning, running, undo_claimed
from tests.support.stores import LEASE, Scene, new_step

EVENTS = {
    "approve": "step.approved",
    "approve, refused": "step.refused",
    "fail_step": "step.retry",
    "fail_step for good": "step.failed",
    "fail_undo": "undo.retry",
    "fail_undo for good": "undo.given_up",
    "fail_plan": "plan.retry",
    "fail_plan for good": "run.failed",
}
A_DAY = 86_400_000


def sent(publish: Publish) -> list[str]:
    return [str(message.step_id) for message in publish]


def owed(scene: Scene) -> list[str]:
    """Why there are to be letters about x."""
    step = scene.store.views.step(scene.ref, "x")
    assert step is not None
    return [one.why for one in step.given_up]


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_says_what_came_of_it(name: str, scene: Scene) -> None:
    prepare, call = CALLS[name]
    prepare(scene)
    call(scene)
    assert scene.store.views.events(scene.ref)[-1].event == EVENTS[name]


@pytest.mark.parametrize(("after_ms", "kind"), [(LEASE + 1, "worker_lost"), (60_000, "step_timeout")])
def test_a_lost_attempt_that_had_passed_its_limit_is_told_from_one_that_had_not(
    scene: Scene, after_ms: int, kind: str
) -> None:
    running(scene)
    scene.clock.advance(after_ms)
    scene.store.guard.expire_lease(scene.ref, "x", scene.fences["x"], Fact.NONE)
    assert json.loads(scene.store.views.errors(scene.ref)["x"])["kind"] == kind


def test_a_letter_says_for_what_nobody_answered(scene: Scene) -> None:
    needs_approval(scene)
    scene.clock.advance(A_DAY)
    scene.store.runs.wait_over(scene.ref, "x")
    assert owed(scene) == ["nobody approved this step in time"]


def test_a_letter_says_of_what_nobody_knew(scene: Scene) -> None:
    doubtful(scene)
    scene.clock.advance(A_DAY)
    scene.store.runs.wait_over(scene.ref, "x")
    assert owed(scene) == ["nobody said in time whether its effect happened"]


@pytest.mark.parametrize(
    ("effect", "on_doubt", "expected"),
    [
        ("once", "end", ["in_doubt"]),
        ("keyed", "end", ["retry_exhausted"]),
        ("keyed", "wait", ["retry_exhausted"]),
        ("once", "wait", []),
    ],
)
def test_a_letter_about_a_lost_worker_says_whether_its_effect_is_in_doubt(
    scene: Scene, effect: str, on_doubt: str, expected: list[str]
) -> None:
    """None where a person is asked."""
    scene.accept(on_failure="stop", on_doubt=on_doubt).admit(new_step("x", 0, effect=effect, max_attempts=1))
    scene.claim("x")
    scene.clock.advance(LEASE + 1)
    scene.store.guard.expire_lease(scene.ref, "x", scene.fences["x"], Fact.MAYBE)
    assert owed(scene) == expected


def test_a_letter_about_a_lost_worker_is_not_in_doubt_where_nothing_began(scene: Scene) -> None:
    scene.accept(on_failure="stop").admit(new_step("x", 0, effect="once", max_attempts=1))
    scene.claim("x")
    scene.store.guard.expire_lease(scene.ref, "x", scene.fences["x"], Fact.NONE)
    assert owed(scene) == ["retry_exhausted"]


SAFE = pytest.mark.parametrize(("effect", "fact"), [("once", Fact.NONE), ("keyed", Fact.MAYBE)])


@SAFE
def test_what_is_not_both_once_and_in_doubt_is_tried_again(scene: Scene, effect: str, fact: Fact) -> None:
    scene.accept().admit(new_step("x", 0, effect=effect))
    scene.claim("x")
    assert isinstance(ended(scene, "fail_step", fact, "{}", True), RetryAt)


@SAFE
def test_so_is_an_undo_that_is_not_both(scene: Scene, effect: str, fact: Fact) -> None:
    scene.accept().admit(new_step("x", 0, effect=effect), new_step("k", 1))
    scene.claim("x")
    scene.complete("x")
    scene.store.runs.cancel(scene.ref, 1)
    scene.store.runs.settle(scene.ref, 1)
    scene.claim_undo("x")
    claim = (scene.ref, "x", scene.fences["x"], "undo-x")
    assert isinstance(scene.store.guard.fail_undo(*claim, fact, "{}", retryable=True), RetryAt)


@pytest.mark.parametrize(("times", "age_ms", "given_up"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_an_undo_that_is_handed_back_too_often_is_given_up(
    scene: Scene, times: int, age_ms: int, given_up: bool
) -> None:
    """Too often is more than so many times, and not before so long."""
    undo_claimed(scene)
    claim = (scene.ref, "x", scene.fences["x"], "undo-x")
    reply = scene.store.guard.fail_undo(
        *claim, Fact.NONE, "{}", True, reason="snooze", delay_ms=1000, max_times=times, min_age_ms=age_ms
    )
    assert isinstance(reply, UndoGivenUp if given_up else RetryAt)


@pytest.mark.parametrize(("times", "age_ms", "too_often"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_so_is_a_step_that_is_handed_back_too_often(scene: Scene, times: int, age_ms: int, too_often: bool) -> None:
    running(scene)
    reply = ended(scene, "hand_back", Fact.NONE, "snooze", 1000, times, age_ms, "{}")
    assert isinstance(reply, TooOften if too_often else RetryAt)


@pytest.mark.parametrize("probe", [False, True])
def test_whether_a_step_is_probed_is_as_it_was_admitted(scene: Scene, probe: bool) -> None:
    scene.accept().admit(new_step("x", 0, effect="keyed", probe=probe))
    plan = scene.store.restoring.admitted(scene.ref)
    assert plan is not None
    assert plan.steps[0].probe is probe


@pytest.mark.parametrize(("name", "kind"), [("admit_plan", "step"), ("settle, and undo", "undo")])
def test_a_message_says_whether_its_step_is_to_be_done_or_undone(scene: Scene, name: str, kind: str) -> None:
    prepare, call = CALLS[name]
    prepare(scene)
    assert [message.kind for message in call(scene).publish] == [kind]


# ---- a run that is started over


def retried(scene: Scene, again: tuple[str, ...] = ()) -> Publish:
    reply = scene.store.runs.retry(scene.ref, 1, "ann", 3_600_000, again)
    assert isinstance(reply, Retried)
    scene.generation = 2
    return reply.publish


def test_one_that_had_no_plan_is_planned(scene: Scene) -> None:
    planning(scene)
    scene.store.runs.fail_plan(scene.ref, scene.fences["plan"], "planner", "{}", False)
    assert [message.kind for message in retried(scene)] == ["plan"]


def test_its_steps_are_sent_in_the_order_of_its_plan(scene: Scene) -> None:
    names = [f"s{index}" for index in range(20)]
    scene.accept().admit(*(new_step(name, index) for index, name in enumerate(names)))
    scene.store.runs.cancel(scene.ref, 1)
    scene.store.runs.settle(scene.ref, 1)
    assert sent(retried(scene)) == names


def test_its_steps_are_undone_from_the_last_one_on(scene: Scene) -> None:
    names = [f"s{index}" for index in range(20)]
    scene.accept().admit(
        *(new_step(name, index, effect="keyed") for index, name in enumerate(names)), new_step("k", 20)
    )
    for name in names:
        scene.claim(name)
        scene.complete(name)
    scene.store.runs.cancel(scene.ref, 1)
    assert sent(scene.store.runs.settle(scene.ref, 1).publish) == names[::-1]  # type: ignore[union-attr]


def done_and_cancelled(scene: Scene, effect: str) -> None:
    """x is completed, which a person had approved; its run is over."""
    scene.accept(on_failure="stop").admit(new_step("x", 0, effect=effect, approval=True), new_step("y", 1, "x"))
    scene.store.runs.approve(scene.ref, "x", 1, "ann", allowed=True)
    scene.claim("x")
    scene.complete("x")
    scene.store.runs.cancel(scene.ref, 1)
    scene.store.runs.settle(scene.ref, 1)


@pytest.mark.parametrize(("effect", "asked"), [("keyed", False), ("once", False), ("idempotent", True), ("pure", True)])
def test_a_person_is_asked_again_but_for_what_gives_its_result_back(scene: Scene, effect: str, asked: bool) -> None:
    done_and_cancelled(scene, effect)
    assert sent(retried(scene, ("x", "y"))) == ([] if asked else ["x"])
    assert scene.status("x") == ("waiting_approval" if asked else "dispatched")


@pytest.mark.parametrize(("effect", "status"), [("keyed", "in_doubt"), ("pure", "skipped")])
def test_what_is_done_again_may_have_happened_until_it_is(scene: Scene, effect: str, status: str) -> None:
    done_and_cancelled(scene, effect)
    retried(scene, ("x", "y"))
    scene.store.runs.cancel(scene.ref, 2)
    assert scene.status("x") == status


def test_a_run_whose_waiting_steps_are_forgotten_is_in_pieces(scene: Scene, client: Redis) -> None:
    scene.accept().admit(new_step("x", 0), new_step("y", 1), max_parallel=1)
    assert not scene.store.admin.is_in_pieces(scene.ref)
    client.delete(scene.store.keys.part(scene.ref, "ready"))
    assert scene.store.admin.is_in_pieces(scene.ref)
