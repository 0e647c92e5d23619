"""Sends a message about each callback that is due, to the workers that post them.

The ledger has the schedule; a message says only which, and how often it was tried. A row that is given out here comes
again if nothing is heard of it. The queue is kept short: what is due waits in the ledger, where nobody's turn is lost
behind a host that does not answer.
"""

from typing import Final

from orchestrator import dispatch
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.supervisors.passes import Counts

NAME = "deliver-callbacks"
MOST_WAITING: Final = 20  # five for each child of a worker: a host that turns out silent keeps others for no longer
HOLD_MS: Final = 60_000  # from a message until the next one about the same attempt


def run_once(app: App, ledger: Ledger, settings: Settings) -> Counts:
    """One pass. moved: those about which a message was sent. LedgerUnavailable is raised."""
    if not ledger.deliveries.is_any_due(settings.namespace):
        return Counts()
    room = MOST_WAITING - dispatch.deliveries_waiting(app)
    taken = ledger.deliveries.take(settings.namespace, room, HOLD_MS) if room > 0 else []
    sent = dispatch.send_deliveries(app, taken)
    return Counts(taken=len(taken), moved=sent, sent=sent)
