"""Which runs a search finds, on each kind of database, and that its pages miss none."""

from dataclasses import replace
from itertools import count

import pytest

from orchestrator.ledger import Accepted, Ledger, RunFilter, open_ledger
from schemas.states import RunStatus
from tests.support.ledgers import run_named

PLAN = '{"steps":[{"action":"stock.take"},{"action":"mail.send"},{"action":"mail.send"}]}'


@pytest.fixture
def ledger(ledger_url: str) -> Ledger:
    """Accepted at 1 to 6: a to f. b has a plan and succeeded, c has another planner, d failed with two errors, e
    has a plan and failed too, f is open, with a plan.
    """
    made = open_ledger(ledger_url, clock=count(1).__next__)
    runs = [replace(run_named(name), planner="orders.fulfil" if name == "c" else "counting") for name in "abcdef"]
    ids = {run.request_id: run.run_id for run in runs}
    for run in runs:
        assert isinstance(made.accept(run), Accepted)
    for name in "bef":
        made.store_plan(ids[name], 1, "1" * 64, PLAN, "counting")
    made.end_run(ids["b"], 1, RunStatus.SUCCEEDED, None, 9, 10)
    made.end_run(ids["d"], 1, RunStatus.FAILED, "step_failed:s0", 9, 10, {"step_timeout", "odd"})
    made.end_run(ids["e"], 1, RunStatus.FAILED, "step_failed:s0", 9, 10, {"odd"})
    return made


def found(ledger: Ledger, wanted: RunFilter, page: int = 10) -> str:
    """Names of what is found, read in pages."""
    names, before = "", None
    while rows := ledger.listed(page, before, wanted):
        names += "".join(row.request_id for row in rows)
        before = rows[-1].run_id
    return names


@pytest.mark.parametrize("page", [1, 2, 10])
@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (RunFilter(), "fedcba"),
        (RunFilter(ended=True), "edb"),
        (RunFilter(ended=False), "fca"),
        (RunFilter(status=RunStatus.FAILED), "ed"),
        (RunFilter(planner="orders.fulfil"), "c"),
        (RunFilter(action="mail.send"), "feb"),
        (RunFilter(action="mail.send", status=RunStatus.SUCCEEDED), "b"),
        (RunFilter(action="mail"), ""),
        (RunFilter(error="odd"), "ed"),
        (RunFilter(error="step_timeout"), "d"),
        (RunFilter(error="odd", action="stock.take"), "e"),
        (RunFilter(since=3, until=5), "dc"),
        (RunFilter(since=3, action="stock.take"), "fe"),
        (RunFilter(session_id="nobody's"), ""),
    ],
)
def test_what_is_found(ledger: Ledger, wanted: RunFilter, names: str, page: int) -> None:
    assert found(ledger, wanted, page) == names


def test_a_session_is_found_by_its_whole_name(ledger_url: str) -> None:
    ledger = open_ledger(ledger_url)
    for session in ("shop", "shop-2"):
        ledger.accept(run_named(f"of {session}", session_id=session))
    assert found(ledger, RunFilter(session_id="shop")) == "of shop"


def test_a_run_that_is_started_over_is_found_by_what_it_ended_with_last(ledger: Ledger) -> None:
    (row,) = ledger.listed(9, None, RunFilter(error="step_timeout"))
    ledger.reopen_run(row.run_id, 2, RunStatus.RUNNING)
    ledger.end_run(row.run_id, 2, RunStatus.FAILED, None, 20, 20, {"other"})
    assert found(ledger, RunFilter(error="step_timeout")) == ""
    assert found(ledger, RunFilter(error="other")) == "d"


def test_what_cannot_be_a_word_is_written_out(ledger: Ledger) -> None:
    (row,) = ledger.listed(1, None, RunFilter(ended=False))
    ledger.end_run(row.run_id, 1, RunStatus.FAILED, None, 20, 20, {"a\x00b"})
    assert found(ledger, RunFilter(error="a\\x00b")) == "f"
