"""Runs told from their submission to their rest: what is submitted, what people do in between, and how each ends."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator import decisions
from orchestrator.startover import NOTHING, Again
from schemas.ids import RunRef
from schemas.states import RunStatus, StepStatus
from tests.support.deaths import Freezer, When
from tests.support.mortals import Mortals, sales

EVERY_CLASS = ("pure", "idempotent", "transactional", "keyed", "once")
PASSES = ("store begin_pass", "store take_due")


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

    def ends(self, deaths: int) -> tuple[str, ...]:
        """How it may end with so many of them. The second may fall upon the undoing of what the first left in doubt."""
        if not deaths:
            return (self.end,)
        undone = deaths > 1 and "compensated" in self.in_doubt
        return (self.end, *self.in_doubt, *(("compensation_failed",) if undone else ()))


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
    "is approved": Story(("pure", "keyed"), "succeeded", person=approve, fields=ASKED),
    "is refused": Story(("nobody_has_this",), "dead_lettered"),
}


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


# ---- what came of it


def of_effects(mortals: Mortals, story: Story, ref: RunRef) -> Iterator[str]:
    """Each step whose effect was had or undone too often, or stands where it should not."""
    statuses = {step.id: step.status for step in mortals.store.views.steps(ref)}
    for index, action in enumerate(story.actions):
        step_id = f"s{index}"
        if action in ("pure", "fails", "until_told") or step_id not in statuses:
            continue
        done, undone = (count(mortals, action, ref, step_id, what) for what in ("do", "undo"))
        unknown = statuses[step_id] == StepStatus.COMPENSATION_FAILED
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
    writes = [name for name in mortals.doors.passed if name not in PASSES]
    return "\n".join(map(str, (*writes, *events, *mortals.world.acts)))
