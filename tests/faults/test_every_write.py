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
from orchestrator.startover import NOTHING, Again
from schemas.ids import RunRef
from schemas.states import RunStatus, StepStatus
from tests.support.deaths import Freezer, When
from tests.support.mortals import Loss, Mortals, mortals, sales
from tests.support.servers import Server

PASSES = ("store begin_pass", "store take_due")
DRAWN = 6  # writes of each story, where not all of them have their turn
PAIRS = 10  # of each story and loss
WHEN: tuple[When, ...] = ("before", "after")
EVERY_CLASS = ("pure", "idempotent", "transactional", "keyed", "once")


@dataclass(frozen=True)
class Story:
    """What is submitted, what people do in between, and how it ends: without a death, and if what is `once` is lost.

    twice: steps whose effect is had twice, for a person has said so.
    """

    actions: tuple[str, ...]
    end: str
    in_doubt: tuple[str, ...] = ()
    person: Callable[[Mortals, RunRef], None] | None = None
    fields: tuple[tuple[str, Any], ...] = ()
    twice: tuple[str, ...] = ()


def cancel(mortals: Mortals, ref: RunRef) -> None:
    """When the first step has acted."""
    while not mortals.world.acts:
        mortals.turn(until=lambda: bool(mortals.world.acts))
    mortals.insist(lambda: decisions.cancel(mortals.desk, ref.run_id, "anna"))


def retry(mortals: Mortals, ref: RunRef, again: Again = NOTHING) -> None:
    """When it has failed, and what it failed for was mended."""
    mortals.rest()
    mortals.world.told = True
    assert mortals.row(ref).status == RunStatus.FAILED
    mortals.insist(lambda: start_over(mortals, ref, again))


def start_over(mortals: Mortals, ref: RunRef, again: Again) -> None:
    """A person who is not answered looks first."""
    if mortals.row(ref).ended_at is not None and not mortals.ledger.pending_decisions(1):
        decisions.retry(mortals.desk, ref.run_id, "anna", again=again)


def retry_from_the_first(mortals: Mortals, ref: RunRef) -> None:
    retry(mortals, ref, Again(("s0",)))


def retry_with_a_new_key(mortals: Mortals, ref: RunRef) -> None:
    retry(mortals, ref, Again(("s0",), ("s0",)))


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


FOUR = ("keyed", "transactional", "idempotent", "until_told")
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
    "is done again": Story(FOUR, "succeeded", person=retry_from_the_first, fields=STOP),
    "is had once more": Story(FOUR, "succeeded", person=retry_with_a_new_key, fields=STOP, twice=("s0",)),
    "is approved": Story(
        ("pure", "keyed"), "succeeded", person=approve, fields=(("policy", {"approvals": ["keyed"]}),)
    ),
    "is refused": Story(("nobody_has_this",), "dead_lettered"),
}


@pytest.fixture
def installed(
    redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mortals]:
    with mortals(redis_server, namespace, tmp_path, monkeypatch, Mortals) as made:
        yield made


def told(
    mortals: Mortals, story: Story, *fatal: tuple[int, When], freezer: Freezer | None = None
) -> tuple[RunRef, list[str]]:
    """The story once, with these deaths; answers the writes that were begun."""
    steps = [{"action": action, "params": {"x": i}} for i, action in enumerate(story.actions)]
    ref = mortals.submitted(*steps, fatal=fatal, freezer=freezer, **dict(story.fields))
    if story.person:
        story.person(mortals, ref)
    mortals.rest()
    mortals.doors.fatal = frozenset()
    return ref, list(mortals.doors.passed)


LOSSES = ["child", pytest.param("host", marks=pytest.mark.full)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", STORIES)
def test_whoever_dies_at_a_write_changes_nothing_of_the_end(
    installed: Mortals, name: str, loss: Loss, request: pytest.FixtureRequest
) -> None:
    """A child at each of them, with --full; else at some, drawn anew each time."""
    story = STORIES[name]
    installed.loss = loss
    ref, writes = told(installed, story)
    assert judged(installed, story, ref, may_doubt=False) == []
    assert len(writes) > 5
    every_one = loss == "child" and request.config.getoption("--full")
    for index, write in places(writes) if every_one else some(places(writes)):
        for when in WHEN:
            ref, _ = told(installed, story, (index, when))
            wrong = judged(installed, story, ref, may_doubt=True)
            assert not wrong, f"dead {when} {index} {write}: {wrong}\n{scene(installed, ref)}"


def places(writes: list[str]) -> list[tuple[int, str]]:
    """Each write with its number, without those of passes that find nothing."""
    return [(index, write) for index, write in enumerate(writes) if write not in PASSES]


def some(places: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """As many as there is time for."""
    return random.sample(places, min(DRAWN, len(places)))


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


@pytest.mark.full
@pytest.mark.parametrize("name", STORIES)
def test_whoever_freezes_at_a_write_and_wakes_when_all_is_over_changes_nothing(installed: Mortals, name: str) -> None:
    """At some writes of each story, drawn anew each time."""
    story = STORIES[name]
    installed.loss = "host"
    _, writes = told(installed, story)
    for index, write in some(places(writes)):
        for when in WHEN:
            freezer = Freezer((index, when))
            ref, _ = told(installed, story, freezer=freezer)
            freezer.wake()
            installed.rest()
            wrong = judged(installed, story, ref, may_doubt=True)
            assert not wrong, f"frozen {when} {index} {write}: {wrong}\n{scene(installed, ref)}"


@pytest.mark.full
@pytest.mark.parametrize("action", ["wakes", "wakes_and_raises"])
def test_whoever_dies_while_something_comes_late_it_is_undone_or_a_person_is_told(
    installed: Mortals, action: str
) -> None:
    """A process is frozen until its run was undone and had ended, and then acts."""
    writes = came_late(installed, action)
    assert accounted_for(installed) == (1, 1, "told" if action == "wakes" else "unheard of")
    late = [place for place in places(writes) if place[0] >= installed.world.woken]
    assert len(late) > 5
    for index, write in late:
        for when in WHEN:
            came_late(installed, action, (index, when))
            done, undone, known = accounted_for(installed)
            assert done == undone or (done, undone, known) in UNDONE_BY_NOBODY, f"dead {when} {index} {write}: {known}"


# its undo was begun once, and is a letter; or the process itself died before it could tell, which nobody can mend
UNDONE_BY_NOBODY = [(1, 0, "given up"), (1, 0, "unheard of")]


def came_late(mortals: Mortals, action: str, *fatal: tuple[int, When]) -> list[str]:
    mortals.world.meanwhile = mortals.rest
    mortals.submitted({"action": action, "params": {"x": 1}}, fatal=fatal)
    mortals.rest()
    mortals.doors.fatal, mortals.world.meanwhile = frozenset(), None
    return list(mortals.doors.passed)


def accounted_for(mortals: Mortals) -> tuple[int, int, str]:
    """How often the newest run's step was done and undone, and what a person knows of it."""
    (run,) = mortals.ledger.runs(1)
    letters = mortals.ledger.letters(100, run_id=run.run_id)
    reasons = [letter.reason for letter in letters]
    assert len(reasons) == len(set(reasons)), reasons
    known = "given up" if "undo" in {letter.kind.value for letter in letters} else "unheard of"
    if known == "unheard of" and "late_effect" in reasons:
        known = "told"
    return mortals.world.count("do", "s0"), mortals.world.count("undo", "s0"), known


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
        done, undone = (_count(mortals, action, ref, step_id, what) for what in ("do", "undo"))
        unknown = statuses[step_id] == StepStatus.COMPENSATION_FAILED
        stands = statuses[step_id] == StepStatus.COMPLETED
        too_often = done > (2 if step_id in story.twice else 1) and action != "idempotent"
        if too_often or undone > done or not (unknown or (done > undone) == stands):
            yield f"{step_id} ({action}) is {statuses[step_id]}, done {done} times, undone {undone} times"


def _count(mortals: Mortals, action: str, ref: RunRef, step_id: str, what: str) -> int:
    if action == "transactional":
        return sales(mortals.ledger, ref, step_id, what)
    return mortals.world.count(what, step_id)


def _letters(mortals: Mortals, status: str, ref: RunRef) -> Iterator[str]:
    letters = [
        (letter.kind.value, letter.step_id, letter.reason) for letter in mortals.ledger.letters(100, run_id=ref.run_id)
    ]
    owed = {"dead_lettered": "plan", "compensation_failed": "undo"}.get(status)
    if owed and owed not in [kind for kind, _, _ in letters]:
        yield f"no letter about a run that is {status}: {letters}"
    if len(letters) != len(set(letters)):
        yield f"the same letter twice: {letters}"


def scene(mortals: Mortals, ref: RunRef) -> str:
    """What happened, for a person."""
    events = [f"{event.version} {event.event} {event.fields}" for event in mortals.store.views.events(ref)]
    writes = [name for name in mortals.doors.passed if name not in PASSES]
    return "\n".join(map(str, (*writes, *events, *mortals.world.acts)))
