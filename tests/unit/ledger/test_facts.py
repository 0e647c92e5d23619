"""Runs, plans, ends, decisions, letters and epochs: what the first call keeps, and what a repeat answers."""

from dataclasses import replace
from itertools import count

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import IntegrityError

from orchestrator.errors import ConfigError, NotFound
from orchestrator.ledger import Accepted, ConflictingSubmission, Ledger, open_ledger
from orchestrator.ledger.tables import decisions, effects, runs
from schemas.canonical import hash_of
from schemas.dead_letter import DeadLetterKind
from schemas.states import RunStatus
from tests.support.ledgers import NAMESPACE, accepted, letter_named, run_named


@pytest.fixture
def ticking(ledger_url: str) -> Ledger:
    """A ledger whose clock counts calls, from 1."""
    return open_ledger(ledger_url, clock=count(1).__next__)


def test_an_accepted_run_comes_back_whole(ticking: Ledger) -> None:
    run = run_named("order-1", session_id="shop")
    answer = ticking.accept(run)
    assert isinstance(answer, Accepted)
    assert answer.created
    assert answer.run == ticking.run(run.run_id)
    for field in ("session", "session_id", "request_id", "principal", "submission_text", "policy_text", "deadline_ms"):
        assert getattr(answer.run, field) == getattr(run, field)
    assert (answer.run.status, answer.run.generation, answer.run.version) == (RunStatus.ACCEPTED, 1, 0)
    assert (answer.run.accepted_at, answer.run.ended_at, answer.run.plan_hash) == (1, None, None)


def test_labels_that_no_database_takes_are_written_out(ledger: Ledger) -> None:
    run = run_named("order\x00-1", session_id="shop\x00")
    answer = ledger.accept(run)
    assert isinstance(answer, Accepted)
    assert (answer.run.run_id, answer.run.request_id, answer.run.session_id) == (
        run.run_id,
        "order\\x00-1",
        "shop\\x00",
    )
    again = ledger.accept(run)
    assert isinstance(again, Accepted)
    assert not again.created


def test_the_same_submission_again_finds_the_run_that_stands(ledger: Ledger) -> None:
    first = accepted(ledger, "order-1")
    assert ledger.accept(run_named("order-1")) == Accepted(False, first)


def test_a_repeat_after_the_end_sees_the_end(ledger: Ledger) -> None:
    run = accepted(ledger, "order-1")
    ledger.end_run(run.run_id, 1, RunStatus.SUCCEEDED, None, 9, 1_000)
    answer = ledger.accept(run_named("order-1"))
    assert isinstance(answer, Accepted)
    assert answer.run.status is RunStatus.SUCCEEDED


def test_another_submission_under_the_same_name_is_a_conflict(ledger: Ledger) -> None:
    run = accepted(ledger, "order-1")
    other = run_named("order-1", submission_hash="d" * 64)
    assert ledger.accept(other) == ConflictingSubmission(run.run_id, run.submission_hash)
    assert ledger.run(run.run_id) == run


@pytest.mark.parametrize("kept", ['{"context":" {\\"a\\": 1}"}', '{"context":{"a":1},"policy":{}}'])
def test_a_row_of_an_older_release_is_known_by_what_it_says(ledger: Ledger, kept: str) -> None:
    """Once the text of a context was kept, and hashed, as it was spelt."""
    run = replace(run_named("order-1", submission_hash="9" * 64), submission_text=kept)
    ledger.accept(run)
    same = run_named("order-1", submission_hash=hash_of({"context": {"a": 1}}))
    answer = ledger.accept(same)
    assert isinstance(answer, Accepted)
    assert (answer.created, answer.run.submission_hash) == (False, run.submission_hash)
    other = run_named("order-1", submission_hash=hash_of({"context": {"a": 2}}))
    assert ledger.accept(other) == ConflictingSubmission(run.run_id, run.submission_hash)


def test_an_unknown_run_is_none(ledger: Ledger) -> None:
    assert ledger.run("no-such-run") is None


def test_the_first_plan_of_a_generation_stays(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    first = ledger.store_plan(run_id, 1, "1" * 64, '{"first":1}', "orders.fulfil")
    assert ledger.store_plan(run_id, 1, "2" * 64, '{"second":1}', None) == first
    assert ledger.plan(run_id, 1) == first
    assert ledger.plan(run_id, 2) is None


def test_a_run_shows_the_hash_of_its_newest_plan(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    ledger.store_plan(run_id, 1, "1" * 64, "{}", None)
    ledger.store_plan(run_id, 2, "2" * 64, "{}", None)
    run = ledger.run(run_id)
    assert run is not None
    assert run.plan_hash == "2" * 64


def test_a_run_ends_once(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    assert ledger.end_run(run_id, 1, RunStatus.FAILED, "step charge failed", 12, 1_000)
    assert not ledger.end_run(run_id, 1, RunStatus.SUCCEEDED, None, 13, 2_000)
    run = ledger.run(run_id)
    assert run is not None
    assert (run.status, run.reason, run.version, run.ended_at) == (RunStatus.FAILED, "step charge failed", 12, 1_000)


def test_a_later_generation_ends_again_and_an_earlier_one_does_not(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    ledger.end_run(run_id, 1, RunStatus.FAILED, "step charge failed", 12, 1_000)
    assert ledger.end_run(run_id, 2, RunStatus.SUCCEEDED, None, 20, 2_000)
    assert not ledger.end_run(run_id, 1, RunStatus.FAILED, None, 12, 1_000)
    run = ledger.run(run_id)
    assert run is not None
    assert (run.generation, run.status, run.ended_at) == (2, RunStatus.SUCCEEDED, 2_000)


def test_what_belongs_to_a_run_needs_the_run(ledger: Ledger) -> None:
    for write in (
        lambda: ledger.store_plan("nobody", 1, "1" * 64, "{}", None),
        lambda: ledger.end_run("nobody", 1, RunStatus.FAILED, None, 1, 1),
        lambda: ledger.decide("nobody", 1, "cancel", "ada", None),
    ):
        with pytest.raises(NotFound, match="knows no run nobody"):
            write()


def test_runs_are_listed_newest_first_in_pages(ticking: Ledger) -> None:
    ids = [accepted(ticking, f"order-{number}").run_id for number in range(5)]
    newest_first = ids[::-1]
    first = ticking.listed(2)
    assert [run.run_id for run in first] == newest_first[:2]
    assert [run.run_id for run in ticking.listed(10, before=first[-1].run_id)] == newest_first[2:]
    assert ticking.listed(10, before="gone") == []


def test_pages_miss_nothing_among_runs_of_one_moment(ledger: Ledger, ledger_url: str) -> None:
    frozen = open_ledger(ledger_url, clock=lambda: 5)
    ids = {accepted(frozen, f"order-{number}").run_id for number in range(7)}
    seen: list[str] = []
    while page := ledger.listed(3, before=seen[-1] if seen else None):
        seen += [run.run_id for run in page]
    assert len(seen) == 7
    assert set(seen) == ids


def test_open_runs_are_walked_by_id(ledger: Ledger) -> None:
    ids = sorted(accepted(ledger, f"order-{number}").run_id for number in range(5))
    ledger.end_run(ids[1], 1, RunStatus.SUCCEEDED, None, 9, 1)
    assert [run.run_id for run in ledger.open_runs(None, 2, NAMESPACE)] == [ids[0], ids[2]]
    assert [run.run_id for run in ledger.open_runs(ids[2], 10, NAMESPACE)] == ids[3:]


def test_a_decision_waits_until_it_is_done(ticking: Ledger) -> None:
    run_id = accepted(ticking, "order-1").run_id
    decision_id = ticking.decide(run_id, 1, "cancel", "ada", "wrong address")
    assert ticking.decide(run_id, 1, "cancel", "bob", None) == decision_id
    (pending,) = ticking.pending_decisions(10)
    assert (pending.id, pending.made_by, pending.reason, pending.outcome) == (decision_id, "ada", "wrong address", None)
    assert ticking.decision_done(decision_id, "cancelled")
    assert not ticking.decision_done(decision_id, "too_late")
    assert ticking.pending_decisions(10) == []


def test_a_decision_can_be_made_again_once_it_is_done_or_for_another_generation(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    first = ledger.decide(run_id, 1, "cancel", "ada", None)
    assert ledger.decide(run_id, 2, "cancel", "ada", None) != first
    ledger.decision_done(first, "too_late")
    assert ledger.decide(run_id, 1, "cancel", "ada", None) != first


def test_decisions_come_oldest_first(ticking: Ledger) -> None:
    run_id = accepted(ticking, "order-1").run_id
    made = [ticking.decide(run_id, generation, "cancel", "ada", None) for generation in (3, 1, 2)]
    first = ticking.pending_decisions(2)
    assert [decision.id for decision in first] == made[:2]
    assert [decision.id for decision in ticking.pending_decisions(2, after=first[1])] == made[2:]


def test_one_letter_stands_for_a_cause(ledger: Ledger) -> None:
    assert ledger.write_letter(letter_named("l1"), "plan:r:1", NAMESPACE) == "l1"
    assert ledger.write_letter(letter_named("l2"), "plan:r:1", NAMESPACE) == "l1"
    assert ledger.letter("l1") == letter_named("l1")
    assert ledger.letter("l2") is None


def test_a_letter_holds_whatever_was_sent(ledger: Ledger) -> None:
    hostile = {"raw": "half a pair \ud800, a NUL \x00, and \u2028"}
    letter = letter_named("l1").model_copy(update={"content": hostile, "reason": "bad \ud800\x00 text"})
    ledger.write_letter(letter, "message:\ud800\x00" + "long" * 1_000, NAMESPACE)
    stands = ledger.letter("l1")
    assert stands is not None
    assert stands.content == hostile
    assert stands.reason == "bad \\ud800\\x00 text"


def test_letters_are_listed_newest_first_by_kind_and_run(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    for number in range(4):
        letter = letter_named(f"l{number}", created_at=number, run_id=run_id if number % 2 else None)
        ledger.write_letter(letter, f"{number}", NAMESPACE)
    step = letter_named("s", created_at=9).model_copy(update={"kind": DeadLetterKind.STEP})
    ledger.write_letter(step, "s", NAMESPACE)
    assert [letter.id for letter in ledger.letters(3)] == ["s", "l3", "l2"]
    assert [letter.id for letter in ledger.letters(9, before="l2")] == ["l1", "l0"]
    assert [letter.id for letter in ledger.letters(9, kind=DeadLetterKind.STEP)] == ["s"]
    assert [letter.id for letter in ledger.letters(9, run_id=run_id)] == ["l3", "l1"]


def test_an_epoch_is_drawn_once_per_namespace(ledger: Ledger) -> None:
    assert ledger.epoch("mandor") is None
    epoch = ledger.create_epoch("mandor", 16)
    assert ledger.create_epoch("mandor", 16) == epoch == ledger.epoch("mandor")
    assert ledger.create_epoch("other", 4).epoch != epoch.epoch


def test_another_number_of_shards_is_refused(ledger: Ledger) -> None:
    epoch = ledger.create_epoch("mandor", 16)
    with pytest.raises(ConfigError, match=r"16 shards.* asks for 8") as refused:
        ledger.create_epoch("mandor", 8)
    assert refused.value.path == "MANDOR_SHARDS"
    assert "MANDOR_SHARDS=16" in (refused.value.hint or "")
    assert ledger.epoch("mandor") == epoch


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "opens"},
        {"kind": "redo"},
        {"state": "landed", "result_text": None},
        {"state": "open", "since": 0},
    ],
)
def test_the_database_itself_refuses_impossible_effects(ledger: Ledger, wrong: dict[str, object]) -> None:
    sound = {"run_id": "r", "step_id": "s", "kind": "do", "state": "none", "since": 0, "closed_to": 0, "landed_by": 0}
    sound |= {"late": False, "updated_at": 1}
    with pytest.raises(IntegrityError), ledger.begin() as connection:
        connection.execute(insert(effects).values(**{**sound, **wrong}))


def test_the_database_itself_refuses_unknown_states_and_orphans(ledger: Ledger) -> None:
    run_id = accepted(ledger, "order-1").run_id
    with pytest.raises(IntegrityError), ledger.begin() as connection:
        connection.execute(runs.update().where(runs.c.run_id == run_id).values(status="lost"))
    orphan = {"id": "d", "run_id": "nobody", "generation": 1, "kind": "cancel", "made_by": "ada", "created_at": 1}
    with pytest.raises(IntegrityError), ledger.begin() as connection:
        connection.execute(insert(decisions).values(**orphan))


def test_a_failed_transaction_names_no_values(ledger: Ledger) -> None:
    with pytest.raises(IntegrityError) as failed, ledger.begin() as connection:
        connection.execute(text("INSERT INTO epochs VALUES (:secret, 'e', 0, 1)"), {"secret": "hunter2"})
    assert "hunter2" not in str(failed.value)
