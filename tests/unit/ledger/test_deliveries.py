"""Callbacks in the ledger, on each kind of database: owed with the end, given out once, never told under two ids."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, event, select

from orchestrator.ledger import Accepted, DeliveryState, Due, Ledger, Outcome, open_ledger, prune
from orchestrator.ledger.deliveries import AT_ONCE, TROUBLE_MS, TROUBLED_AT_ONCE
from orchestrator.ledger.tables import deliveries
from schemas.callback import delivery_id
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.states import RunStatus
from tests.support.ledgers import NAMESPACE, fresh_ledger, run_named

HOLD_MS = 1000
FAILED = Outcome(DeliveryState.PENDING, 500, "status", 0)


class Clock:
    """Moves when it is told to."""

    now = 10_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(ledger_url: str, clock: Clock) -> Iterator[Ledger]:
    made = open_ledger(ledger_url, clock=clock)
    yield made
    made.close()


def accepted(ledger: Ledger, name: str = "r", callback: str | None = "https://example.com/hook") -> str:
    answer = ledger.accept(run_named(name, callback=callback))
    assert isinstance(answer, Accepted)
    return answer.run.run_id


def ended(
    ledger: Ledger, name: str = "r", callback: str | None = "https://example.com/hook", ended_at: int = 100
) -> str:
    """A run that has ended; answers the id of its callback."""
    run_id = accepted(ledger, name, callback)
    assert ledger.end_run(run_id, 1, RunStatus.FAILED, "step_failed:a", 9, ended_at)
    return delivery_id(run_id, 1)


def take(ledger: Ledger, most: int = 100) -> list[Due]:
    return ledger.deliveries.take(NAMESPACE, most, HOLD_MS)


def letter(run_id: str, name: str = "l1") -> DeadLetter:
    return DeadLetter(id=name, kind=DeadLetterKind.DELIVERY, run_id=run_id, step_id=None, reason="no", created_at=1)


def test_an_end_owes_its_callback_and_says_how_it_was(kept: Ledger) -> None:
    run_id = accepted(kept)
    assert take(kept) == []
    assert kept.deliveries.newest_of(run_id) is None
    kept.end_run(run_id, 1, RunStatus.SUCCEEDED, None, 9, 100)
    assert take(kept) == [Due(delivery_id(run_id, 1), 0)]
    told = kept.deliveries.newest_of(run_id)
    assert told is not None
    assert json.loads(told.body_text) == {
        "type": "run.succeeded",
        "timestamp": "1970-01-01T00:00:00.100Z",
        "data": {
            "run_id": run_id,
            "request_id": "r",
            "session_id": None,
            "status": "succeeded",
            "reason": None,
            "generation": 1,
            "ended_at": "1970-01-01T00:00:00.100Z",
        },
    }


def test_who_asked_for_nothing_is_told_nothing(kept: Ledger) -> None:
    ended(kept, callback=None)
    assert take(kept) == []


def test_an_end_told_twice_owes_one_callback_and_another_generation_another(kept: Ledger) -> None:
    first = ended(kept)
    told = kept.deliveries.one(first)
    assert told is not None
    assert not kept.end_run(told.run_id, 1, RunStatus.CANCELLED, "late", 10, 200)
    assert kept.deliveries.one(first) == told
    kept.reopen_run(told.run_id, 2, RunStatus.RUNNING)
    assert kept.end_run(told.run_id, 2, RunStatus.SUCCEEDED, None, 20, 300)
    again = kept.deliveries.newest_of(told.run_id)
    assert again is not None
    assert (again.id, again.generation) == (delivery_id(told.run_id, 2), 2)
    assert {due.id for due in take(kept)} == {first, again.id}


@pytest.mark.parametrize("url", ["no url at all", "https://[/", "https://?", ""])
def test_no_url_holds_up_the_end(kept: Ledger, url: str) -> None:
    """What one release accepted, the next may refuse: where it is posted, not here."""
    given = ended(kept, callback=url)
    assert [due.id for due in take(kept)] == [given]


def test_what_is_due_is_found_by_its_index(tmp_path: Path) -> None:
    """Only text shows SQLite that a query stays within what the index holds."""
    ledger, said = fresh_ledger(tmp_path), list[tuple[str, Any]]()
    with ledger.begin() as connection:
        event.listen(connection.engine, "before_cursor_execute", lambda *one: said.append((one[2], one[3])))
    ledger.deliveries.is_any_due(NAMESPACE)
    ((looked, values),) = [one for one in said if "deliveries" in one[0]]
    with ledger.begin() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {looked}", values).all()
    assert "USING INDEX deliveries_owed (namespace=? AND due_at<?)" in str(plan)
    ledger.close()


def test_what_breaks_off_the_end_owes_nothing(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction: neither is there without the other."""
    run_id = accepted(kept)

    def breaks(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.ledger.writes.body_of", breaks)
        with pytest.raises(KeyboardInterrupt):
            kept.end_run(run_id, 1, RunStatus.SUCCEEDED, None, 9, 100)
    row = kept.run(run_id)
    assert row is not None
    assert row.ended_at is None
    assert kept.end_run(run_id, 1, RunStatus.SUCCEEDED, None, 9, 100)
    assert len(take(kept)) == 1


def test_what_was_given_out_comes_again_when_nothing_is_heard_of_it(kept: Ledger, clock: Clock) -> None:
    ended(kept)
    (due,) = take(kept)
    assert take(kept) == []
    clock.now += HOLD_MS
    assert take(kept) == [due]
    assert kept.deliveries.claim(due, HOLD_MS) is not None
    assert take(kept) == []
    clock.now += HOLD_MS
    assert take(kept) == [Due(due.id, 1)]


def at_once(call: Callable[[], object]) -> list[object]:
    with ThreadPoolExecutor(4) as pool:
        return [future.result() for future in [pool.submit(call) for _ in range(4)]]


def test_of_several_at_once_one_has_it(kept: Ledger) -> None:
    ended(kept)
    given = [due for found in at_once(lambda: take(kept)) for due in found]  # type: ignore[attr-defined]
    assert len(given) == 1
    claims = at_once(lambda: kept.deliveries.claim(given[0], HOLD_MS))
    assert sum(claim is not None for claim in claims) == 1


def test_only_the_current_attempt_says_what_came_of_it_but_delivered_is_delivered(kept: Ledger, clock: Clock) -> None:
    ended(kept)
    (due,) = take(kept)
    frozen = kept.deliveries.claim(due, HOLD_MS)
    assert frozen is not None
    clock.now += HOLD_MS
    (again,) = take(kept)
    current = kept.deliveries.claim(again, HOLD_MS)
    assert current is not None
    assert not kept.deliveries.note(frozen, FAILED)
    gone = Outcome(DeliveryState.GIVEN_UP, 500, "status")
    assert kept.deliveries.give_up(frozen, gone, letter(frozen.run_id), "k", NAMESPACE) is None
    assert kept.letters(9) == []
    assert kept.deliveries.note(frozen, Outcome(DeliveryState.DELIVERED, 204))
    assert not kept.deliveries.note(current, FAILED)
    told = kept.deliveries.one(due.id)
    assert told is not None
    assert (told.state, told.status_code) == (DeliveryState.DELIVERED, 204)


def given_up(kept: Ledger, attempts: int = 1) -> str:
    """A callback that was given up, with its letter."""
    due = Due(ended(kept), 0)
    take(kept)
    claim = kept.deliveries.claim(due, HOLD_MS)
    assert claim is not None
    gone = Outcome(DeliveryState.GIVEN_UP, 500, "status")
    assert kept.deliveries.give_up(claim, gone, letter(claim.run_id), "k", NAMESPACE) == "l1"
    return due.id


def test_giving_up_and_its_letter_are_one_transaction(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.ledger.letters.write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            given_up(kept)
    (run,) = kept.listed(9)
    told = kept.deliveries.newest_of(run.run_id)
    assert told is not None
    assert told.state is DeliveryState.PENDING
    assert kept.letters(9) == []


def test_what_was_given_up_is_sent_again_once_with_a_full_round(kept: Ledger) -> None:
    given = given_up(kept)
    assert not kept.deliveries.send_again(given, given_up_after=7)
    assert sorted(at_once(lambda: kept.deliveries.send_again(given, given_up_after=1)), key=str) == [
        False,
        False,
        False,
        True,
    ]
    (due,) = take(kept)
    claim = kept.deliveries.claim(due, HOLD_MS)
    assert claim is not None
    assert (claim.id, claim.attempts, claim.number) == (given, 2, 1)
    assert kept.deliveries.note(claim, Outcome(DeliveryState.DELIVERED, 200))
    assert not kept.deliveries.send_again(given, given_up_after=1)
    assert take(kept) == []
    assert kept.deliveries.send_again(given)
    assert len(take(kept)) == 1


def test_another_installation_on_the_ledger_has_its_own(kept: Ledger) -> None:
    ended(kept)
    assert kept.deliveries.take("theirs", 9, HOLD_MS) == []


def attempted(kept: Ledger, due: Due, outcome: Outcome) -> None:
    claim = kept.deliveries.claim(due, HOLD_MS)
    assert claim is not None
    assert kept.deliveries.note(claim, outcome)


def silent_until(due_at: int) -> Outcome:
    return Outcome(DeliveryState.PENDING, None, "timeout", due_at)


def many(kept: Ledger, host: str, number: int) -> list[str]:
    """So many callbacks to a host."""
    return [ended(kept, f"{host}{nth}", f"https://{host}/{nth}", nth) for nth in range(number)]


def test_hosts_have_their_turn_and_one_that_is_silent_holds_up_nobody(kept: Ledger, clock: Clock) -> None:
    """wh-05"""
    slow = many(kept, "slow.test", 20)
    quick = ended(kept, "quick", "https://quick.test/", 99)
    assert quick in [due.id for due in take(kept, 4)]
    clock.now += HOLD_MS
    attempted(kept, Due(slow[19], 0), silent_until(0))
    found = {due.id for due in take(kept)}
    assert quick in found
    assert len(found & set(slow)) == 2
    assert take(kept) == []


def test_of_a_host_that_nobody_knows_only_some_are_in_hand(kept: Ledger) -> None:
    """wh-05"""
    many(kept, "new.test", 30)
    assert len(take(kept)) == AT_ONCE
    assert take(kept) == []


def test_a_silent_host_is_held_back_between_its_attempts_too(kept: Ledger, clock: Clock) -> None:
    """wh-05: those that were never tried are no better than those that wait for their next attempt."""
    slow = many(kept, "slow.test", 20)
    attempted(kept, Due(slow[0], 0), silent_until(clock.now + 10_000))
    assert len(take(kept)) == TROUBLED_AT_ONCE


def test_one_that_waits_for_hours_holds_back_nobody(kept: Ledger, clock: Clock) -> None:
    slow = many(kept, "slow.test", 20)
    attempted(kept, Due(slow[0], 0), silent_until(clock.now + 8 * 3_600_000))
    clock.now += TROUBLE_MS
    assert len(take(kept)) == AT_ONCE


@pytest.mark.parametrize("answer", [Outcome(DeliveryState.DELIVERED, 204), FAILED], ids=["delivered", "refused"])
def test_a_host_that_answers_again_is_held_back_no_longer(kept: Ledger, clock: Clock, answer: Outcome) -> None:
    back = many(kept, "back.test", 20)
    for silent in back[:5]:
        attempted(kept, Due(silent, 0), silent_until(clock.now))
    (first, _) = take(kept)
    attempted(kept, first, answer)
    assert len(take(kept)) == AT_ONCE - 1


def test_one_host_that_has_its_full_share_in_hand_costs_no_other_its_turn(kept: Ledger) -> None:
    many(kept, "a.test", 30)
    assert len(take(kept, AT_ONCE)) == AT_ONCE
    others = many(kept, "b.test", 2)
    assert [due.id for due in take(kept, 2)] == others


@pytest.mark.parametrize("places", ["postgresql"], indirect=True)
def test_what_somebody_else_is_at_is_left_out_and_not_waited_for(kept: Ledger) -> None:
    """Whoever changes several rows waits for none, so no two can wait for each other. (SQLite has one writer.)"""
    held, free = many(kept, "a.test", 2)
    with kept.begin() as connection:
        connection.execute(select(deliveries.c.id).where(deliveries.c.id == held).with_for_update())
        with ThreadPoolExecutor(1) as other:
            assert [due.id for due in other.submit(take, kept).result()] == [free]
    assert [due.id for due in take(kept)] == [held]


def test_delivered_counts_of_what_was_given_up_meanwhile_but_not_of_a_new_round(kept: Ledger, clock: Clock) -> None:
    """A frozen sender wakes: the receiver has what it sent, not what was asked for afterwards."""
    id_ = ended(kept)
    frozen = kept.deliveries.claim(Due(id_, 0), HOLD_MS)
    last = kept.deliveries.claim(Due(id_, 1), HOLD_MS)
    assert frozen is not None
    assert last is not None
    gone = Outcome(DeliveryState.GIVEN_UP, 500, "status")
    assert kept.deliveries.give_up(last, gone, letter(last.run_id), "k", NAMESPACE)
    delivered = Outcome(DeliveryState.DELIVERED, 204)
    assert kept.deliveries.note(frozen, delivered)
    assert not kept.deliveries.send_again(id_, given_up_after=2)
    assert kept.deliveries.send_again(id_)
    assert not kept.deliveries.note(frozen, delivered)
    told = kept.deliveries.one(id_)
    assert told is not None
    assert told.state is DeliveryState.PENDING


def test_a_run_whose_end_is_still_to_be_told_is_kept(kept: Ledger) -> None:
    untold, told = ended(kept, "untold"), ended(kept, "told")
    claim = kept.deliveries.claim(Due(told, 0), HOLD_MS)
    assert claim is not None
    assert kept.deliveries.note(claim, Outcome(DeliveryState.DELIVERED, 204))
    assert kept.prune(1_000, 0, 100).runs == 1
    assert [kept.deliveries.one(each) is not None for each in (untold, told)] == [True, False]
    assert kept.deliveries.claim(Due(untold, 0), HOLD_MS) is not None


def test_what_is_owed_anew_while_old_runs_go_is_not_lost_unsaid(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told that it is due again finds it, whichever of both came first."""
    id_ = ended(kept, "told")
    claim = kept.deliveries.claim(Due(id_, 0), HOLD_MS)
    assert claim is not None
    assert kept.deliveries.note(claim, Outcome(DeliveryState.DELIVERED, 204))
    with ThreadPoolExecutor(1) as pool:
        asked = list[Future[bool]]()

        def meanwhile(*given: Any) -> Any:
            """Between the choice of runs that go and the last of the deletions."""
            if not asked:
                asked.append(pool.submit(kept.deliveries.send_again, id_))
                wait(asked, timeout=1)
            return delete(*given)

        monkeypatch.setattr(prune, "delete", meanwhile)
        kept.prune(1_000, 0, 100)
        assert asked[0].result() == (kept.deliveries.one(id_) is not None)
