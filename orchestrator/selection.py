"""Runs by what they are instead of by their ids: for decisions about many at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.ledger import LedgerRun
from orchestrator.lookup import Lookup
from schemas.states import RUN_TERMINAL, RunStatus

PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """Of which runs. status None: of all that have not ended; session_id None: of every session."""

    status: RunStatus | None = None
    session_id: str | None = None


def find(lookup: Lookup, wanted: Wanted) -> Iterator[LedgerRun]:
    """The runs, in the order of their ids. How one stands that has not ended, only the state store knows."""
    ended = wanted.status if wanted.status in RUN_TERMINAL else None
    after: str | None = None
    while page := lookup.page(after, PAGE, ended, wanted.session_id):
        yield from (row for row in page if ended or _stands(lookup, row, wanted.status))
        after = page[-1].run_id


def _stands(lookup: Lookup, row: LedgerRun, status: RunStatus | None) -> bool:
    state = lookup.state(row)
    if state is None:
        return False
    return state.status == status if status else state.status not in RUN_TERMINAL
