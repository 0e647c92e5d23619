"""What the storm draws, and how it measures claims that lost their holder."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.admission.check import found_text, read_plan, read_value
from orchestrator.ledger.history import Happened
from schemas.policy import Policy
from schemas.run import Submission
from tests.support.storm import actions, forecast, pauses, reclaims, shapes, troubles, world
from tests.support.storm.reclaims import FOREVER, Claim, Loss, Outage, Stood
from tests.unit.faults import facts
from workers.actions import files, records
from workers.faults import example, log
from workers.registry import registry
from workers.testing import context

RUN = "0f0e0d0c-0b0a-8908-8706-050403020100"


# ---- what is drawn


@pytest.mark.parametrize("shape", [shapes.ALL, *shapes.SHARES])
def test_every_shape_is_admitted(shape: str) -> None:
    assert {actions.insist, files.create_file, records.mutate_record}  # the registry has them
    text = shapes.plan_text(shape, "an order")
    found = found_text(text, None, None)
    draft = read_plan(found.text, read_value(found), registry.catalogue(), 100)
    context_hash = Submission(planner="x", context=shapes.context(shape, "an order")).context_hash()
    resolved = draft.judge(Policy(), context_hash)
    assert [step.id for step in resolved] == shapes.ids(shape)


def test_a_step_id_means_one_action_in_all_shapes() -> None:
    named = {(one["id"], one["action"]) for shape in (shapes.ALL, *shapes.SHARES) for one in shapes.steps(shape, "x")}
    assert len({step_id for step_id, _ in named}) == len(named)
    assert {step_id for step_id, _ in named} == set(shapes.ids(shapes.ALL))


def test_every_shape_has_an_end_and_a_share() -> None:
    assert shapes.ENDS.keys() == shapes.SHARES.keys()
    assert sum(shapes.SHARES.values()) == 100


def test_a_seed_says_the_same_storm_again() -> None:
    one, same, other = (forecast.forecast(seed, 200) for seed in (7, 7, 8))
    assert (one.runs, one.orders) == (same.runs, same.orders)
    assert [(strike.after, strike.trouble) for strike in one.strikes] == [
        (strike.after, strike.trouble) for strike in same.strikes
    ]
    assert {run.run_id for run in one.runs}.isdisjoint(run.run_id for run in other.runs)


def test_a_usual_storm_has_everything() -> None:
    drawn = forecast.forecast(7, forecast.USUAL)
    both = forecast.TROUBLES | forecast.UPSETS
    assert Counter(strike.trouble for strike in drawn.strikes) == both
    assert set(troubles.TROUBLES) == set(both)
    assert all(0 <= strike.after < forecast.USUAL for strike in drawn.strikes)
    assert {run.shape for run in drawn.runs} == set(shapes.SHARES)
    assert {run.planned for run in drawn.runs} == {True, False}
    assert any(run.cancel_s is not None for run in drawn.runs)
    assert {order.deed for order in drawn.orders} == {"die", "last"}
    places = {*forecast.ATTEMPT, *forecast.UNDO, *forecast.PUBLISH, "opened"}
    assert {order.place for order in drawn.orders if order.deed == "die"} == places


# ---- claims that lost their holder


def happened(*told: tuple[int, str, str, str]) -> list[Happened]:
    """Transitions: (at, event, step, moves). The claims are those of process 77."""
    return [
        Happened(RUN, version, 1, at, event, {"step_id": step, "steps": moves_, "worker_id": "here:77:123"})
        for version, (at, event, step, moves_) in enumerate(told, 1)
    ]


def the_claim(events: Sequence[Happened]) -> Claim:
    (claim,) = reclaims.claims(RUN, events)
    return claim


CLAIMED = (10, "step.claimed", "s", "s=running/1/1")
OTHERS = (20, "step.committed", "t", "t=completed/1/2")


@pytest.mark.parametrize(
    ("later", "ended"),
    [
        ([(30, "step.expired", "s", "s=ready/1/1")], 30),
        ([(25, "step.claim_ended", "s", ""), (30, "step.expired", "s", "s=ready/1/1")], 30),
        ([(30, "step.committed", "s", "s=completed/1/1")], 30),
        ([(30, "run.compensating", "", "s=compensating/1/1")], 30),
        ([(30, "run.restored", "", "")], 30),
        ([(30, "run.cancel", "", "u=skipped/0/0")], FOREVER),
        ([], FOREVER),
    ],
)
def test_a_claim_stands_until_its_step_moves_on(later: list[tuple[int, str, str, str]], ended: int) -> None:
    claim = the_claim(happened(CLAIMED, OTHERS, *later))
    assert (claim.pid, claim.kind, claim.granted, claim.ended) == (77, "step", 10, ended)


def test_the_claim_to_a_plan_ends_with_the_plan_or_its_run() -> None:
    for event in ("plan.admitted", "plan.expired", "run.cancel"):
        claim = the_claim(happened((10, "plan.claimed", "", ""), (15, "plan.claim_ended", "", ""), (40, event, "", "")))
        assert (claim.kind, claim.ended) == ("plan", 40)


def test_the_claim_to_an_undo_ends_with_the_undo() -> None:
    claim = the_claim(happened((10, "undo.claimed", "s", ""), (40, "undo.expired", "s", "")))
    assert (claim.kind, claim.ended) == ("undo", 40)


def test_only_what_a_process_held_when_it_was_lost_counts() -> None:
    held = [Claim(RUN, "step", "s", 77, granted, ended) for granted, ended in ((0, 5), (4, 20), (11, 30), (2, FOREVER))]
    lost = list(reclaims.stood([Loss(77, 10, "killed"), Loss(78, 10, "killed")], {77: held}))
    assert [one.claim for one in lost] == [held[1], held[3]]


def test_time_in_which_nobody_could_end_it_does_not_count() -> None:
    one = Stood(Claim(RUN, "step", "s", 77, 0, 100), Loss(77, 10, "killed"))
    assert one.ms([]) == 90
    assert one.ms([Outage(0, 5), Outage(200, 300)]) == 90
    assert one.ms([Outage(0, 20), Outage(15, 30), Outage(18, 25), Outage(90, 150)]) == 60


# ---- what is found outside


class Outside:
    """Till, post office and accounts of one run, whose order is `x`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("till", "post"):
            (folder / name).mkdir()
        with closing(sqlite3.connect(folder / "ledger.db")) as connection, connection:
            connection.execute("CREATE TABLE records (entity_id TEXT, version INTEGER)")
            connection.execute("INSERT INTO records VALUES (?, 0)", (shapes.account("x"),))

    def has(self, *, charged: bool, sent: int, changes: int) -> None:
        (self._folder / "till" / "key-charge").touch() if charged else None
        (self._folder / "post" / f"{facts.RUN}.send").write_text("x\n" * sent) if sent else None
        with closing(sqlite3.connect(self._folder / "ledger.db")) as connection, connection:
            connection.execute("UPDATE records SET version = ?", (changes,))

    def complaints(self, *, undone: bool, letter: str = "") -> set[str]:
        """The steps that are complained of. letter: what one about the charge says."""
        run = replace(facts.good(undone=undone), letters={"charge": (letter,)})
        found = world.complaints(self._folder, self._folder / "ledger.db", [run], {facts.RUN: "x"})
        return {text.split()[2] for text in found}


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path)


def test_what_is_completed_is_found_once(outside: Outside) -> None:
    assert outside.complaints(undone=False) == {"charge", "send", "book"}
    outside.has(charged=True, sent=1, changes=1)
    assert outside.complaints(undone=False) == set()
    outside.has(charged=True, sent=1, changes=2)
    assert outside.complaints(undone=False) == {"book"}
    outside.has(charged=True, sent=2, changes=1)
    assert outside.complaints(undone=False) == {"send"}


def test_what_is_undone_is_not_found_unless_a_letter_says_so(outside: Outside) -> None:
    outside.has(charged=False, sent=0, changes=2)
    assert outside.complaints(undone=True) == set()
    outside.has(charged=True, sent=1, changes=3)
    assert outside.complaints(undone=True) == {"charge", "send", "book"}
    assert outside.complaints(undone=True, letter="late_effect") == {"send", "book"}
    assert outside.complaints(undone=True, letter="retry_exhausted") == {"charge", "send", "book"}


def test_the_post_office_knows_no_keys(outside: Outside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(log.FOLDER, str(tmp_path))
    outside.has(charged=True, sent=0, changes=1)
    for complained_of in (set[str](), {"send"}):
        example.send(example.Order(order="x"), context(run_id=facts.RUN, step_id="send"))
        assert outside.complaints(undone=False) == complained_of


# ---- how long runs stood still


def test_of_a_kind_of_outage_counts_what_no_other_covers() -> None:
    outages = [Outage(0, 40, "looks"), Outage(20, 60, "server"), Outage(50, 80, "looks"), Outage(75, 90, "looks")]
    assert reclaims.share_of("looks", outages, 0, 100) == 0.5
    assert reclaims.share_of("server", outages, 0, 100) == 0.1
    assert reclaims.share_of("looks", [], 0, 100) == 0


def test_a_pause_is_what_lies_between_two_transitions_and_in_no_outage() -> None:
    events = happened((10, "run.accepted", "", ""), (40, "step.claimed", "s", ""), (90, "step.committed", "s", ""))
    found = list(pauses.pauses(RUN, events, [Outage(15, 25)]))
    assert [(pause.before, pause.ms, pause.held) for pause in found] == [
        ("run.accepted", 20, False),
        ("step.claimed", 50, True),
    ]
    assert [pauses.longest(found, held=held) for held in (False, True)] == found
    assert pauses.longest(found[:1], held=True) is None
