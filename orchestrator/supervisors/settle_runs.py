"""Settles runs in which nothing moves any more, and brings their end to the ledger until it is there.

The last step's worker and the chord's body do the same at once; this is for when both were lost.
"""

from orchestrator import progress
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Due, Publish, Settled
from orchestrator.supervisors.passes import Counts, Duties, walk

NAME = "settle-runs"


def run_once(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass over runs that may have ended."""

    def handle(due: Due) -> Publish | None:
        reply = progress.settle_due(app, store, ledger, due.ref)
        return () if isinstance(reply, Settled) else None

    return walk(app, store, Duties(NAME, "settles", handle, round(settings.sweep_s * 1000)))
