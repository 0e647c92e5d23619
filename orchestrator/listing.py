"""Lists of runs: which there are is the ledger's to say, how those stand that have no end yet is the store's."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from orchestrator.errors import NotFound, StoreError
from orchestrator.ledger import ANY_RUN, Ledger, ListedRun, RunFilter
from orchestrator.store import Store
from orchestrator.store.views import RunState
from schemas.ids import RunRef
from schemas.run import RunLine
from schemas.states import RUN_TERMINAL, RunStatus


@dataclass(frozen=True, slots=True)
class RunPage:
    """next: where the following page begins, None after the last; trouble: why the store was not asked to the end."""

    runs: tuple[RunLine, ...]
    next: str | None
    trouble: StoreError | None


def page(
    ledger: Ledger, store: Callable[[], Store], limit: int, before: str | None = None, wanted: RunFilter = ANY_RUN
) -> RunPage:
    """A page of runs, newest first, older than the run `before`, of the runs that are wanted.

    store: called if a run on the page has not ended. A store that cannot be asked takes nothing from the page but how
    such runs stand. A status that is no end is the store's to say: a page may then have fewer runs than there are, or
    none, and a next one. NotFound: `before` is no run. LedgerError as it comes.
    """
    asked = wanted if wanted.status is None else in_ledger(wanted, wanted.status)
    found = ledger.listed(limit + 1, before, asked)
    if not found and before is not None and ledger.run(before) is None:
        raise NotFound(f"no run {before}", path="before", hint="`next` of the page before is what to give")
    rows = found[:limit]
    known, trouble = states(store, [row for row in rows if row.ended_at is None])
    lines = [line(row, known.get(row.run_id)) for row in rows]
    shown = tuple(one for one in lines if wanted.status in (None, one.status))
    return RunPage(shown, rows[-1].run_id if len(found) > limit else None, trouble)


def in_ledger(wanted: RunFilter, status: RunStatus) -> RunFilter:
    """What to ask the ledger for runs of a status: it knows the ends, and of all others only that they have none."""
    if status in RUN_TERMINAL:
        return replace(wanted, ended=True)
    return replace(wanted, status=None, ended=False)


def states(
    store: Callable[[], Store], rows: Iterable[ListedRun]
) -> tuple[dict[str, RunState | None], StoreError | None]:
    """How these runs stand, by id, as far as the store could be asked, and why it could not be asked further."""
    found: dict[str, RunState | None] = {}
    try:
        for row in rows:
            found[row.run_id] = store().views.run(RunRef(row.run_id, row.session))
    except StoreError as trouble:
        return found, trouble
    return found, None


def line(row: ListedRun, state: RunState | None) -> RunLine:
    """One run, as whoever knows it best tells it."""
    ended = state is not None and state.status in RUN_TERMINAL
    return RunLine(
        run_id=row.run_id,
        status=RunStatus(state.status) if state else row.status,
        reason=(state.reason or None) if state else row.reason,
        planner=row.planner,
        session_id=row.session_id,
        request_id=row.request_id,
        generation=state.generation if state else row.generation,
        created_at=row.accepted_at,
        ended_at=state.ended_at if state and ended else row.ended_at,
        source="store" if state else "ledger",
    )
