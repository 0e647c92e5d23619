"""What people do about the runs of a story, each in a process of their own, which may die.

Some ask again until they are answered. Others go away once their decision is written down: a supervisor sees to it.
"""

from collections.abc import Callable

from orchestrator import decisions, triage
from orchestrator.decisions import Desk
from orchestrator.startover import NOTHING, Again
from orchestrator.store.views import StepState
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef
from schemas.states import RunStatus, StepStatus
from tests.support.mortals import TURNS, Mortals

ANNA = "anna"


def once_acted(mortals: Mortals) -> None:
    """Wait for the first effect."""
    while not mortals.world.acts:
        mortals.turn(until=lambda: bool(mortals.world.acts))


def say(mortals: Mortals, ref: RunRef, decide: Callable[[Desk], object]) -> None:
    """Decide, and be gone as soon as it is written down."""
    before = mortals.ledger.decisions_of(ref.run_id)
    while mortals.ledger.decisions_of(ref.run_id) == before:
        mortals.asked(lambda: decide(mortals.desk))


# ---- ended


def cancel(mortals: Mortals, ref: RunRef) -> None:
    """When the first step has acted."""
    once_acted(mortals)
    mortals.insist(lambda: decisions.cancel(mortals.desk, ref.run_id, ANNA))


# ---- held


def pause(mortals: Mortals, ref: RunRef) -> None:
    """When the first step has acted."""
    once_acted(mortals)
    say(mortals, ref, lambda desk: decisions.pause(desk, ref.run_id, ANNA))


def pause_and_resume(mortals: Mortals, ref: RunRef) -> None:
    """When the first step has acted, and when nothing has moved for a while."""
    pause(mortals, ref)
    for _ in range(6):  # a lost claim has lapsed, too
        mortals.turn()
    say(mortals, ref, lambda desk: decisions.resume(desk, ref.run_id, ANNA))


def approve(mortals: Mortals, ref: RunRef) -> None:
    """When the run asks, and until it goes on."""
    mortals.insist(lambda: approve_if_asked(mortals, ref))


def approve_if_asked(mortals: Mortals, ref: RunRef) -> None:
    while True:
        step = mortals.store.views.step(ref, "s1")
        if step is not None and step.status == StepStatus.WAITING_APPROVAL:
            decisions.approve(mortals.desk, ref.run_id, ANNA)
        if step is not None and step.status not in (StepStatus.PENDING, StepStatus.WAITING_APPROVAL):
            return
        mortals.turn()


def approve_early(mortals: Mortals, ref: RunRef) -> None:
    """As soon as there is a step to approve."""
    mortals.deliver_all(until=lambda: bool(standing(mortals, ref, StepStatus.PENDING)))
    until(mortals, lambda: bool(mortals.store.views.steps(ref)))
    say(mortals, ref, lambda desk: decisions.approve(desk, ref.run_id, ANNA, step_id="s1"))


def disapprove(mortals: Mortals, ref: RunRef) -> None:
    """When the run asks."""
    until(mortals, lambda: bool(standing(mortals, ref, StepStatus.WAITING_APPROVAL)))
    say(mortals, ref, lambda desk: decisions.approve(desk, ref.run_id, ANNA, allowed=False))


# ---- in doubt


def answer(mortals: Mortals, ref: RunRef) -> None:
    """Whenever the run asks, say what is true of the step."""

    def over() -> bool:
        settle_doubts(mortals, ref)
        return mortals.row(ref).ended_at is not None

    until(mortals, over)


def answer_once(mortals: Mortals, ref: RunRef) -> None:
    """When the run asks for the first time."""
    until(mortals, lambda: bool(standing(mortals, ref, StepStatus.IN_DOUBT)))
    settle_doubts(mortals, ref)


def answer_late(mortals: Mortals, ref: RunRef) -> None:
    """When the run has ended."""
    mortals.rest()
    settle_doubts(mortals, ref)


def answer_and_retry(mortals: Mortals, ref: RunRef) -> None:
    """When the run has ended, and what was decided first was done; again where the retry ends in doubt too."""
    mortals.rest()
    while mortals.row(ref).status == RunStatus.FAILED:
        answer_late(mortals, ref)
        retry(mortals, ref)
        mortals.rest()


# who looks at the world and says whether an effect was had
VOUCHING = (answer, answer_once, answer_late, answer_and_retry)


def settle_doubts(mortals: Mortals, ref: RunRef) -> None:
    """Say of each step in doubt what is true, unless that was said and not heard yet."""
    if mortals.ledger.pending_decisions(1):
        return
    for step in standing(mortals, ref, StepStatus.IN_DOUBT):
        resolve(mortals, ref, step.id)


def resolve(mortals: Mortals, ref: RunRef, step_id: str) -> None:
    landed, result = mortals.world.stands(step_id), {"x": int(step_id[1:])}
    say(
        mortals,
        ref,
        lambda desk: decisions.resolve(desk, ref.run_id, ANNA, step_id=step_id, landed=landed, result=result),
    )


def standing(mortals: Mortals, ref: RunRef, status: StepStatus) -> list[StepState]:
    """The run's steps that are in this status."""
    return [step for step in mortals.store.views.steps(ref) if step.status == status]


def until(mortals: Mortals, holds: Callable[[], bool]) -> None:
    """Let everything go on until something holds."""
    for _ in range(TURNS):
        if holds():
            return
        mortals.turn()
    raise AssertionError("what a person waits for does not come")


# ---- started over


def retry(mortals: Mortals, ref: RunRef, again: Again = NOTHING) -> None:
    """When it has failed, and what it failed for was mended."""
    mortals.rest()
    mortals.world.told = True
    assert mortals.row(ref).status == RunStatus.FAILED
    mortals.insist(lambda: start_over(mortals, ref, again))


def start_over(mortals: Mortals, ref: RunRef, again: Again) -> None:
    """A person who is not answered looks first."""
    if mortals.row(ref).ended_at is not None and not mortals.ledger.pending_decisions(1):
        decisions.retry(mortals.desk, ref.run_id, ANNA, again=again)


def retry_from_the_first(mortals: Mortals, ref: RunRef) -> None:
    retry(mortals, ref, Again(("s0",)))


def undo_again(mortals: Mortals, ref: RunRef) -> None:
    """When it could not be undone, and what stood in the way was mended."""
    mortals.rest()
    mortals.world.told = True
    assert mortals.row(ref).status == RunStatus.COMPENSATION_FAILED
    mortals.insist(lambda: replay_undos(mortals, ref))


def replay_undos(mortals: Mortals, ref: RunRef) -> None:
    for letter in mortals.ledger.letters(100, kind=DeadLetterKind.UNDO, run_id=ref.run_id):
        triage.replay(mortals.desk, letter.id, ANNA)


def retry_with_a_new_key(mortals: Mortals, ref: RunRef) -> None:
    retry(mortals, ref, Again(("s0",), ("s0",)))
