"""What an older release did not note of runs that are under way, taken from the state store while that still knows it.

Whose a run is, where several installations have used the ledger; and the steps of a plan as they were admitted, from
which a run is built again. Repeated, it finds nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from orchestrator.ledger import Ledger
from orchestrator.recovery import rebuild
from orchestrator.store import Store
from schemas.ids import RunRef

PAGE: Final = 500
NOBODYS: Final = ""
Apart = Callable[[str], AbstractContextManager[object]]


def adopt(ledger: Ledger, store: Store, namespace: str, apart: Apart = lambda _: nullcontext()) -> None:
    """Note what is missing of all runs without an end that the store has. apart: surrounds what is done about one run,
    by its id."""
    for page in _pages(lambda after: ledger.open_refs(after, PAGE, NOBODYS)):
        for ref in page:
            with apart(ref.run_id):
                _claim(ledger, store, ref, namespace)
    for page in _pages(lambda after: ledger.open_refs(after, PAGE, namespace)):
        lacking = ledger.history.without_admitted([ref.run_id for ref in page])
        for ref in page:
            if ref.run_id in lacking:
                with apart(ref.run_id):
                    _keep_plan(ledger, store, ref)


def _claim(ledger: Ledger, store: Store, ref: RunRef, namespace: str) -> None:
    if store.views.run(ref) is not None:
        ledger.claim_run(ref.run_id, namespace)


def _keep_plan(ledger: Ledger, store: Store, ref: RunRef) -> None:
    plan, run = store.restoring.admitted(ref), store.views.run(ref)
    if plan is not None and run is not None:
        ledger.history.keep_admitted(ref.run_id, run.generation, rebuild.as_admitted(plan, run.stop_grace_ms))


def _pages(read: Callable[[str | None], Sequence[RunRef]]) -> Iterator[Sequence[RunRef]]:
    after: str | None = None
    while page := read(after):
        yield page
        after = page[-1].run_id
