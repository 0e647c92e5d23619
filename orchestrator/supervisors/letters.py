"""Letters about what the store has just given up, by the supervisor that was told so. It would be a guess before: a
holder may renew, a person may answer. One that does not come through now is owed by the end of the run.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator import dead_letters
from orchestrator.dispatch import App
from orchestrator.errors import LedgerUnavailable
from orchestrator.ledger import Ledger
from orchestrator.store import Store
from orchestrator.supervisors.passes import tell_failed
from schemas.ids import RunRef


def keep_planners_letter(name: str, app: App, store: Store, ledger: Ledger, ref: RunRef) -> None:
    """About a run whose last planner was lost."""
    with _owed_by_the_end(name):
        owed = dead_letters.planners_exhaustion(store.views, ref)
        if owed is not None:
            dead_letters.about_planner(app, ledger, ref, owed)


def keep_letter(name: str, app: App, store: Store, ledger: Ledger, ref: RunRef, step_id: str) -> None:
    """About a step whose last worker was lost, or for which nobody has answered."""
    with _owed_by_the_end(name):
        step = store.views.step(ref, step_id)
        for owed in dead_letters.exhaustions(store.views, ref, step) if step else ():
            dead_letters.about_step(app, ledger, ref, step_id, owed.generation, owed.reason, owed.content, owed.cause)


@contextmanager
def _owed_by_the_end(name: str) -> Iterator[None]:
    try:
        yield
    except LedgerUnavailable as away:
        tell_failed(name, away)
