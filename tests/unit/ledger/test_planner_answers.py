"""What planners answered: kept before it is judged, once, whatever it is."""

import json

import pytest

from orchestrator.errors import NotFound
from orchestrator.ledger import Ledger
from tests.support.ledgers import accepted


def test_answers_come_back_in_order(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    second = ledger.store_answer(run_id, 1, 1, "llm", '"again"', "{}")
    first = ledger.store_answer(run_id, 1, 0, "llm", '"once"', '{"model":"m"}')
    assert ledger.planner_answers(run_id, 1) == [first, second]


def test_the_first_answer_of_a_number_stays(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    first = ledger.store_answer(run_id, 1, 0, "llm", '"first"', "{}")
    assert ledger.store_answer(run_id, 1, 0, "llm", '"second"', "{}") == first
    assert ledger.planner_answers(run_id, 1) == [first]


def test_a_new_generation_starts_without_answers(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    ledger.store_answer(run_id, 1, 0, "llm", '"old"', "{}")
    assert ledger.planner_answers(run_id, 2) == []


def test_any_text_is_kept(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    odd = "\x00 \ud800 \u202e \U0001f600"
    ledger.store_answer(run_id, 1, 0, "llm", json.dumps(odd), "{}")
    assert json.loads(ledger.planner_answers(run_id, 1)[0].raw_text) == odd


def test_a_run_that_was_never_accepted_has_no_answers(ledger: Ledger) -> None:
    with pytest.raises(NotFound):
        ledger.store_answer("no-such-run", 1, 0, "llm", '""', "{}")
