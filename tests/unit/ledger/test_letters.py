"""Letters in the ledger: found, grouped, and decided about once, on each kind of database."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.ledger import Ledger, LetterDecision, LetterFilter, Pruned, Taken
from schemas.dead_letter import DeadLetter, DeadLetterKind, DeadLetterStatus
from schemas.states import RunStatus
from tests.support.ledgers import letter_named, run_named


def keep(ledger: Ledger, letter_id: str, at: int, kind: str = "step", reason: str = "r", **content: Any) -> DeadLetter:
    """A letter of the namespace `ns`, which has no run."""
    letter = letter_named(letter_id, created_at=at)
    letter = letter.model_copy(update={"kind": DeadLetterKind(kind), "reason": reason, "content": content})
    ledger.write_letter(letter, letter_id, "ns")
    return letter


def accepted_in(ledger: Ledger, session_id: str) -> str:
    run = run_named("r", session_id=session_id)
    ledger.accept(run)
    return run.run_id


def ids(ledger: Ledger, limit: int = 9, before: str | None = None, **wanted: Any) -> list[str]:
    return [letter.id for letter in ledger.triage.listed(limit, before, LetterFilter(**wanted))]


def test_letters_are_found_by_what_they_are_about(ledger: Ledger) -> None:
    run_id = accepted_in(ledger, "s1")
    keep(ledger, "a", 1, action="pay")
    keep(ledger, "b", 2, "plan", planner="ours")
    ledger.write_letter(letter_named("c", created_at=3, run_id=run_id), "c", "ns")
    assert ids(ledger) == ["c", "b", "a"]
    assert ids(ledger, action="pay") == ["a"]
    assert ids(ledger, planner="ours") == ["b"]
    assert ids(ledger, planner="counting") == ids(ledger, session_id="s1") == ids(ledger, run_id=run_id) == ["c"]
    assert ids(ledger, kind=DeadLetterKind.PLAN, until=3) == ["b"]
    assert ids(ledger, since=2, status=DeadLetterStatus.OPEN) == ["c", "b"]
    assert len(ledger.triage.listed(9, wanted=LetterFilter(since=2))) == 2
    assert (ids(ledger, 2), ids(ledger, 2, before="b")) == (["c", "b"], ["a"])


def test_what_a_letter_is_found_by_outlives_its_run(ledger: Ledger) -> None:
    run_id = accepted_in(ledger, "s1")
    ledger.write_letter(letter_named("c", created_at=9, run_id=run_id), "c", "ns")
    ledger.end_run(run_id, 1, RunStatus.FAILED, None, 1, 1)
    assert ledger.prune(5, 5, 10) == Pruned(1, 0)
    assert ids(ledger, planner="counting", session_id="s1") == ["c"]


def test_letters_that_say_the_same_are_one_group(ledger: Ledger) -> None:
    for at in range(5):
        keep(ledger, f"a{at}", at * 10, reason=f"order {at} is gone", action="pay")
    keep(ledger, "b", 25, reason="the bank is closed", action="pay")
    keep(ledger, "c", 5, reason="the bank is closed", action="ship")
    first, second, third = ledger.triage.groups(9)
    assert [(one.count, one.newest.id, one.oldest_at) for one in (first, second, third)] == [
        (5, "a4", 0),
        (1, "b", 25),
        (1, "c", 5),
    ]
    place = (first.newest_at, first.fingerprint)
    assert ledger.triage.groups(1, place) == [second]
    assert ledger.triage.groups(9, place, LetterFilter(action="ship")) == [third]
    assert ids(ledger, fingerprint=first.fingerprint) == ["a4", "a3", "a2", "a1", "a0"]
    ledger.triage.drop("a4", "ns", "ann", "a test")
    (left, *_) = ledger.triage.groups(9, wanted=LetterFilter(status=DeadLetterStatus.OPEN))
    assert (left.count, left.newest.id) == (4, "a3")


def whose(ledger: Ledger, namespace: str) -> dict[str, Any]:
    """What a namespace is told of letters."""
    wanted = LetterFilter(namespace=namespace)
    return {
        "listed": ids(ledger, namespace=namespace),
        "groups": {group.newest.id: group.count for group in ledger.triage.groups(9, wanted=wanted)},
        "found": [one for one in "abcd" if ledger.letter(one, namespace) and ledger.triage.one(one, namespace)],
    }


def test_a_namespace_has_letters_of_its_own(ledger: Ledger) -> None:
    keep(ledger, "a", 1)
    run = run_named("r", namespace="theirs")
    ledger.accept(run)
    ledger.write_letter(letter_named("b", created_at=2, run_id=run.run_id), "b", "ns")
    ledger.write_letter(letter_named("c", created_at=3), "c", "theirs")
    assert whose(ledger, "ns") == {"listed": ["a"], "groups": {"a": 1}, "found": ["a"]}
    assert whose(ledger, "theirs") == {"listed": ["c", "b"], "groups": {"c": 1, "b": 1}, "found": ["b", "c"]}
    assert ledger.triage.drop("b", "ns", "ann", "not ours") == Taken(None)
    assert ledger.triage.replay("c", "ns", "ann", None, "{}") == Taken(None)
    assert ids(ledger, status=DeadLetterStatus.OPEN) == ["c", "b", "a"]


def test_what_is_no_runs_may_happen_to_each_namespace(ledger: Ledger) -> None:
    names = ("ns", "theirs", "ns")
    stand = [ledger.write_letter(letter_named(one), "message:m", name) for one, name in zip("abc", names, strict=True)]
    assert stand == ["a", "b", "a"]
    assert (ids(ledger, namespace="ns"), ids(ledger, namespace="theirs")) == (["a"], ["b"])


def test_a_letter_of_nobody_is_everybodys_until_one_deals_with_it_or_has_its_run(ledger: Ledger) -> None:
    run = run_named("r", namespace="")
    ledger.accept(run)
    ledger.write_letter(letter_named("a", created_at=1, run_id=run.run_id), "a", "")
    ledger.write_letter(letter_named("b", created_at=2), "b", "")
    assert ids(ledger, namespace="ns") == ids(ledger, namespace="theirs") == ["b", "a"]
    assert ledger.claim_run(run.run_id, "ns")
    assert isinstance(ledger.triage.drop("b", "theirs", "ann", "seen"), LetterDecision)
    assert (ids(ledger, namespace="ns"), ids(ledger, namespace="theirs")) == (["a"], ["b"])


def test_of_many_at_once_one_decides_and_the_others_are_told(ledger: Ledger) -> None:
    for round_ in range(5):
        keep(ledger, f"l{round_}", round_)
        together = threading.Barrier(4)

        def decide(number: int, letter: str = f"l{round_}", together: threading.Barrier = together) -> Any:
            together.wait()
            if number % 2:
                return ledger.triage.drop(letter, "ns", f"p{number}", "why")
            return ledger.triage.replay(letter, "ns", f"p{number}", None, "{}")

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(decide, range(4)))
        (made,) = [answer for answer in answers if isinstance(answer, LetterDecision)]
        assert [answer for answer in answers if answer != made] == [Taken(made)] * 3
        assert ledger.triage.decisions(f"l{round_}") == [made]
        letter = ledger.letter(f"l{round_}")
        assert letter is not None
        assert letter.status == ("dropped" if made.kind == "drop" else "replayed")


def test_a_decision_waits_until_something_has_come_of_it(ledger: Ledger) -> None:
    keep(ledger, "a", 1)
    made = ledger.triage.replay("a", "ns", "ann", "because", '{"way":"x"}')
    assert isinstance(made, LetterDecision)
    assert ledger.triage.pending(9, "ns") == [made]
    assert ledger.triage.pending(9, "other") == []
    assert ledger.triage.pending(9, "ns", after=made) == []
    assert (ledger.triage.done(made, "submitted:r"), ledger.triage.done(made, "refused:no", reopen=True)) == (
        True,
        False,
    )
    (stands,) = ledger.triage.decisions("a")
    assert replace(stands, done_at=None, outcome=None) == made
    assert (stands.outcome, ledger.triage.pending(9, "ns")) == ("submitted:r", [])
    assert ids(ledger, status=DeadLetterStatus.REPLAYED) == ["a"]


def test_what_could_not_be_carried_out_opens_the_letter_again(ledger: Ledger) -> None:
    keep(ledger, "a", 1)
    made = ledger.triage.replay("a", "ns", "ann", None, "{}")
    assert isinstance(made, LetterDecision)
    ledger.triage.done(made, "refused:\x00no", reopen=True)
    assert ids(ledger, status=DeadLetterStatus.OPEN) == ["a"]
    again = ledger.triage.drop("a", "ns", "bob", "no use")
    assert isinstance(again, LetterDecision)
    assert [one.made_by for one in ledger.triage.decisions("a")] == ["ann", "bob"]


def test_nothing_is_decided_about_a_letter_that_is_not_there(ledger: Ledger) -> None:
    assert ledger.triage.drop("nothing", "ns", "ann", "why") == Taken(None)
    assert ledger.triage.one("nothing") is None


@pytest.mark.parametrize("carried_out", [True, False])
def test_old_letters_go_with_what_was_decided_unless_it_is_still_to_be_done(ledger: Ledger, carried_out: bool) -> None:
    keep(ledger, "a", 1)
    made = ledger.triage.replay("a", "ns", "ann", None, "{}")
    assert isinstance(made, LetterDecision)
    if carried_out:
        ledger.triage.done(made, "submitted:r")
    assert ledger.prune(0, 5, 10).letters == int(carried_out)
    assert ledger.triage.decisions("a") == ([] if carried_out else [made])
