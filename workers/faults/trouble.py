"""Messages of Mandor's that come once more."""

from collections.abc import Iterator

from orchestrator import dispatch
from orchestrator.dispatch import App
from orchestrator.lookup import Lookup
from orchestrator.store.replies import Dispatch
from schemas.ids import RunRef


def copies(lookup: Lookup, run_id: str, queue: str, limit_ms: int) -> Iterator[Dispatch]:
    """Every message that may be on its way for a run."""
    view = lookup.run(run_id)
    ref = lookup.ref(lookup.find(run_id))
    yield Dispatch("settle", ref, view.generation)
    for step in view.steps:
        yield _copy(ref, view.generation, step.id, step.index, queue, limit_ms)


def _copy(ref: RunRef, generation: int, step_id: str, index: int, queue: str, limit_ms: int) -> Dispatch:
    return Dispatch("step", ref, generation, step_id, index, queue, limit_ms)


def send(app: App, messages: Iterator[Dispatch]) -> int:
    """Send them together; answers how many the broker took."""
    return dispatch.publish(app, messages)
