"""Sends again what was sent and never claimed: popped by a worker that died, or lost by the broker.

A long backlog is not a loss. The store decides, from whether the message's queue is empty and from what else of that
queue was claimed since; this pass only asks the broker, once per queue.
"""

from collections.abc import Callable

from orchestrator import dispatch, names
from orchestrator.dispatch import App
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Due, Publish, Republish
from orchestrator.supervisors.passes import Counts, Duties, walk
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit
from schemas.ids import RunRef

NAME = "redispatch-lost-steps"


def run_once(app: App, store: Store, settings: Settings) -> Counts:
    """One pass over messages without a claim."""
    depth = asked_once(lambda queue: depth_or_none(app, queue))
    plan_queue = names.queue(settings.prefix, "plan")

    def handle(due: Due) -> Publish | None:
        queue = queue_of(store, due.ref, due.step_id, plan_queue)
        waiting = 0 if queue is None else depth(queue)
        # while the broker is away nothing is known of the message: the member comes again
        return None if waiting is None else check(store, due, waiting == 0)

    return walk(app, store, Duties(NAME, "dispatches", handle, round(settings.sweep_s * 1000)))


def asked_once(ask: Callable[[str], int | None]) -> Callable[[str], int | None]:
    """An answer per queue, kept for one pass."""
    answers: dict[str, int | None] = {}

    def answer(queue: str) -> int | None:
        if queue not in answers:
            answers[queue] = ask(queue)
        return answers[queue]

    return answer


def depth_or_none(app: App, queue: str) -> int | None:
    """Ready messages in a queue, None while the broker is away."""
    try:
        return dispatch.queue_depth(app, queue)
    except dispatch.broker_errors(app) as error:
        emit(events.PassFailed(NAME, "broker_unavailable", events.where(error)))
        return None


def queue_of(store: Store, ref: RunRef, step_id: str | None, plan_queue: str) -> str | None:
    """Where the message lies, None if the step is not known."""
    if step_id is None:
        return plan_queue
    step = store.views.step(ref, step_id)
    return step.queue if step else None


def check(store: Store, due: Due, queue_empty: bool) -> Publish | None:
    """What to send again, None where the message is only late or was claimed."""
    reply = store.runs.check_dispatch(due.ref, due.step_id, queue_empty)
    return reply.publish if isinstance(reply, Republish) else None
