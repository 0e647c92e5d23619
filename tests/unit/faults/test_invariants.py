"""Each invariant is broken on purpose, once, and found; what is allowed is not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.faults.facts import act, good, undoing, with_acts, with_events, with_step, without
from workers.faults.invariants import CHECKS, broken
from workers.faults.known import RunFacts
from workers.faults.log import Act


def again(step_id: str, fence: int) -> tuple[tuple[str, str], ...]:
    return (("step.claimed", f"{step_id}=running/2/{fence}"), ("step.committed", f"{step_id}=completed/2/{fence}"))


def reordered(run: RunFacts) -> RunFacts:
    """`book` is claimed before what it needs is completed."""
    events = list(run.events)
    look, book = (
        next(at for at, one in enumerate(events) if one.fields["steps"].startswith(moves))
        for moves in ("look=completed", "book=running/1/3")
    )
    first, second = events[look], events[book]
    events[look] = replace(second, version=first.version)
    events[book] = replace(first, version=second.version)
    return replace(run, events=tuple(events))


def under_another_policy(run: RunFacts) -> RunFacts:
    last = run.events[-2]
    other = replace(last, fields={**last.fields, "policy_hash": "q" * 64})
    return replace(run, events=(*run.events[:-2], other, run.events[-1]))


def under_no_policy(run: RunFacts) -> RunFacts:
    last = run.events[-2]
    silent = replace(last, fields={name: value for name, value in last.fields.items() if name != "policy_hash"})
    return replace(run, events=(*run.events[:-2], silent, run.events[-1]))


def with_a_gap(run: RunFacts, *, first: str) -> RunFacts:
    """It was built again, and another transition is missing, before that or behind it."""
    built = with_events(run, *again("send", 6), ("run.restored", ""), *again("send", 7))
    names = [event.event for event in built.events]
    at = names.index("run.restored") + (2 if first == "built" else -1)
    later = tuple(replace(event, version=event.version + 1) for event in built.events[at:])
    return replace(built, events=(*built.events[:at], *later), version=built.version + 1)


def absent(number: int) -> tuple[Act, ...]:
    """What the probe of `send` says of the attempt that has fence 5."""
    return (act("asked", "send", number, fence=5, details={"landed": False}),)


def dead(run: RunFacts) -> RunFacts:
    """The process of that attempt was seen dead."""
    ended = with_events(run, ("step.claim_ended", ""))
    at = len(ended.events) - 2
    event = replace(ended.events[at], fields={"step_id": "send", "fence": "5", "policy_hash": run.policy_hash})
    return replace(ended, events=(*ended.events[:at], event, ended.events[-1]))


def started_again(run: RunFacts, said: tuple[Act, ...]) -> RunFacts:
    """`send` had not acted when it began once more."""
    again = (act("began", "send", 90, fence=9), act("acted", "send", 91, fence=9))
    return with_acts(without(run, "send", "acted"), *sorted((*said, *again), key=lambda one: one.number))


def with_letter(run: RunFacts, reason: str) -> RunFacts:
    return replace(run, letters={"charge": (reason,)})


def after_its_end(run: RunFacts) -> RunFacts:
    last = run.events[-1]
    return replace(run, events=(*run.events, replace(last, version=last.version + 1)))


PLANTED: list[tuple[str, str, Callable[[RunFacts], RunFacts]]] = [
    ("I1", "duplicate", lambda run: with_events(run, *again("send", 6))),
    ("I2", "other", lambda run: with_events(run, ("step.claimed", "send=running/2/2"))),
    ("I2", "other", lambda run: with_events(run, ("step.claimed", "send=running/2/9"), ("x", "send=completed/1/5"))),
    ("I3", "other", reordered),
    ("I4", "other", lambda run: with_events(run, ("run.cancel", ""), ("step.claimed", "send=running/2/9"))),
    ("I5", "duplicate", lambda run: with_acts(run, act("acted", "book", 90))),
    # whatever a probe says, and however often
    ("I6", "duplicate", lambda run: with_acts(run, *absent(80), act("began", "send", 90), act("acted", "send", 91))),
    ("I6", "duplicate", lambda run: with_acts(run, act("began", "send", 90, fence=9))),
    ("I6", "duplicate", lambda run: started_again(run, absent(80))),
    ("I6", "duplicate", lambda run: started_again(dead(run), absent(91))),
    ("I6", "duplicate", lambda run: with_acts(started_again(dead(run), absent(80) * 3), act("began", "send", 92))),
    ("I6", "duplicate", lambda run: with_acts(run, act("began", "charge", 90, key="another"))),
    ("I6", "duplicate", lambda run: with_acts(run, *absent(90))),
    ("I7", "other", under_another_policy),
    ("I7", "other", under_no_policy),
    ("I8", "other", lambda run: replace(run, events=(*run.events[:3], *run.events[4:]))),
    ("I8", "other", lambda run: replace(run, events=run.events[1:])),
    ("I8", "other", lambda run: with_a_gap(run, first="gap")),
    ("I8", "other", lambda run: with_a_gap(run, first="built")),
    ("I8", "other", lambda run: replace(run, events=(run.events[1], run.events[0], *run.events[2:]))),
    ("I9", "stuck", lambda run: replace(run, status="running", ended_at=None)),
    ("I9", "stuck", lambda run: replace(run, ended_at=3001)),
    ("I9", "stuck", lambda run: with_step(run, "look", status="running")),
    ("I10", "loss", lambda run: without(run, "look", "acted")),
    ("I10", "loss", lambda run: without(run, "charge", "acted")),
    ("I10", "loss", lambda run: with_acts(without(run, "send", "acted"), *absent(90))),
    ("I10", "loss", lambda run: replace(run, landed=frozenset())),
    ("I10", "loss", lambda run: with_step(run, "note", status="failed")),
    ("I10", "loss", lambda run: with_letter(with_step(run, "charge", status="failed"), "retry_exhausted")),
    ("I10", "loss", lambda run: with_letter(with_step(run, "charge", status="skipped"), "no worker supports x")),
    ("I10", "other", lambda run: with_acts(run, act("undone", "note", 90))),
    ("I11", "other", lambda run: with_acts(run, act("began", "charge", 90, details={"inputs": "in-another-run"}))),
    ("I12", "other", after_its_end),
]

PLANTED_IN_UNDOING: list[tuple[str, str, Callable[[RunFacts], RunFacts]]] = [
    ("I10", "loss", lambda run: without(run, "charge", "undone")),
    ("I10", "duplicate", lambda run: with_acts(run, act("undone", "book", 90))),
    ("I10", "loss", lambda run: with_acts(run, act("acted", "note", 90))),
    ("I10", "loss", lambda run: with_letter(with_acts(run, act("acted", "charge", 90)), "retry_exhausted")),
    ("I10", "other", lambda run: with_step(run, "send", needs=("look", "charge"))),
    ("I10", "duplicate", lambda run: with_events(run, *undoing("book"))),
    (
        "I10",
        "other",
        lambda run: with_events(run, ("x", "book=in_doubt/1/3"), ("undo.claimed", "look=compensating/1/1")),
    ),
]


def found(run: RunFacts) -> list[tuple[str, str]]:
    return [(one.invariant, one.sort) for one in broken(run)]


@pytest.mark.parametrize("undone", [False, True])
def test_nothing_is_found_where_everything_holds(undone: bool) -> None:
    assert broken(good(undone=undone)) == []


@pytest.mark.parametrize(("invariant", "sort", "spoil"), PLANTED)
def test_what_is_broken_is_found(invariant: str, sort: str, spoil: Callable[[RunFacts], RunFacts]) -> None:
    assert (invariant, sort) in found(spoil(good()))


@pytest.mark.parametrize(("invariant", "sort", "spoil"), PLANTED_IN_UNDOING)
def test_what_is_broken_in_undoing_is_found(invariant: str, sort: str, spoil: Callable[[RunFacts], RunFacts]) -> None:
    assert set(found(spoil(good(undone=True)))) == {(invariant, sort)}


def test_every_invariant_is_broken_once() -> None:
    assert {invariant for invariant, _, _ in PLANTED} == set(CHECKS)


ALLOWED: list[Callable[[RunFacts], RunFacts]] = [
    # again under the same key, or what is harmless by itself
    lambda run: with_acts(run, act("began", "charge", 90), act("acted", "charge", 91), act("acted", "note", 92)),
    # a transaction that was rolled back
    lambda run: with_acts(run, act("began", "book", 90), act("raised", "book", 91, details={"no_effect": False})),
    # once more, where the probe can know that it has not happened, or the attempt itself
    lambda run: started_again(dead(run), absent(80)),
    lambda run: started_again(run, (act("raised", "send", 80, fence=5, details={"no_effect": True}),)),
    # that somebody was seen dead may be forgotten with the rest
    lambda run: started_again(with_events(run, ("run.restored", "")), absent(80)),
    # it was killed before it could say that it had acted
    lambda run: with_acts(without(run, "send", "acted"), act("asked", "send", 90, details={"landed": True})),
    lambda run: without(run, "book", "acted"),
    # it stands, and a letter says so
    lambda run: replace(with_step(run, "send", status="in_doubt"), letters={"send": ("in_doubt",)}),
    lambda run: with_letter(with_step(run, "charge", status="in_doubt"), "retry_exhausted"),
    lambda run: with_letter(with_step(run, "charge", status="failed"), "late_effect"),
    lambda run: with_letter(with_step(run, "charge", status="compensation_failed"), "undo"),
    # a later transition of a running step is no other claim
    lambda run: with_events(run, ("step.claimed", "send=running/2/9"), ("step.claim_ended", "send=running/2/9")),
    # built again: what nobody had heard of is committed once more, and versions leave a gap
    lambda run: with_events(run, ("run.restored", "send=running/1/5"), *again("send", 1_000_006)),
]


@pytest.mark.parametrize("change", ALLOWED)
def test_what_is_allowed_is_not_found(change: Callable[[RunFacts], RunFacts]) -> None:
    assert broken(change(good())) == []


def test_what_is_confined_to_its_workspace_is_undone_without_a_compensation() -> None:
    run = without(without(good(undone=True), "send", "undoing"), "send", "undone")
    assert found(run) == [("I10", "loss")]
    assert broken(with_step(run, "send", confined=True, has_undo=False)) == []
    assert found(with_step(run, "send", confined=True)) == [("I10", "loss")]
    tried = with_acts(run, act("undoing", "send", 90), act("undo_raised", "send", 91))
    assert broken(with_step(tried, "send", confined=True)) == []


def test_a_late_effect_may_be_undone_once_more() -> None:
    undone = without(good(undone=True), "send", "acted")
    run = with_acts(undone, act("acted", "send", 90), act("undone", "send", 91))
    assert found(run) == [("I10", "duplicate")]
    assert broken(replace(run, late=frozenset({"send"}))) == []


def test_how_steps_stand_is_not_judged_where_nobody_heard_of_it() -> None:
    forgotten = replace(with_step(good(undone=True), "send", status="running"), told=False)
    assert broken(forgotten) == []
    assert found(replace(forgotten, told=True)) == [("I9", "stuck"), ("I10", "loss")]
    assert found(replace(without(good(), "charge", "acted"), told=False)) == [("I10", "loss")]
