"""What one run is met with is no trouble of the others: for whoever sees to many, one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import LedgerMissing, LedgerUnavailable, StoreUnavailable, Superseded
from orchestrator.ledger import Ledger
from orchestrator.telemetry import events, recovered
from orchestrator.telemetry.logs import emit, identity


@contextmanager
def apart(ledger: Ledger, run_id: str, failed: list[Exception]) -> Iterator[None]:
    """What is met with in this block is told, and kept in `failed`, unless it concerns all."""
    with identity(run_id=run_id):
        try:
            yield
        except Exception as error:  # noqa: BLE001  # rows of older releases and users' own databases have a say in it
            raise_what_concerns_all(ledger, error)
            failed.append(error)
            emit(recovered.RunNotBuilt(events.kind(error), events.where(error)))


def raise_what_concerns_all(ledger: Ledger, error: Exception) -> None:
    """Raise if others would fare no better: the store is away, another has begun, or the ledger is away, and not only
    a database of a user's own."""
    if isinstance(error, StoreUnavailable | Superseded):
        raise error
    if isinstance(error, LedgerUnavailable | LedgerMissing):
        ledger.check_schema()
