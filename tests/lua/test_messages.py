"""Messages that were lost are sent again, and it is told."""

from collections.abc import Callable

import pytest

from orchestrator.store.replies import Later, Republish
from tests.support.calls import Act, accepted, dispatched, undoing
from tests.support.stores import CHECK, Scene


def plan_sent_at(scene: Scene) -> int:
    fields = scene.store.restoring.remains(scene.ref).fields  # type: ignore[union-attr]
    return int(fields["plan_dispatched_at"])


def step_sent_at(scene: Scene) -> int:
    step = scene.store.views.step(scene.ref, "x")
    assert step is not None
    return step.dispatched_at


@pytest.mark.parametrize(
    ("prepare", "step_id", "kind", "event", "sent_at"),
    [
        (accepted, None, "plan", "plan.republished", plan_sent_at),
        (dispatched, "x", "step", "step.republished", step_sent_at),
        (undoing, "x", "undo", "undo.republished", step_sent_at),
    ],
)
def test_a_message_that_is_lost_is_sent_again_and_it_is_told(
    scene: Scene, prepare: Act, step_id: str | None, kind: str, event: str, sent_at: Callable[[Scene], int]
) -> None:
    prepare(scene)
    first, version = sent_at(scene), scene.version
    scene.clock.advance(CHECK)
    assert isinstance(scene.store.runs.check_dispatch(scene.ref, step_id, queue_empty=False), Later)
    assert (sent_at(scene), scene.version) == (first, version)
    again = scene.store.runs.check_dispatch(scene.ref, step_id, queue_empty=True)
    assert isinstance(again, Republish)
    assert [message.kind for message in again.publish] == [kind]
    assert (sent_at(scene), scene.version) == (scene.clock.now, version + 1)
    assert scene.store.views.events(scene.ref)[-1].event == event
