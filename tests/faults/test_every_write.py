"""A process dies at a write, before it or after it; so for each write of a run's life, whatever its end.

What comes of the run must be what comes of it without a death, and every effect what its class promises.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator import decisions
from schemas.ids import RunRef
from schemas.states import RunStatus, StepStatus
from tests.support.deaths import When
from tests.support.mortals import Loss, Mortals, mortals, sales
from tests.support.servers import Server

PAIRS = 40  # of each story and loss
WHEN: tuple[When, ...] = ("before", "after")
EVERY_CLASS = ("pure", "idempotent", "transactional", "keyed", "once")


@dataclass(frozen=True)
class Story:
    """What is submitted, what people do in between, and how it ends: without a death, and if what is `once` is lost."""

    actions: tuple[str, ...]
    end: str
    in_doubt: tuple[str, ...] = ()
    person: Callable[[Mortals, RunRef], None] | None = None
    fields: tuple[tuple[str, Any], ...] = ()


def cancel(mortals: Mortals, ref: RunRef) -> None:
    """When the first step has acted."""
    while not mortals.world.acts:
        mortals.turn(until=lambda: bool(mortals.world.acts))
    mortals.insist(lambda: decisions.cancel(mortals.desk, ref.run_id, "anna"))


def retry(mortals: Mortals, ref: RunRef) -> None:
    """When it has failed, and what it failed for was mended."""
    mortals.rest()
    mortals.world.told = True
    row = mortals.row(ref)
    assert row.status == RunStatus.FAILED
    mortals.insist(lambda: again(mortals, ref))


def again(mortals: Mortals, ref: RunRef) -> None:
    """A person who is not answered looks first."""
    if mortals.row(ref).ended_at is not None and not mortals.ledger.pending_decisions(1):
        decisions.retry(mortals.desk, ref.run_id, "anna")


def approve(mortals: Mortals, ref: RunRef) -> None:
    mortals.insist(lambda: approve_if_asked(mortals, ref))


def approve_if_asked(mortals: Mortals, ref: RunRef) -> None:
    while True:
        step = mortals.store.views.step(ref, "s1")
        if step is not None and step.status == StepStatus.WAITING_APPROVAL:
            decisions.approve(mortals.desk, ref.run_id, "anna")
        if step is not None and step.status not in (StepStatus.PENDING, StepStatus.WAITING_APPROVAL):
            return
        mortals.turn()


STOP = (("policy", {"on_failure": "stop"}),)
ASKED = (("policy", {"approvals": ["keyed"]}),)
STORIES = {
    "succeeds": Story(EVERY_CLASS, "succeeded", ("compensated",)),
    "fails and is undone": Story((*EVERY_CLASS, "fails"), "compensated", ("compensation_failed",)),
    "fails and stays as it is": Story(("keyed", "fails"), "failed", fields=STOP),
    "is tried twice": Story(("flaky", "pure"), "succeeded"),
    "cannot be undone": Story(("stays", "keyed", "fails"), "compensation_failed"),
    "is cancelled": Story(("keyed", "transactional"), "compensated", person=cancel),
    "is retried": Story(("keyed", "until_told"), "succeeded", person=retry, fields=STOP),
    "is approved": Story(
        ("pure", "keyed"), "succeeded", person=approve, fields=(("policy", {"approvals": ["keyed"]}),)
    ),
    "is refused": Story(("nobody_has_this",), "dead_lettered"),
}


@pytest.fixture
def installed(
    redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mortals]:
    with mortals(redis_server, namespace, tmp_path, monkeypatch) as made:
        yield made


def told(mortals: Mortals, story: Story, *fatal: tuple[int, When]) -> tuple[RunRef, list[str]]:
    """The story once, with these deaths; answers the writes that were begun."""
    steps = [{"action": action, "params": {"x": i}} for i, action in enumerate(story.actions)]
    ref = mortals.submitted(*steps, fatal=fatal, **dict(story.fields))
    if story.person:
        story.person(mortals, ref)
    mortals.rest()
    mortals.doors.fatal = frozenset()
    return ref, list(mortals.doors.passed)


LOSSES = ["child", pytest.param("host", marks=pytest.mark.full)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", STORIES)
def test_whoever_dies_at_a_write_changes_nothing_of_the_end(installed: Mortals, name: str, loss: Loss) -> None:
    story = STORIES[name]
    installed.loss = loss
    ref, writes = told(installed, story)
    assert judged(installed, story, ref, may_doubt=False) == []
    assert len(writes) > 5
    for index, write in enumerate(writes):
        for when in WHEN:
            ref, _ = told(installed, story, (index, when))
            wrong = judged(installed, story, ref, may_doubt=True)
            assert not wrong, f"dead {when} {index} {write}: {wrong}\n{scene(installed, ref)}"


@pytest.mark.full
@pytest.mark.parametrize("loss", ["child", "host"])
@pytest.mark.parametrize("name", STORIES)
def test_two_deaths_change_nothing_either(installed: Mortals, name: str, loss: Loss) -> None:
    """Also at what was begun to get over the first: pairs at random, the seed is in the message."""
    story, seed = STORIES[name], random.randrange(10**6)
    drawn = random.Random(seed)
    installed.loss = loss
    _, writes = told(installed, story)
    for _ in range(PAIRS):
        first, later = drawn.randrange(len(writes)), drawn.randrange(1, len(writes))
        fatal = ((first, drawn.choice(WHEN)), (first + later, drawn.choice(WHEN)))
        ref, _ = told(installed, story, *fatal)
        wrong = judged(installed, story, ref, may_doubt=True)
        assert not wrong, f"seed {seed}, dead at {fatal}: {wrong}\n{scene(installed, ref)}"


# ---- what must hold


def judged(mortals: Mortals, story: Story, ref: RunRef, *, may_doubt: bool) -> list[str]:
    """All that is wrong with a run that has come to rest."""
    row, state = mortals.row(ref), mortals.store.views.run(ref)
    allowed = (story.end, *(story.in_doubt if may_doubt else ()))
    wrong = [] if row.status in allowed else [f"it is {row.status}, not {allowed}"]
    if state is None or (state.status, state.version) != (row.status, row.version):
        wrong.append(f"the store says {state}, the ledger {row.status} {row.version}")
    return [*wrong, *_versions(mortals, ref), *_effects(mortals, story, ref), *_letters(mortals, row.status, ref)]


def _versions(mortals: Mortals, ref: RunRef) -> Iterator[str]:
    events = mortals.store.views.events(ref)
    if [event.version for event in events] != list(range(1, len(events) + 1)):
        yield f"versions {[event.version for event in events]}"


def _effects(mortals: Mortals, story: Story, ref: RunRef) -> Iterator[str]:
    statuses = {step.id: step.status for step in mortals.store.views.steps(ref)}
    for index, action in enumerate(story.actions):
        step_id = f"s{index}"
        if action in ("pure", "fails", "until_told") or step_id not in statuses:
            continue
        done, undone = _seen(mortals, action, ref, step_id)
        unknown = statuses[step_id] == StepStatus.COMPENSATION_FAILED
        if done > 1 or undone > done or not (unknown or (done > undone) == (statuses[step_id] == StepStatus.COMPLETED)):
            yield f"{step_id} ({action}) is {statuses[step_id]}, done {done} times, undone {undone} times"


def _seen(mortals: Mortals, action: str, ref: RunRef, step_id: str) -> tuple[int, int]:
    """How often the other side did it and took it back, knowing what its class lets it know."""
    if action == "transactional":
        return sales(mortals.ledger, ref, step_id, "do"), sales(mortals.ledger, ref, step_id, "undo")
    distinct = action != "once"
    return tuple(mortals.world.count(what, step_id, distinct=distinct) for what in ("do", "undo"))  # type: ignore[return-value]


def _letters(mortals: Mortals, status: str, ref: RunRef) -> Iterator[str]:
    letters = [letter.kind.value for letter in mortals.ledger.letters(100, run_id=ref.run_id)]
    owed = {"dead_lettered": "plan", "compensation_failed": "undo"}.get(status)
    if owed and owed not in letters:
        yield f"no letter about a run that is {status}: {letters}"
    if len(letters) != len(set(letters)):
        yield f"the same letter twice: {letters}"


def scene(mortals: Mortals, ref: RunRef) -> str:
    """What happened, for a person."""
    events = [f"{event.version} {event.event} {event.fields}" for event in mortals.store.views.events(ref)]
    writes = [name for name in mortals.doors.passed if name not in ("store begin_pass", "store take_due")]
    return "\n".join(map(str, (*writes, *events, *mortals.world.acts)))
