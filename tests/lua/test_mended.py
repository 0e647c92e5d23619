"""A run that nobody looks at any more is looked at again, wherever it stands, for what is to be looked at there."""

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from orchestrator.store.keys import of_member
from orchestrator.store.replies import DUTIES
from schemas.states import Fact
from tests.support.calls import (
    Act,
    accepted,
    completed,
    dispatched,
    doubtful,
    ended,
    fail_undo,
    needs_approval,
    owing,
    paused,
    planning,
    running,
    settled,
    undo_claimed,
    undoing,
)
from tests.support.stores import CHECK, Scene, new_step

Places = dict[tuple[str, str | None], int]  # by duty and step, when


def planner_to_be_asked_again(scene: Scene) -> None:
    planning(scene)
    scene.store.runs.fail_plan(scene.ref, scene.fences["plan"], "planner", "{}", True)


def paused_before_it_was_planned(scene: Scene) -> None:
    accepted(scene)
    scene.store.runs.pause(scene.ref, 1, "ann")
    scene.store.runs.claim_plan(scene.ref, 1, "planner", "host:1:1")


def backing_off(scene: Scene) -> None:
    running(scene)
    ended(scene, "fail_step", Fact.NONE, "{}", True)


def undo_backing_off(scene: Scene) -> None:
    undo_claimed(scene)
    fail_undo(scene, retryable=True)


def doubtful_and_cancelled(scene: Scene) -> None:
    """Nobody is asked any more."""
    doubtful(scene)
    scene.store.runs.cancel(scene.ref, 1)


def approved(scene: Scene) -> None:
    needs_approval(scene)
    scene.store.runs.approve(scene.ref, "x", 1, "ann", allowed=True)


def stopped(scene: Scene) -> None:
    """x has failed for good, and what was done is not undone."""
    scene.accept(on_failure="stop").admit(new_step("w", 0, effect="keyed"), new_step("x", 1))
    scene.claim("w")
    scene.complete("w")
    scene.claim("x")
    ended(scene, "fail_step", Fact.NONE, "{}", False)


WHERE: dict[str, tuple[Act, set[tuple[str, str | None]]]] = {
    "accepted": (accepted, {("dispatches", None), ("deadlines", None)}),
    "accepted, paused": (paused_before_it_was_planned, {("deadlines", None)}),
    "accepted, waiting": (planner_to_be_asked_again, {("retries", None), ("deadlines", None)}),
    "planning": (planning, {("leases", None), ("deadlines", None)}),
    "dispatched": (dispatched, {("dispatches", "x"), ("deadlines", None)}),
    "running": (running, {("leases", "x"), ("deadlines", None)}),
    "backing off": (backing_off, {("retries", "x"), ("deadlines", None)}),
    "paused": (paused, {("deadlines", None)}),
    "needs approval": (needs_approval, {("waits", "x"), ("deadlines", None)}),
    "approved": (approved, {("dispatches", "x"), ("deadlines", None)}),
    "in doubt": (doubtful, {("waits", "x"), ("deadlines", None)}),
    "in doubt, ending": (doubtful_and_cancelled, {("undos", None), ("deadlines", None)}),
    "completed": (completed, {("settles", None), ("deadlines", None)}),
    "owing": (owing, {("undos", None), ("deadlines", None)}),
    "stopped": (stopped, {("settles", None), ("deadlines", None)}),
    "undo sent": (undoing, {("dispatches", "x"), ("deadlines", None)}),
    "undo running": (undo_claimed, {("leases", "x"), ("deadlines", None)}),
    "undo backing off": (undo_backing_off, {("retries", "x"), ("deadlines", None)}),
    "ended": (settled, {("settles", None)}),
}


@pytest.fixture
def places(scene: Scene, client: Redis) -> Callable[[], Places]:
    """Where the run stands in `due`."""

    def found() -> Places:
        at: Places = {}
        for duty in DUTIES:
            waiting: Any = client.zrange(scene.store.keys.due(0, duty), 0, -1, withscores=True)
            at |= {(duty, of_member(name.decode())[1]): int(score) for name, score in waiting}
        return at

    return found


@pytest.mark.parametrize("where", WHERE)
def test_it_has_all_its_places_again_and_no_other(
    where: str, scene: Scene, client: Redis, places: Callable[[], Places]
) -> None:
    prepare, expected = WHERE[where]
    prepare(scene)
    before = places()
    client.delete(*(scene.store.keys.due(0, duty) for duty in DUTIES))
    assert scene.store.restoring.mend_due(scene.ref) == len(expected)
    after = places()
    assert set(after) == expected
    assert all(at <= max(before.get(place, 0), scene.clock.now + CHECK) for place, at in after.items())
    exact = [place for place in expected if place[0] in ("leases", "retries", "waits", "deadlines")]
    assert [after[place] for place in exact] == [before[place] for place in exact]
    assert scene.store.restoring.mend_due(scene.ref) == 0
