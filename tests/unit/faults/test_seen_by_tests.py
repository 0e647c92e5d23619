"""What the tests that break things hold against a run finds what is broken on purpose."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from schemas.run import RunView, StepView
from tests.support.invariants import Seen, broken_in
from tests.unit.faults.facts import good, with_events
from workers.faults.known import RunFacts

T = TypeVar("T", bound=BaseModel)
ACTIONS = {
    "look": "test.echo",
    "note": "test.note",
    "book": "test.book",
    "charge": "test.order",
    "send": "test.post",
}
WORDS = {"began": "began", "acted": "noted", "undoing": "undoing", "undone": "undone"}


def seen(*, undone: bool = False) -> Seen:
    """A run in which everything holds."""
    run = good(undone=undone)
    lines = [line(act.step_id, WORDS[act.what]) for act in run.acts if act.step_id != "look"]
    return of(run, lines)


def of(run: RunFacts, lines: list[dict[str, Any]]) -> Seen:
    steps = tuple(
        made(
            StepView,
            id=step.id,
            action=ACTIONS[step.id],
            needs=step.needs,
            status=step.status,
            result={"value": step.id},
        )
        for step in run.steps
    )
    known = {name: getattr(run, name) for name in ("run_id", "status", "version", "policy_hash", "ended_at")}
    view = made(RunView, steps=steps, **known)
    return Seen(view, run.events, lines, {name: name for name in ACTIONS}, frozenset(), run.bound_at)


def made(model: type[T], **fields: Any) -> T:
    """With these fields and no others."""
    construct: Callable[..., T] = model.model_construct
    return construct(**fields)


def line(step_id: str, what: str, value: str | None = None) -> dict[str, Any]:
    return {"step_id": step_id, "what": what, "value": value or step_id}


def without(run: Seen, step_id: str, what: str) -> Seen:
    return replace(run, lines=[one for one in run.lines if (one["step_id"], one["what"]) != (step_id, what)])


def again(run: Seen, *lines: dict[str, Any]) -> Seen:
    return replace(run, lines=[*run.lines, *lines])


def untold(run: Seen) -> Seen:
    """Its end was lost before it was heard of."""
    return replace(run, events=run.events[:-1])


def needing(run: Seen, step_id: str, *needs: str) -> Seen:
    steps = tuple(one.model_copy(update={"needs": needs}) if one.id == step_id else one for one in run.view.steps)
    return replace(run, view=run.view.model_copy(update={"steps": steps}))


def changed(run: Seen, **changes: Any) -> Seen:
    return replace(run, view=run.view.model_copy(update=changes))


def with_result(run: Seen, step_id: str, value: str) -> Seen:
    result = {"result": {"value": value}}
    return changed(run, steps=tuple(s.model_copy(update=result) if s.id == step_id else s for s in run.view.steps))


PLANTED: list[tuple[str, Callable[[Seen], Seen]]] = [
    ("book (test.book) acted 2 times", lambda run: again(run, line("book", "noted"))),
    ("send (test.post) acted 2 times", lambda run: again(run, line("send", "noted"))),
    ("charge is completed, acted 0 times", lambda run: without(run, "charge", "noted")),
    ("charge is completed, acted 1 times", lambda run: again(run, line("charge", "undone"))),
    ("note was given 'another', not 'note'", lambda run: again(run, line("note", "began", "another"))),
    ("note has the result {'value': 'another'}", lambda run: with_result(run, "note", "another")),
    ("note acted before send", lambda run: needing(run, "note", "send")),
    ("I9: it ended 1.0 s after its bound", lambda run: replace(run, bound_at=1000)),
    ("I8: version 3 follows 1", lambda run: replace(run, events=(*run.events[:1], *run.events[2:]))),
    ("I7: ", lambda run: changed(run, policy_hash="q" * 64)),
]
IN_UNDOING: list[tuple[str, Callable[[Seen], Seen]]] = [
    ("charge is compensated, acted 1 times", lambda run: without(run, "charge", "undone")),
    ("charge is compensated, acted 1 times", lambda run: untold(without(run, "charge", "undone"))),
    ("book was undone 2 times", lambda run: again(run, line("book", "found_nothing"))),
    ("book was undone 2 times, and acted 1 times", lambda run: again(run, line("book", "undone"))),
    ("note was to be undone before send", lambda run: needing(run, "send", "note")),
    ("I10: note was to be undone while send", lambda run: needing(run, "send", "note")),
]


@pytest.mark.parametrize("undone", [False, True])
def test_nothing_is_found_where_everything_holds(undone: bool) -> None:
    assert list(broken_in(seen(undone=undone))) == []


@pytest.mark.parametrize(("text", "spoil"), PLANTED)
def test_what_is_broken_is_found(text: str, spoil: Callable[[Seen], Seen]) -> None:
    assert any(found.startswith(text) for found in broken_in(spoil(seen()))), list(broken_in(spoil(seen())))


@pytest.mark.parametrize(("text", "spoil"), IN_UNDOING)
def test_what_is_broken_in_undoing_is_found(text: str, spoil: Callable[[Seen], Seen]) -> None:
    found = list(broken_in(spoil(seen(undone=True))))
    assert any(one.startswith(text) for one in found), found


def test_a_result_that_nobody_heard_of_is_not_asked_for() -> None:
    lost = untold(with_result(seen(), "note", "another"))
    assert [found for found in broken_in(lost) if "result" in found] == []


def test_what_was_built_again_may_look_for_its_effect_once_more() -> None:
    run = seen(undone=True)
    twice = again(run, line("book", "found_nothing"))
    built = with_events(good(undone=True), ("run.restored", ""))
    assert list(broken_in(replace(changed(twice, version=built.version), events=built.events))) == []
