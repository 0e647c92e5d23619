"""Begins to undo what a failing run has done, once nothing of it runs any more, and looks after what came late.

The last step's worker and the chord's body have it begun at once; this is for when both were lost. From there on each
undo is due like a step: its message among the dispatches, its claim among the leases, its wait among the retries.
"""

from orchestrator import late_effects, progress
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Compensating, Due, Publish, Settled
from orchestrator.supervisors.passes import Counts, Duties, walk

NAME = "trigger-compensation"


def run_once(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass over failing runs that are to be undone; one that has nothing to undo is closed. Then late effects."""

    def handle(due: Due) -> Publish | None:
        reply = progress.settle_due(app, store, ledger, due.ref)
        return () if isinstance(reply, Compensating | Settled) else None

    begun = walk(app, store, Duties(NAME, "undos", handle, round(settings.sweep_s * 1000)))
    return begun + late_effects.look(app, store, ledger, settings)
