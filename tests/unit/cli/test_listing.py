"""`run list`: what fits a terminal, and what is known when the store is away."""

from orchestrator import listing
from orchestrator.cli.listing import fitting
from orchestrator.errors import StoreUnavailable
from orchestrator.ledger import ListedRun
from orchestrator.store import Store
from schemas.states import RunStatus
from tests.support.following import NOW, RUN_ID, state

COLUMNS = {
    "id": [RUN_ID, RUN_ID],
    "status": ["succeeded", "failed"],
    "age": ["4 s", "12 min"],
    "planner": ["orders.fulfil", ""],
    "session": ["", ""],
    "reason": ["", "step_failed:charge-the-card"],
}


def open_run() -> ListedRun:
    return ListedRun(RUN_ID, "-", None, "r", "orders.fulfil", NOW, 1, RunStatus.ACCEPTED, None, None)


def width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(len, [name, *cells])) for name, cells in columns.items()) + 2 * (len(columns) - 1)


def test_a_wide_terminal_has_room_for_all_that_is_not_empty() -> None:
    assert fitting(COLUMNS, 200) == {name: cells for name, cells in COLUMNS.items() if name != "session"}


def test_a_narrower_one_cuts_the_last_column_and_then_leaves_columns_out() -> None:
    cut = fitting(COLUMNS, 92)
    assert list(cut) == ["id", "status", "age", "planner", "reason"]
    assert cut["reason"][1].endswith("…")
    assert width(cut) <= 92
    assert list(fitting(COLUMNS, 60)) == ["id", "status", "age"]


def test_which_run_it_is_and_how_it_stands_is_never_left_out() -> None:
    assert list(fitting(COLUMNS, 10)) == ["id", "status", "age"]


def test_how_an_open_run_stands_is_the_store_s_to_say() -> None:
    line = listing.line(open_run(), state("failing", reason="step_failed:s0"))
    assert (line.status, line.reason, line.ended_at, line.source) == ("failing", "step_failed:s0", None, "store")
    ended = listing.line(open_run(), state("failed", ended_at=NOW))
    assert (ended.status, ended.ended_at) == ("failed", NOW)
    unknown = listing.line(open_run(), None)
    assert (unknown.status, unknown.source) == ("accepted", "ledger")


def test_a_store_that_is_away_is_asked_once() -> None:
    asked: list[str] = []

    def store() -> Store:
        asked.append("store")
        raise StoreUnavailable("away", hint="start it")

    states, trouble = listing.states(store, [open_run(), open_run()])
    assert (states, str(trouble), asked) == ({}, "away (start it)", ["store"])
