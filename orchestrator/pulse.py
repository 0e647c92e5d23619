"""The worker's event loop tells once a second that it turns, and what its pool is at, for healing.progress to judge.

While the broker is away the loop does not turn, and need not.
"""

from typing import Any, Final

from celery import bootsteps, signals

from orchestrator.app import app
from orchestrator.healing import worker as watched
from orchestrator.healing.progress import Pool, Progress

TICK_S: Final = 1.0


class Pulse(bootsteps.StartStopStep):
    """Turns with the event loop."""

    requires = ("celery.worker.components:Pool",)

    def register_with_event_loop(self, worker: Any, hub: Any) -> None:
        """Called whenever the loop begins to turn; pools without one are refused at the start."""
        watch = watched.current()
        if watch is not None:
            watch.progress.connect()
            hub.call_repeatedly(TICK_S, lambda: tell(worker, watch.progress))


class Connection(bootsteps.StartStopStep):
    """Stops with the connection to the broker."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def stop(self, consumer: Any) -> None:  # noqa: ARG002
        """The connection is lost, or given up."""
        watch = watched.current()
        if watch is not None:
            watch.progress.disconnect()


def tell(worker: Any, progress: Progress) -> None:
    """The loop turns; also at the worker's end, when its pool is gone already."""
    pool = worker.pool._pool  # noqa: SLF001  # nobody tells it
    if pool is not None:
        progress.tick(_books(worker, pool))


def _books(worker: Any, pool: Any) -> Pool:
    """What the pool is at, by Celery's own books."""
    children = tuple(child.pid for child in pool._pool if child.pid)  # noqa: SLF001  # nobody tells it
    active = {request.id: request.time_limits[0] for request in tuple(worker.state.active_requests)}
    waiting = frozenset(request.id for request in tuple(worker.state.reserved_requests)) - active.keys()
    return Pool(children, active, waiting)


app.steps["worker"].add(Pulse)
app.steps["consumer"].add(Connection)


@signals.worker_ready.connect(weak=False)
def _consuming(**_: Any) -> None:
    watch = watched.current()
    if watch is not None:
        watch.consuming()


@signals.worker_shutting_down.connect(weak=False)
def _stopping(**_: Any) -> None:
    watch = watched.current()
    if watch is not None:
        watch.stopping()
