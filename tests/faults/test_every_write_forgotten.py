"""A process dies at a write, and the store's memory goes with it: all of it, or what is newer than a copy, which is of
before the run or of its midst. So for writes of a run's life, and for those of whoever builds it again.

The draw's seed is in the message.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from orchestrator import decisions
from orchestrator.errors import DecisionRefused, NotFound, StoreAmnesia, StoreMoved
from orchestrator.ledger import LedgerRun
from orchestrator.supervisors import audit_runs
from schemas.ids import RunRef
from schemas.states import StepStatus
from tests.support import forgetting
from tests.support.changes import RACES, RECOVERY
from tests.support.deaths import When, Write
from tests.support.forgetting import Copy
from tests.support.mortals import Mortals, mortals
from tests.support.servers import Server
from tests.support.stories import (
    NOTHING_OUTSIDE,
    STORIES,
    Outcome,
    Story,
    count,
    in_doubt,
    letters_about,
    of_effects,
    outcome,
    scene,
    told,
)

DRAWN = 3  # of each story and loss, where all are told
UNDONE = ("compensated", "compensation_failed")


@dataclass
class Forgetful(Mortals):
    """A death takes along what the server has in memory. copied: the copy that is put in its place, if there is one; it
    is made when so many writes have passed. kept_from: the first write at which a death takes nothing along.
    """

    loss: Any = "host"
    copied: Copy | None = None
    copy_at: int | None = None
    kept_from: int | None = None
    drained: bool = True
    server: Redis = field(init=False)

    def __post_init__(self) -> None:
        self.server = Redis.from_url(self.settings.redis_url)

    def _lives(self, process: Callable[[], object], message: str = "") -> bool:
        if self.copied is None and self.copy_at is not None and len(self.doors.passed) >= self.copy_at:
            self.copied = forgetting.copy_of(self.server, self.settings.namespace)
        with suppress(StoreMoved, StoreAmnesia):  # what a task gives back, and finds due again
            if not self.doors.lives(process, message):
                if self.kept_from is None or len(self.doors.passed) <= self.kept_from:
                    self.forget()
                return False
        return True

    def forget(self) -> None:
        """The broker's messages lie on the same server."""
        self.doors.sent.clear()
        forgetting.put_back(self.server, self.settings.namespace, self.copied or {})
        if self.copied:
            forgetting.restart(self.server, self.store.keys)

    def copies(self, at: int | None, kept_from: int | None = None) -> None:
        """Another run: of which moment of it there will be a copy, and where deaths no longer take anything along."""
        self.copied, self.copy_at, self.kept_from = None, at, kept_from

    def passes(self) -> tuple[Callable[[], object], ...]:
        given = (self.store, self.ledger, self.settings)
        return (*super().passes(), lambda: audit_runs.run_once(self.app, *given))

    def is_quiet(self) -> bool:
        under_way = self.ledger.open_runs(None, 1, self.settings.namespace)
        return super().is_quiet() and not under_way and not self.ledger.losses.open(self.settings.namespace)


def cancel(made: Mortals, ref: RunRef) -> None:
    """When the first step has acted, and the run is there."""
    while not made.world.acts or (made.store.views.run(ref) is None and made.row(ref).ended_at is None):
        made.turn(until=lambda: bool(made.world.acts) and made.store.views.run(ref) is not None)
    if made.row(ref).ended_at is None:
        made.insist(lambda: cancel_if_there(made, ref))


def cancel_if_there(made: Mortals, ref: RunRef) -> None:
    while made.store.views.run(ref) is None:
        if made.row(ref).ended_at is not None:
            return
        made.turn()
    decisions.cancel(made.desk, ref.run_id, "anna")


def approve(made: Mortals, ref: RunRef) -> None:
    """When the run asks, and as often as it does: a word that was forgotten is asked for again."""
    while made.row(ref).ended_at is None:
        step = made.store.views.step(ref, "s1")
        if step is not None and step.status == StepStatus.WAITING_APPROVAL:
            made.insist(lambda: approve_if_asked(made, ref))
        made.turn()


def approve_if_asked(made: Mortals, ref: RunRef) -> None:
    with suppress(DecisionRefused, NotFound):  # nothing is asked any more, or the run is gone
        decisions.approve(made.desk, ref.run_id, "anna")


TOLD = {name: story for name, story in STORIES.items() if story.person is None}
TOLD["is approved"] = replace(STORIES["is approved"], person=approve)
TOLD["is cancelled"] = replace(STORIES["is cancelled"], person=cancel, in_doubt=("succeeded",))


@pytest.fixture
def made(redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forgetful]:
    with mortals(redis_server, namespace, tmp_path, monkeypatch, Forgetful) as forgetful:
        yield forgetful


LOSSES = ["amnesia", "behind", "halfway"]


@pytest.mark.parametrize("loss", LOSSES)
def test_whoever_takes_the_memory_along_changes_nothing_of_the_end(made: Forgetful, loss: str) -> None:
    draw(made, STORIES["fails and is undone"], loss, times=4, deaths=1)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", TOLD)
def test_so_for_every_story(made: Forgetful, name: str, loss: str) -> None:
    draw(made, TOLD[name], loss, times=DRAWN, deaths=1)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["succeeds", "fails and is undone"])
def test_who_builds_it_again_may_die_and_forget_too(made: Forgetful, name: str, loss: str) -> None:
    """A second death within the first thirty writes behind the first; most of those are a restorer's."""
    draw(made, TOLD[name], loss, times=DRAWN, deaths=2)


@dataclass(frozen=True)
class Restored:
    """A loss whose restoring is told: the story, the last write of which name the memory dies behind, and with what
    copy."""

    name: str
    behind: str
    loss: str
    drained: bool


RESTORED = {
    "nothing is left": Restored("fails and is undone", "store complete_step", "amnesia", drained=False),
    "in the middle of undoing": Restored("cannot be undone", "store complete_undo", "halfway", drained=True),
    "a copy of before": Restored("is in doubt for good", "store fail_step", "behind", drained=False),
}


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", RESTORED)
def test_whoever_restores_may_die_at_any_write_and_all_is_built_as_if_he_had_not(made: Forgetful, case: str) -> None:
    """At each of them, and what he had built by then is still there; at some, and it is lost again."""
    given = RESTORED[case]
    story = TOLD[given.name]
    made.drained = given.drained
    _, writes = told(made, story)
    lost = max(index for index, write in enumerate(writes) if write.name == given.behind)
    at = copy_at(given.loss, lost)
    made.copies(at)
    ref, passed = told(made, story, (lost, "after"))
    usual = what_stands(made, story, ref)
    assert judged(made, story, ref) == []
    found = list(restoring(passed, lost))
    assert len(found) > 10
    kept: list[int | None] = [lost + 1] * len(found) + [None] * DRAWN
    for place, kept_from in zip([*found, *random.sample(found, DRAWN)], kept, strict=True):
        made.copies(at, kept_from)
        ref, again = told(made, story, (lost, "after"), place)
        assert again[place[0]].name == passed[place[0]].name, "it went another way before anybody died"
        wrong = [*judged(made, story, ref), *unlike(what_stands(made, story, ref), usual)]
        where = f"{passed[place[0]]}, {'all lost again' if kept_from is None else 'and no more is lost'}"
        assert not wrong, f"dead at {place} {where}: {wrong}\n{scene(made, ref)}"


@pytest.mark.full
def test_every_change_of_a_recovery_belongs_to_a_story(made: Forgetful) -> None:
    """A new one must find its place in one."""
    story, passed = STORIES["fails and is undone"], set[str]()
    for name, loss in FORGOTTEN:
        _, writes = told(made, story)
        index = max(index for index, write in enumerate(writes) if write.name == name)
        made.copies(copy_at(loss, index))
        passed |= {write.name for write in told(made, story, (index, "after"))[1]}
    assert RECOVERY - RACES - passed == set()


FORGOTTEN = (("store complete_step", "amnesia"), ("store create_run", "behind"), ("store confirm_end", "halfway"))


def copy_at(loss: str, death: int) -> int | None:
    """Behind how many writes the copy is made that is put in the place of what is lost."""
    return {"amnesia": None, "behind": 0, "halfway": death // 2}[loss]


TELLING = {"store drain_ledger", "ledger History.take"}  # tests of their own
AUDITED = "store mend_due"  # whenever the next audit comes
WAITING = "ledger Losses.claim"  # a restorer says every time he looks that he is still there


def restoring(passed: list[Write], lost: int) -> Iterator[tuple[int, When]]:
    """Before each write of whoever builds it again, and behind his last one. Of many looks in a row the first and the
    last."""
    behind = [(index, write) for index, write in enumerate(passed) if index > lost and write.name != AUDITED]
    processes = {write.process for _, write in behind if write.name in RECOVERY - TELLING}
    last = {write.process: index for index, write in behind}
    for index, write in behind:
        waits = {write.name, *(other.name for other in passed[index - 1 : index + 2])} == {WAITING}
        if write.process in processes and not waits:
            yield index, "before"
            if last[write.process] == index:
                yield index, "after"


def draw(made: Forgetful, story: Story, loss: str, *, times: int, deaths: int) -> None:
    seed = random.randrange(10**6)
    drawn = random.Random(seed)
    made.drained = False
    _, writes = told(made, story)
    for _ in range(times):
        points = [drawn.randrange(len(writes))]
        made.drained = drawn.random() < 0.5
        made.copies(copy_at(loss, points[0]))
        points += [points[0] + drawn.randrange(1, 30) for _ in range(deaths - 1)]
        fatal: list[tuple[int, When]] = [(point, drawn.choice(("before", "after"))) for point in points]
        ref, _ = told(made, story, *fatal)
        wrong = judged(made, story, ref)
        named = [made.doors.passed[point].name for point in points if point < len(made.doors.passed)]
        where = f"seed {seed}, dead at {fatal} {named}, {'' if made.drained else 'not '}drained"
        assert not wrong, f"{where}: {wrong}\n{scene(made, ref)}"


# ---- what must hold


def judged(made: Forgetful, story: Story, ref: RunRef) -> list[str]:
    """All that is wrong with a run that has come to rest. A run that had ended is not built again."""
    row, state = made.row(ref), made.store.views.run(ref)
    wrong = list(_end(made, story, row))
    if state is None:
        return [*wrong, *_outside(made, story, ref, row.status)]
    if state.status != row.status:
        wrong.append(f"the store says {state}, the ledger {row.status} {row.version}")
    versions = [event.version for event in made.store.views.events(ref)]
    if versions != sorted(set(versions)):
        wrong.append(f"versions {versions}")
    return [*wrong, *of_effects(made, story, ref)]


def what_stands(made: Forgetful, story: Story, ref: RunRef) -> Outcome:
    """What has come of a run, but for how often something was done that is nothing outside."""
    found = outcome(made, story, ref)
    pairs = zip(story.actions, found.effects, strict=True)
    return replace(found, effects=[0 if action in NOTHING_OUTSIDE else times for action, times in pairs])


def unlike(found: Outcome, usual: Outcome) -> Iterator[str]:
    """Whatever differs."""
    for one in fields(Outcome):
        if getattr(found, one.name) != getattr(usual, one.name):
            yield f"its {one.name}: {getattr(found, one.name)}, not {getattr(usual, one.name)}"


def _end(made: Forgetful, story: Story, row: LedgerRun) -> Iterator[str]:
    """Another end than the story's. What was in doubt the store may have forgotten: reason and letters still tell."""
    allowed = (story.end, *story.in_doubt)
    if row.status not in allowed:
        yield f"it is {row.status}, not {allowed}"
    if row.status == story.end or row.status not in UNDONE:
        return
    undos = [step_id for kind, step_id, _ in letters_about(made, RunRef(row.run_id, row.session)) if kind == "undo"]
    if not in_doubt(story, row, [f"s{index}" for index in range(len(story.actions))], undos):
        yield f"it is {row.status} ({row.reason}), not {story.end}, and nothing of class once was in doubt"


def _outside(made: Forgetful, story: Story, ref: RunRef, status: str) -> Iterator[str]:
    """What the other side has seen, where nothing but the end is known."""
    for index, action in enumerate(story.actions):
        if action in NOTHING_OUTSIDE:
            continue
        done, undone = (count(made, action, ref, f"s{index}", what) for what in ("do", "undo"))
        left = undone < done and status in UNDONE and action != "stays"
        if (done > 1 and action != "idempotent") or undone > done or left:
            yield f"s{index} ({action}) was done {done} times, undone {undone} times; its run is {status}"
