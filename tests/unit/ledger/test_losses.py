"""Losses of memory in the ledger: found once, held by one, and effect rows closed only by who holds them."""

from dataclasses import replace

import pytest

from orchestrator.errors import Superseded
from orchestrator.ledger import Closed, Ledger
from orchestrator.ledger.history import Batch, RunReport
from orchestrator.ledger.losses import HOLD_MS, STRIDE, Loss, beyond
from schemas.states import EffectClass
from tests.support.ledgers import NAMESPACE, accepted

WAIT_MS = 5000


class Time:
    """The clock of the losses, which the test moves."""

    def __init__(self, ledger: Ledger) -> None:
        self.now = 1_000_000
        ledger.losses._clock = lambda: self.now


@pytest.fixture
def time(ledger: Ledger) -> Time:
    ledger.create_epoch("one", 4)
    return Time(ledger)


def found(ledger: Ledger, cause: str = "amnesia", server: str = "S", shard: int = 3) -> Loss:
    return ledger.losses.found("one", shard, cause, server, WAIT_MS)


def held(ledger: Ledger, time: Time) -> Loss:
    loss = found(ledger)
    time.now += WAIT_MS
    taken = ledger.losses.claim(loss, "me")
    assert taken is not None
    return taken


def test_a_loss_is_found_once_and_waits_once(ledger: Ledger, time: Time) -> None:
    first = found(ledger)
    time.now += 100
    assert found(ledger) == first
    assert ledger.losses.open("one") == [first]
    assert ledger.losses.open("two") == []
    assert ledger.losses.claim(first, "me") is None


@pytest.mark.parametrize(("cause", "server"), [("behind", "S"), ("amnesia", "T")])
def test_another_cause_or_server_waits_anew_and_is_nobodys(ledger: Ledger, time: Time, cause: str, server: str) -> None:
    mine = held(ledger, time)
    anew = found(ledger, cause, server)
    assert (anew.found_at, anew.lease_until, anew.token) == (mine.found_at, time.now + WAIT_MS, None)
    assert not ledger.losses.done(mine, "{}")
    with pytest.raises(Superseded):
        ledger.losses.close_rows(mine, "r", [("s", "do")], 1)
    time.now += WAIT_MS
    assert ledger.losses.claim(mine, "me") is None  # it speaks of what was seen before


def test_one_holds_it_until_its_time_is_over(ledger: Ledger, time: Time) -> None:
    mine = held(ledger, time)
    assert ledger.losses.claim(mine, "other") is None
    time.now += HOLD_MS
    with pytest.raises(Superseded):
        ledger.losses.close_rows(mine, "r", [("s", "do")], 1)
    other = ledger.losses.claim(mine, "other")
    assert other is not None
    assert (other.era, other.holder) == (mine.era + 1, "other")
    assert not ledger.losses.done(mine, "{}")
    assert ledger.losses.done(other, "{}")
    assert ledger.losses.claim(other, "third") is None
    assert ledger.losses.open("one") == []


def test_a_loss_that_is_kept_is_nobody_elses(ledger: Ledger, time: Time) -> None:
    mine = held(ledger, time)
    for _ in range(3):
        time.now += HOLD_MS * 3 // 4
        ledger.losses.keep(mine)
        assert ledger.losses.claim(mine, "other") is None
    time.now += HOLD_MS
    with pytest.raises(Superseded):
        ledger.losses.keep(mine)
    assert ledger.losses.claim(mine, "other") is not None


def test_what_was_tried_in_vain_is_taken_again_after_a_while(ledger: Ledger, time: Time) -> None:
    ledger.losses.release(held(ledger, time), 1000, '{"failed":1}')
    (loss,) = ledger.losses.open("one")
    assert (loss.report_text, ledger.losses.claim(loss, "other")) == ('{"failed":1}', None)
    time.now += 1000
    again = ledger.losses.claim(loss, "other")
    assert again is not None
    assert again.report_text is None


def test_eras_are_of_a_shard_and_never_begin_anew(ledger: Ledger, time: Time) -> None:
    first = held(ledger, time)
    assert ledger.losses.done(first, "{}")
    second, elsewhere = held(ledger, time), found(ledger, shard=2)
    time.now += WAIT_MS
    third = ledger.losses.claim(elsewhere, "me")
    assert third is not None
    assert (first.era, second.era, third.era) == (1, 2, 1)
    assert second.found_at > first.found_at
    assert [loss.found_at for loss in ledger.losses.all("one", 2)] == sorted(
        (second.found_at, third.found_at), reverse=True
    )


def test_a_loss_that_was_none_is_withdrawn_unless_somebody_has_begun(ledger: Ledger, time: Time) -> None:
    assert ledger.losses.withdraw(found(ledger), "{}")
    assert ledger.losses.open("one") == []
    mine = held(ledger, time)
    assert not ledger.losses.withdraw(replace(mine, era=0), "{}")
    ledger.losses.release(mine)
    assert not ledger.losses.withdraw(replace(mine, era=0), "{}")


@pytest.mark.parametrize("heard", [0, 3, 900])
def test_numbers_of_an_era_are_beyond_those_of_the_one_before(heard: int) -> None:
    """Each is lost before anybody hears of what it gave; or before anybody hears but the store itself."""
    seen = heard
    for era in range(1, 50):
        for known in (heard, seen):
            assert beyond(era, known) > seen
        seen = beyond(era, seen) + 1000


def test_rows_are_closed_beyond_every_fence_and_what_is_late_stays_owed(ledger: Ledger, time: Time) -> None:
    run_id, rows = accepted(ledger, "r").run_id, ledger.effects
    rows.open(run_id, "open", "do", 7, "t", EffectClass.ONCE)
    rows.land(run_id, "landed", "do", 8, "t", '"done"')
    rows.close(run_id, "late", "do", 9)
    rows.land(run_id, "late", "do", 9, "t", "{}")
    wanted = [(name, "do") for name in ("open", "landed", "late", "never")]
    fence, said = ledger.losses.close_rows(held(ledger, time), run_id, wanted, 4)  # type: ignore[arg-type]
    assert fence == 9 + STRIDE
    assert {name: (row.state, row.result_text) for (name, _), row in said.items()} == {
        "open": ("open", None),
        "landed": ("landed", '"done"'),
        "late": ("none", None),
    }
    assert ledger.losses.fences([run_id]) == {run_id: fence}
    for name in ("open", "landed", "late", "never"):
        assert isinstance(rows.open(run_id, name, "do", fence, "t", EffectClass.ONCE), Closed)
    assert [late.step_id for late in ledger.late.owed(2**60, 9, NAMESPACE)] == ["late"]


def test_decisions_are_asked_again_that_may_have_been_forgotten(ledger: Ledger, time: Time) -> None:
    heard, unheard = (accepted(ledger, name).run_id for name in ("heard", "unheard"))
    made = {
        (run_id, kind): ledger.decide(run_id, 1, kind, "ann", None)
        for run_id in (heard, unheard)
        for kind in ("pause", "retry")
    }
    for decision_id in made.values():
        ledger.decision_done(decision_id, "paused")
    ledger.history._clock = lambda: ledger.now_ms() + 10**9  # it was heard of long after
    report = RunReport(heard, 2, 1, "running", "{}")
    assert ledger.history.take(Batch("one", 0, "0-0", "1-0", (), (report,), ()))
    assert ledger.losses.ask_again([heard, unheard]) == 1
    assert [one.id for one in ledger.pending_decisions(9)] == [made[unheard, "pause"]]
