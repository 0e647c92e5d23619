"""What the kit does to its own installation, besides killing and freezing: the server, the broker, the messages."""

import os
from collections.abc import Iterator

from orchestrator import dispatch
from orchestrator.dispatch import App
from orchestrator.lookup import Lookup
from orchestrator.store.replies import Dispatch
from schemas.ids import RunRef


def forget_everything(app: App) -> None:
    """FLUSHALL: state, messages and results are gone."""
    app.backend.client.flushall()


def give_back(app: App) -> None:
    """What the broker's client does when the visibility timeout is over: every message in hand goes back to its queue.

    It is kombu's own code, of a connection with a timeout of no time at all.
    """
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        channel.visibility_timeout = 0
        channel.qos.restore_visible(num=1000)


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


def group_of(pid: int) -> int:
    """The process group of a process, also of a dead one that nobody has buried; 0: it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
