"""A process dies at a write, before it or after it; so for each write of a run's life, whatever its end.

What comes of the run must be what comes of it without a death, and every effect what its class promises.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from orchestrator.decisions import CARRIED_OUT
from orchestrator.ledger import LedgerRun
from schemas.ids import RunRef
from schemas.states import StepStatus
from tests.support.changes import CALLBACKS, OPERATORS, RECOVERY, scripts, transactions
from tests.support.deaths import UNCOUNTED, Freezer, When, Write
from tests.support.mortals import Loss, Mortals, mortals
from tests.support.people import VOUCHING
from tests.support.servers import Server
from tests.support.stories import (
    STORIES,
    Outcome,
    Story,
    in_doubt,
    letters_about,
    of_effects,
    outcome,
    scene,
    told,
)

DRAWN = 7  # deaths of each story, where not all of them have their turn
PAIRS = 7  # of each story
WHEN: tuple[When, ...] = ("before", "after")
LOSSES: tuple[Loss, ...] = ("child", "parent", "host")


@pytest.fixture
def installed(
    redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mortals]:
    with mortals(redis_server, namespace, tmp_path, monkeypatch, Mortals) as made:
        yield made


@pytest.mark.parametrize("name", STORIES)
def test_whoever_dies_at_a_write_changes_nothing_of_the_end(
    installed: Mortals, name: str, request: pytest.FixtureRequest
) -> None:
    """Every death there is, with --full; else some all over the run, and others the next time."""
    story = STORIES[name]
    ref, writes = told(installed, story)
    usual = outcome(installed, story, ref)
    assert judged(installed, story, ref, usual, deaths=0) == []
    assert len(writes) > 5
    every = list(deaths(writes))
    for death in every if request.config.getoption("--full") else rotated(every, DRAWN):
        installed.loss = death.loss
        ref, passed = told(installed, story, (death.index, death.when))
        assert passed[death.index].name == writes[death.index].name, "it went another way before anybody died"
        wrong = judged(installed, story, ref, usual, deaths=1)
        assert not wrong, f"{death} {writes[death.index]}: {wrong}\n{scene(installed, ref)}"


@pytest.mark.full
def test_every_change_there_is_belongs_to_a_story(installed: Mortals) -> None:
    """Of the store and of the ledger; a new one must find its place in one, or among those that no run has."""
    passed = {write.name for story in STORIES.values() for write in told(installed, story)[1]}
    for name, loss, write in ENDED_BY_OTHERS:
        passed |= killed_at(partial(retold, installed, STORIES[name]), installed, loss, write)
    for write in ("send late", "world undo"):
        passed |= killed_at(partial(came_late, installed, "wakes"), installed, "child", write)
    found = scripts() | transactions()
    others = OPERATORS | RECOVERY | CALLBACKS
    assert found >= others
    uncounted = {f"store {name}" for name in UNCOUNTED}
    assert found - others - uncounted - passed == set()


# where only a death calls somebody in
ENDED_BY_OTHERS: tuple[tuple[str, Loss, str], ...] = (
    ("succeeds", "child", "store complete_step"),
    ("fails and is undone", "host", "store complete_undo"),
    ("succeeds", "host", "store admit_plan"),
    ("succeeds", "host", "send step"),
)


def killed_at(tell: Callable[..., list[Write]], mortals: Mortals, loss: Loss, name: str) -> set[str]:
    """What happens when somebody dies before the last write of this name."""
    index = max(index for index, write in enumerate(tell()) if write.name == name)
    mortals.loss = loss
    return {write.name for write in tell((index, "before"))}


def retold(mortals: Mortals, story: Story, *fatal: tuple[int, When]) -> list[Write]:
    return told(mortals, story, *fatal)[1]


@dataclass(frozen=True)
class Death:
    """Who dies with what, and where."""

    loss: Loss
    index: int
    when: When


def deaths(writes: list[Write]) -> Iterator[Death]:
    """Every one that differs from the others.

    Behind a write is before the next one of the same process. What a death takes along matters where a message was in
    hand: who sweeps or decides has none.
    """
    for loss in LOSSES:
        for index, when in places(writes):
            if loss == "child" or writes[index].message:
                yield Death(loss, index, when)


def places(writes: list[Write]) -> Iterator[tuple[int, When]]:
    """Before each write, and behind the last one of each process."""
    last = {write.process: index for index, write in enumerate(writes)}
    for index, write in enumerate(writes):
        yield index, "before"
        if last[write.process] == index:
            yield index, "after"


def rotated(all_of_them: list[Death], at_most: int) -> list[Death]:
    """So many of them, evenly, beginning anywhere: each has its turn as often as any other."""
    stride = -(-len(all_of_them) // at_most)
    return all_of_them[random.randrange(stride) :: stride]


@pytest.mark.full
def test_whoever_dies_while_he_tells_the_ledger_tells_it_all_the_same(installed: Mortals) -> None:
    """Every transition, once."""
    story = STORIES["is tried until its time is up"]
    installed.drained, installed.loss = True, "host"
    _, writes = told(installed, story)
    telling = [
        place for place in places(writes) if writes[place[0]].name in ("store drain_ledger", "ledger History.take")
    ]
    assert len(telling) > 5
    for place in telling:
        ref, _ = told(installed, story, place)
        installed.turn()
        heard = [(event.version, event.event) for event in installed.ledger.history.events(ref.run_id)]
        assert heard == [(event.version, event.event) for event in installed.store.views.events(ref)], (
            f"dead at {place}"
        )


@pytest.mark.full
@pytest.mark.parametrize("name", STORIES)
def test_two_deaths_change_nothing_either(installed: Mortals, name: str) -> None:
    """Also at what was begun to get over the first: pairs at random, the seed is in the message."""
    story, seed = STORIES[name], random.randrange(10**6)
    drawn = random.Random(seed)
    ref, writes = told(installed, story)
    usual = outcome(installed, story, ref)
    for _ in range(PAIRS):
        installed.loss = drawn.choice(LOSSES)
        first, later = drawn.randrange(len(writes)), drawn.randrange(1, len(writes))
        fatal = ((first, drawn.choice(WHEN)), (first + later, drawn.choice(WHEN)))
        ref, _ = told(installed, story, *fatal)
        wrong = judged(installed, story, ref, usual, deaths=2)
        assert not wrong, f"seed {seed}, {installed.loss} dead at {fatal}: {wrong}\n{scene(installed, ref)}"


@pytest.mark.full
@pytest.mark.parametrize("name", STORIES)
def test_whoever_freezes_at_a_write_and_wakes_when_all_is_over_changes_nothing(installed: Mortals, name: str) -> None:
    """At some writes of each story, others the next time. Not before an effect of which a person says meanwhile that it
    was not had: whoever says so answers for it."""
    story = STORIES[name]
    ref, writes = told(installed, story)
    usual = outcome(installed, story, ref)
    vouched = story.person in VOUCHING
    frozen = [one for one in deaths(writes) if one.loss == "child"]
    frozen = [one for one in frozen if not (vouched and (writes[one.index].name, one.when) == ("world do", "before"))]
    for death in rotated(frozen, DRAWN):
        installed.loss = "host"
        freezer = Freezer((death.index, death.when))
        ref, _ = told(installed, story, freezer=freezer)
        freezer.wake()
        installed.rest()
        wrong = judged(installed, story, ref, usual, deaths=1)
        assert not wrong, f"frozen {death} {writes[death.index]}: {wrong}\n{scene(installed, ref)}"


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
    for place in late:
        came_late(installed, action, place)
        done, undone, known = accounted_for(installed)
        fair = done == undone or (done, undone, known) in UNDONE_BY_NOBODY
        assert fair, f"dead at {place} {writes[place[0]]}: {known}"


# its undo was begun once, and is a letter; or the process itself died before it could tell, which nobody can mend
UNDONE_BY_NOBODY = [(1, 0, "given up"), (1, 0, "unheard of")]


def came_late(mortals: Mortals, action: str, *fatal: tuple[int, When]) -> list[Write]:
    mortals.world.meanwhile = mortals.rest
    mortals.submitted({"action": action, "params": {"x": 1}}, fatal=fatal)
    mortals.rest()
    mortals.doors.fatal, mortals.world.meanwhile = frozenset(), None
    return list(mortals.doors.passed)


def accounted_for(mortals: Mortals) -> tuple[int, int, str]:
    """How often the newest run's step was done and undone, and what a person knows of it."""
    (run,) = mortals.ledger.listed(1)
    letters = mortals.ledger.letters(100, run_id=run.run_id)
    reasons = [letter.reason for letter in letters]
    assert len(reasons) == len(set(reasons)), reasons
    known = "given up" if "undo" in {letter.kind.value for letter in letters} else "unheard of"
    if known == "unheard of" and "late_effect" in reasons:
        known = "told"
    return mortals.world.count("do", "s0"), mortals.world.count("undo", "s0"), known


# ---- what must hold


def judged(mortals: Mortals, story: Story, ref: RunRef, usual: Outcome, *, deaths: int) -> list[str]:
    """All that is wrong with a run that has come to rest. usual: what comes of it without a death."""
    row, state = mortals.row(ref), mortals.store.views.run(ref)
    wrong = list(_end(mortals, story, ref, usual, deaths))
    if state is None or (state.status, _ended_in(mortals, ref)) != (row.status, row.version):
        wrong.append(f"the store says {state}, the ledger {row.status} {row.version}")
    wrong += [*_events(mortals, ref), *_answers(mortals, ref), *of_effects(mortals, story, ref)]
    wrong += _letters(mortals, row, ref)
    return [*wrong, *_unlike(outcome(mortals, story, ref), usual, with_a_result(mortals, ref))]


def _end(mortals: Mortals, story: Story, ref: RunRef, usual: Outcome, deaths: int) -> Iterator[str]:
    """An end that is none of its story; and one for another reason than the usual, unless something was in doubt."""
    row, allowed = mortals.row(ref), story.ends(deaths, heard_of(mortals, ref))
    if row.status not in allowed:
        yield f"it is {row.status}, not {allowed}"
    elif (row.status, row.reason) == usual.end or row.status in (story.unheard, *story.spent):
        return
    elif not in_doubt(story, row, *_doubts(mortals, ref)):
        yield f"it is {row.status} ({row.reason}), not {usual.end}, and nothing of class once was in doubt"


def _doubts(mortals: Mortals, ref: RunRef) -> tuple[set[str], set[str]]:
    """The steps of which it was once not known whether they had happened, and those whose undo may have."""
    said = [(event.event, event.fields.get("outcome"), event) for event in mortals.store.views.events(ref)]
    steps = {event.fields["step_id"] for name, word, event in said if name[:5] == "step." and word == "in_doubt"}
    undos = {event.fields["step_id"] for name, word, event in said if (name, word) == ("undo.expired", "given_up")}
    return steps, undos


def heard_of(mortals: Mortals, ref: RunRef) -> bool:
    """Whether the run did anything upon a person's word."""
    return any(event.event in SAID for event in mortals.store.views.events(ref))


def with_a_result(mortals: Mortals, ref: RunRef) -> set[str]:
    """Steps of which somebody could tell the result."""
    told = [event for event in mortals.store.views.events(ref) if event.event.startswith("step.")]
    return {event.fields["step_id"] for event in told if event.fields.get("outcome") == "committed"}


def _unlike(found: Outcome, usual: Outcome, with_result: set[str]) -> Iterator[str]:
    """Of a run that has ended as it does without a death, for the same reason. What is known of a step rests on what
    was done, and of one that was undone without anybody's word of what came of it there is no result."""
    if found.end != usual.end:
        return
    unheard_of = [step_id for step_id, (status, _) in usual.steps.items() if status == StepStatus.COMPENSATED]
    expected = usual.steps | {
        step_id: (StepStatus.COMPENSATED, None) for step_id in unheard_of if step_id not in with_result
    }
    if found.effects == usual.effects and found.steps != expected:
        yield f"its steps are {found.steps}, not {expected}"
    if not usual.letters <= found.letters:
        yield f"letters are missing: {set(usual.letters - found.letters)}"


def _ended_in(mortals: Mortals, ref: RunRef) -> int:
    """The version in which the run came to its end. What a person says of its steps may come behind that."""
    events = mortals.store.views.events(ref)
    return max(event.version for event in events if event.event != "step.resolved")


def _events(mortals: Mortals, ref: RunRef) -> Iterator[str]:
    events, paused = mortals.store.views.events(ref), False
    if [event.version for event in events] != list(range(1, len(events) + 1)):
        yield f"versions {[event.version for event in events]}"
    for event in events:
        paused = event.event == "run.paused" or (paused and event.event not in ("run.resumed", "run.retried"))
        if paused and event.event == "step.claimed":
            yield f"{event.fields['step_id']} began while its run was paused"


SAID = {
    "run.cancel": ("cancel", "ending"),
    "run.paused": ("pause", "paused"),
    "run.resumed": ("resume", "resumed"),
    "run.retried": ("retry", "retried"),
    "step.approved": ("approve", ""),
    "step.refused": ("approve", ""),
    "step.resolved": ("resolve", ""),
    "undo.again": ("undo", "undoing"),
}  # by what a run follows a decision: which, and the first word of its outcome, if the event does not tell


def _answers(mortals: Mortals, ref: RunRef) -> Iterator[str]:
    """People are told what the run did upon their word, no more and no less. `waiting`: it was ending already."""
    decisions = [(one.kind, (one.outcome or "").partition(":")[0]) for one in mortals.ledger.decisions_of(ref.run_id)]
    told = sorted((kind, word) for kind, word in decisions if word in CARRIED_OUT and word != "waiting")
    events = [event for event in mortals.store.views.events(ref) if event.event in SAID]
    done = sorted((kind, word or event.fields["outcome"]) for event in events for kind, word in [SAID[event.event]])
    if told != done:
        yield f"people were answered {decisions}, the run did {done}"


def _letters(mortals: Mortals, row: LedgerRun, ref: RunRef) -> Iterator[str]:
    letters = letters_about(mortals, ref)
    owed = {"dead_lettered": "plan", "compensation_failed": "undo"}.get(row.status)
    if owed and owed not in [kind for kind, _, _ in letters]:
        yield f"no letter about a run that is {row.status}: {letters}"
    if len(letters) != len(set(letters)):
        yield f"the same letter twice: {letters}"
