"""Runs told from their submission to their rest: what is submitted, what people do in between, and how each ends."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.ledger import LedgerRun
from schemas.ids import RunRef
from schemas.states import RunStatus, StepStatus
from tests.support import people
from tests.support.deaths import Freezer, When, Write
from tests.support.mortals import Mortals
from tests.support.outside import sales

EVERY_CLASS = ("pure", "idempotent", "transactional", "keyed", "once")
ONCE = ("once", "asked", "unanswered", "unheard", "silent")
NOTHING_OUTSIDE = ("pure", "fails", "until_told")


@dataclass(frozen=True)
class Story:
    """What is submitted, what people do in between, and how it ends: without a death, and if what is `once` is lost.

    twice: steps whose effect is had twice, for a person has said so. unheard: how it ends where it is over before it
    hears of what a person has decided. spent: how it ends where two deaths use up the attempts that are left.
    """

    actions: tuple[str, ...]
    end: str
    in_doubt: tuple[str, ...] = ()
    person: Callable[[Mortals, RunRef], None] | None = None
    fields: tuple[tuple[str, Any], ...] = ()
    twice: tuple[str, ...] = ()
    unheard: str | None = None
    spent: tuple[str, ...] = ()

    def ends(self, deaths: int, heard: bool) -> tuple[str, ...]:
        """How it may end with so many of them. The second may fall upon the undoing of what the first left in doubt.
        heard: whether it did anything upon a person's word."""
        if not deaths:
            return (self.end,)
        if self.unheard and not heard:
            return (self.unheard,)
        if deaths == 1:
            return (self.end, *self.in_doubt)
        undone = ("compensation_failed",) if "compensated" in self.in_doubt else ()
        return (self.end, *self.in_doubt, *undone, *self.spent)


def policy(**asked: Any) -> tuple[tuple[str, Any], ...]:
    """What a submission asks for."""
    return (("policy", asked),)


FOUR = ("keyed", "transactional", "idempotent", "until_told")
STOP = policy(on_failure="stop")
ASKED = policy(approvals=["keyed"])
DOUBTED = policy(on_doubt="wait")
STORIES = {
    "succeeds": Story(EVERY_CLASS, "succeeded", ("compensated",)),
    "fails and is undone": Story((*EVERY_CLASS, "fails"), "compensated", ("compensation_failed",)),
    "fails and stays as it is": Story(("keyed", "fails"), "failed", fields=STOP),
    "is tried twice": Story(("flaky", "pure"), "succeeded"),
    "is put off": Story(("puts_off", "pure"), "succeeded"),
    "is asked what it did": Story(("asked", "keyed"), "succeeded", ("compensated",)),
    "is planned in the end": Story(
        ("keyed", "pure"), "succeeded", fields=(("planner", "hesitates"),), spent=("failed",)
    ),
    "is never planned": Story((), "failed", fields=(("planner", "is_away"),)),
    "cannot be undone": Story(("stays", "keyed", "fails"), "compensation_failed"),
    "is refused": Story(("nobody_has_this",), "dead_lettered"),
    # ended by people, and by time
    "is cancelled": Story(("keyed", "transactional"), "compensated", person=people.cancel),
    "is tried until its time is up": Story(
        ("pure", "transactional", "never"), "compensated", fields=policy(deadline_s=40)
    ),
    "is paused until its time is up": Story(
        ("keyed", "transactional"),
        "compensated",
        person=people.pause,
        fields=policy(deadline_s=40),
        unheard="succeeded",
    ),
    "waits until its time is up": Story(
        ("idempotent", "keyed"), "compensated", fields=policy(approvals=["keyed"], deadline_s=40)
    ),
    # held, and let go
    "is paused": Story(("keyed", "transactional", "idempotent"), "succeeded", person=people.pause_and_resume),
    "is approved": Story(("pure", "keyed"), "succeeded", person=people.approve, fields=ASKED),
    "is approved in advance": Story(("pure", "keyed"), "succeeded", person=people.approve_early, fields=ASKED),
    "is not approved": Story(("idempotent", "keyed"), "compensated", person=people.disapprove, fields=ASKED),
    "is approved by nobody": Story(
        ("idempotent", "keyed"), "compensated", fields=policy(approvals=["keyed"], wait_s=20)
    ),
    # in doubt
    "had landed": Story(("unanswered", "keyed"), "succeeded", person=people.answer, fields=DOUBTED),
    "had not landed": Story(("unheard", "keyed"), "succeeded", person=people.answer, fields=DOUBTED),
    "is in doubt for good": Story(
        ("unanswered", "keyed"), "compensated", ("compensation_failed",), fields=policy(on_doubt="wait", wait_s=20)
    ),
    "is in doubt again": Story(
        ("silent",),
        "failed",
        person=people.answer_once,
        fields=policy(on_doubt="wait", on_failure="stop", wait_s=20),
    ),
    "had landed before its end": Story(("unanswered",), "failed", person=people.answer_late, fields=STOP),
    "had not landed before its end": Story(("unheard",), "failed", person=people.answer_late, fields=STOP),
    "had landed and is retried": Story(
        ("keyed", "unanswered", "pure"), "succeeded", person=people.answer_and_retry, fields=STOP
    ),
    # started over
    "is retried": Story(("keyed", "until_told"), "succeeded", person=people.retry, fields=STOP),
    "is done again": Story(FOUR, "succeeded", person=people.retry_from_the_first, fields=STOP),
    "is undone again": Story(("stubborn", "fails"), "compensated", person=people.undo_again),
    "is had once more": Story(FOUR, "succeeded", person=people.retry_with_a_new_key, fields=STOP, twice=("s0",)),
}


def told(
    mortals: Mortals, story: Story, *fatal: tuple[int, When], freezer: Freezer | None = None
) -> tuple[RunRef, list[Write]]:
    """The story once, with these deaths; answers the writes that were begun."""
    steps = [{"action": action, "params": {"x": i}} for i, action in enumerate(story.actions)]
    ref = mortals.submitted(*steps, fatal=fatal, freezer=freezer, **dict(story.fields))
    if story.person:
        story.person(mortals, ref)
    mortals.rest()
    mortals.doors.fatal = frozenset()
    return ref, list(mortals.doors.passed)


# ---- what came of it


@dataclass(frozen=True)
class Outcome:
    """What has come of a run: its end and why, what was done outside and how often, each step's status and result, and
    the letters about it.
    """

    end: tuple[str, str | None]
    effects: list[int]
    steps: dict[str, tuple[str, str | None]]
    letters: frozenset[tuple[str, str | None, str]]


def outcome(mortals: Mortals, story: Story, ref: RunRef) -> Outcome:
    row, views = mortals.row(ref), mortals.store.views
    effects = [count(mortals, action, ref, f"s{index}", "do") for index, action in enumerate(story.actions)]
    steps = {step.id: (step.status, views.result(ref, step.id)) for step in views.steps(ref)}
    return Outcome((row.status, row.reason), effects, steps, frozenset(letters_about(mortals, ref)))


def letters_about(mortals: Mortals, ref: RunRef) -> list[tuple[str, str | None, str]]:
    letters = mortals.ledger.letters(100, run_id=ref.run_id)
    return [(letter.kind.value, letter.step_id, letter.reason) for letter in letters]


def in_doubt(story: Story, row: LedgerRun, done: Collection[str], undone: Collection[str | None]) -> bool:
    """Whether a run has ended as it has because something of class once may have happened, or not: a step, or its undo.

    done, undone: steps of which that is not known.
    """
    once = {f"s{index}" for index, action in enumerate(story.actions) if action in ONCE}
    if row.status == RunStatus.COMPENSATION_FAILED:
        return bool(once.intersection(undone))
    return row.reason in {f"in_doubt:{step_id}" for step_id in once.intersection(done)}


def of_effects(mortals: Mortals, story: Story, ref: RunRef) -> Iterator[str]:
    """Each step whose effect was had or undone too often, or stands where it should not."""
    statuses = {step.id: step.status for step in mortals.store.views.steps(ref)}
    for index, action in enumerate(story.actions):
        step_id = f"s{index}"
        if action in NOTHING_OUTSIDE or step_id not in statuses:
            continue
        done, undone = (count(mortals, action, ref, step_id, what) for what in ("do", "undo"))
        unknown = statuses[step_id] in (StepStatus.COMPENSATION_FAILED, StepStatus.IN_DOUBT)
        stands = statuses[step_id] == StepStatus.COMPLETED
        too_often = done > (2 if step_id in story.twice else 1) and action != "idempotent"
        if too_often or undone > done or not (unknown or (done > undone) == stands):
            yield f"{step_id} ({action}) is {statuses[step_id]}, done {done} times, undone {undone} times"


def count(mortals: Mortals, action: str, ref: RunRef, step_id: str, what: str) -> int:
    """How often the effect of a step was had, or undone."""
    if action == "transactional":
        return sales(mortals.ledger, ref, step_id, what)
    return mortals.world.count(what, step_id)


def scene(mortals: Mortals, ref: RunRef) -> str:
    """What happened, for a person."""
    events = [f"{event.version} {event.event} {event.fields}" for event in mortals.store.views.events(ref)]
    return "\n".join(map(str, (*mortals.doors.passed, *events, *mortals.world.acts)))
