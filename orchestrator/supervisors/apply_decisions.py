"""Carries out what people decided where whoever wrote it down died before the store was told, or could not reach it.

A decision is in the ledger until it has an outcome. The store knows it by its id: done twice is done once.
"""

from orchestrator.decisions import Desk, carry_out
from orchestrator.dispatch import App
from orchestrator.errors import MandorError, StoreAmnesia, StoreMoved, StoreUnavailable
from orchestrator.ledger import Decision, Ledger
from orchestrator.store import Store
from orchestrator.supervisors.passes import AT_ONCE, Counts
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit

NAME = "apply-decisions"


def run_once(app: App, store: Store, ledger: Ledger) -> Counts:
    """One pass over decisions without an outcome, oldest first. Ends early while the store is away."""
    desk, total = Desk(app, store, ledger), Counts()
    for decision in ledger.pending_decisions(AT_ONCE, namespace=store.keys.namespace):
        try:
            total += apply(desk, decision)
        except StoreUnavailable as error:
            emit(events.PassFailed(NAME, error.kind, events.where(error)))
            return total + Counts(taken=1, failed=1)
    return total


def apply(desk: Desk, decision: Decision) -> Counts:
    """Carry out one; what stands in the way of this one does not stop the others."""
    try:
        carry_out(desk, decision)
    except (StoreUnavailable, StoreMoved, StoreAmnesia):
        raise
    except MandorError as error:
        emit(events.PassFailed(NAME, error.kind, events.where(error)))
        return Counts(taken=1, failed=1)
    return Counts(taken=1, moved=1)
