"""Ends runs whose time is up: what never started is skipped, what runs is told to stop at its next renewal."""

from orchestrator.dispatch import App
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.decided import Ending
from orchestrator.store.replies import Due, Publish
from orchestrator.supervisors.passes import Counts, Duties, walk

NAME = "enforce-deadlines"


def run_once(app: App, store: Store, settings: Settings) -> Counts:
    """One pass over deadlines."""

    def handle(due: Due) -> Publish | None:
        reply = store.runs.deadline(due.ref)
        return reply.publish if isinstance(reply, Ending) else None

    return walk(app, store, Duties(NAME, "deadlines", handle, round(settings.sweep_s * 1000)))
