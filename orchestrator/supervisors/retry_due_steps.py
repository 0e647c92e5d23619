"""Sends steps (and calls of a planner) whose wait before the next attempt is over."""

from orchestrator.dispatch import App
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Again, Due, Publish
from orchestrator.supervisors.passes import Counts, Duties, walk

NAME = "retry-due-steps"


def run_once(app: App, store: Store, settings: Settings) -> Counts:
    """One pass over waits that are over."""

    def handle(due: Due) -> Publish | None:
        reply = store.runs.retry_due(due.ref, due.step_id)
        return reply.publish if isinstance(reply, Again) else None

    return walk(app, store, Duties(NAME, "retries", handle, round(settings.sweep_s * 1000)))
