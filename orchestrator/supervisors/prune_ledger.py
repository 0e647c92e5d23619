"""Deletes finished runs and letters from the ledger that have been kept for as long as the settings say.

In batches, each a short transaction; a pass makes some of them and leaves the rest to the next, so that the other
supervisors have their turn. Several passes at once find what the others have left.
"""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Final

from orchestrator.ledger import Ledger, Pruned
from orchestrator.settings import Settings
from orchestrator.supervisors.passes import Counts

NAME = "prune-ledger"
DAY_MS: Final = 86_400_000
BATCH: Final = 200
ROUNDS: Final = 10
PAUSE_S: Final = 0.02  # in which others get the lock


def run_once(ledger: Ledger, settings: Settings) -> Counts:
    """One pass: up to ROUNDS batches. LedgerUnavailable is raised; what was deleted until then is."""
    gone = sum(batch.runs + batch.letters for batch in islice(batches(ledger, settings), ROUNDS))
    return Counts(taken=gone, moved=gone)


def batches(ledger: Ledger, settings: Settings) -> Iterator[Pruned]:
    """Delete batch after batch, until nothing is too old any more."""
    now = ledger.now_ms()
    moments = now - settings.ledger_runs_d * DAY_MS, now - settings.ledger_letters_d * DAY_MS
    while (gone := ledger.prune(*moments, BATCH)) != Pruned(0, 0):
        yield gone
        time.sleep(PAUSE_S)
