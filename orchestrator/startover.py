"""Starting an ended run over: which of its completed steps are done again, and which of those under a new key.

A step that is done again takes all that needs it with it, directly or through others: nothing is built on a result that
is about to change. An effect that has landed is not had again by that; its row gives back its result. Only a new key,
which a person gives to a step by name, sets the row aside, so that the effect is had once more.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.dead_letters import PLANNER_FAILED
from orchestrator.errors import DecisionRefused, NotFound
from orchestrator.ledger import Ledger, LedgerRun, LetterFilter
from orchestrator.recalled import Recalled, recall
from orchestrator.store import Store
from orchestrator.store.new import NewStep
from orchestrator.store.views import RunState, StepState
from schemas.dead_letter import DeadLetterKind, DeadLetterStatus
from schemas.ids import RunRef
from schemas.states import RUN_RETRIABLE, EffectClass, RunStatus, StepStatus

REPEATED: Final = frozenset({EffectClass.PURE, EffectClass.IDEMPOTENT})  # done again without anybody's word
_GOES_ON: Final = "the run is {status}: it has not ended, so there is nothing to start over"
_NO_RETRY: Final[dict[str, str]] = {
    RunStatus.SUCCEEDED: "the run has succeeded: there is nothing to start over",
    RunStatus.COMPENSATED: "what the run did was undone: it cannot be started over, only submitted again",
    RunStatus.COMPENSATION_FAILED: "the run was undone in part: it cannot be started over, only submitted again",
}


@dataclass(frozen=True, slots=True)
class Again:
    """What a person wants done again, besides all that is not completed. from_steps: these, and what needs them;
    new_keys: steps whose effect is to be had once more.
    """

    from_steps: tuple[str, ...] = ()
    new_keys: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.from_steps or self.new_keys)


NOTHING: Final = Again()


def behind(steps: Iterable[StepState | NewStep], from_steps: Collection[str]) -> list[str]:
    """These steps and all that need them, in the plan's order, which is one in which nothing comes before its needs."""
    found: dict[str, None] = {}
    for step in steps:
        if step.id in from_steps or any(need in found for need in step.needs):
            found[step.id] = None
    return list(found)


def not_had_again(steps: Sequence[StepState], again: Again) -> list[StepState]:
    """The steps whose effect is not had once more: they stay, or their rows give back what they did."""
    redone = set(behind(steps, again.from_steps))
    had_again = {step.id for step in steps if step.id in again.new_keys or EffectClass(step.effect) in REPEATED}
    return [step for step in steps if step.id not in redone & had_again]


def check_ended(run_id: str, status: str) -> None:
    """DecisionRefused: a run that stands so cannot be started over."""
    if status not in RUN_RETRIABLE:
        message = _NO_RETRY.get(status, _GOES_ON).format(status=status)
        raise DecisionRefused(message, hint=f"see `mandor run show {run_id}`")


def ended_unplanned(row: LedgerRun) -> bool:
    """Whether a run has ended before a plan of it was admitted, so that no step of it was ever begun."""
    lost_planner = row.status == RunStatus.FAILED and row.reason == PLANNER_FAILED
    return lost_planner or row.status == RunStatus.DEAD_LETTERED


def submitted_again_for(ledger: Ledger, row: LedgerRun) -> str | None:
    """The letter about a run's planning for which it was submitted again."""
    if not ended_unplanned(row):
        return None
    replayed = LetterFilter(kind=DeadLetterKind.PLAN, status=DeadLetterStatus.REPLAYED, run_id=row.run_id)
    return next((letter.id for letter in ledger.triage.listed(1, wanted=replayed)), None)


def refuse_submitted_again(ledger: Ledger, row: LedgerRun) -> None:
    """DecisionRefused: another run does what this one was to do."""
    if letter := submitted_again_for(ledger, row):
        message = f"what run {row.run_id} was to do was submitted again, for a dead letter"
        raise DecisionRefused(message, path="run_id", hint=f"see `mandor dlq show {letter}`")


def check(run_id: str, steps: Sequence[StepState], again: Again) -> None:
    """NotFound: a step that the plan does not have; DecisionRefused: a new key that would do nothing, or harm."""
    known = {step.id: step for step in steps}
    for path, named in (("from_steps", again.from_steps), ("new_keys", again.new_keys)):
        for step_id in named:
            if step_id not in known:
                raise NotFound(f"run {run_id} has no step {step_id}", path=path, hint=f"see `mandor run show {run_id}`")
    redone = set(behind(steps, again.from_steps))
    for step_id in again.new_keys:
        _check_new_key(run_id, known[step_id], step_id in redone)


def _check_new_key(run_id: str, step: StepState, redone: bool) -> None:
    if step.status == StepStatus.IN_DOUBT:
        message = f"step {step.id} is in doubt: under its old key the effect may have happened"
        hint = f"say first what became of it: `mandor run resolve {run_id} {step.id}`"
        raise DecisionRefused(message, path="new_keys", hint=hint)
    if step.status == StepStatus.COMPLETED and not redone:
        hint = f"to do it again, name it also with --from: `mandor run retry {run_id} --from {step.id} …`"
        message = f"step {step.id} is completed and would be kept, so it needs no new key"
        raise DecisionRefused(message, path="new_keys", hint=hint)


# ---- as the decision keeps it


def details(store: Store, ref: RunRef, steps: Iterable[StepState], again: Again) -> dict[str, Any]:
    """What the ledger keeps with the decision: with each new key what the step had done under the former one.

    The same until the decision is carried out, so that one which is made twice is one.
    """
    if not again:
        return {}
    former = [_former(store, ref, step) for step in steps if step.id in again.new_keys]
    return {"from_steps": sorted(again.from_steps), "new_keys": former}


def _former(store: Store, ref: RunRef, step: StepState) -> dict[str, Any]:
    done = step.status == StepStatus.COMPLETED
    result = store.views.result(ref, step.id) if done else None
    return {"step_id": step.id, "attempt_group": step.group, "fence": step.fence, "result_text": result}


def wanted(details_text: str | None) -> Again:
    """What a decision says, read from its details."""
    found = json.loads(details_text or "{}")
    new_keys = (former["step_id"] for former in found.get("new_keys", ()))
    return Again(tuple(found.get("from_steps", ())), tuple(new_keys))


# ---- before the store is told


def set_aside(ledger: Ledger, store: Store, ref: RunRef, generation: int, again: Again) -> list[str]:
    """Prepare the effect rows of completed steps that are done again; answers those that are, and what needs them.

    All claims of the run are over: nothing up to its newest fence may touch the rows any more, and what is had anew
    finds its row untouched. Repeated after the store has gone on, it changes nothing of what newer fences did.
    """
    run, steps = store.views.run(ref), store.views.steps(ref)
    if run is not None and run.generation == generation and _starts_over(run, steps):
        _set_aside(ledger, ref.run_id, run.fence, steps, again)
    return behind(steps, again.from_steps)


def _set_aside(ledger: Ledger, run_id: str, fence: int, steps: Sequence[StepState], again: Again) -> None:
    redone = behind(steps, again.from_steps)
    ended = [step for step in steps if step.id in again.new_keys or _is_done_again(step, redone)]
    for rows, of_these in _by_home(ledger, ended):
        anew = [step.id for step in of_these if step.id in again.new_keys or EffectClass(step.effect) in REPEATED]
        rows.set_aside(run_id, [step.id for step in of_these], anew, fence)


def _starts_over(run: RunState, steps: Iterable[StepState]) -> bool:
    """Whether the store will do as it is told: rows of what stays completed must stay as they are."""
    doubtful = any(step.status == StepStatus.IN_DOUBT and step.effect == EffectClass.ONCE for step in steps)
    return run.status in RUN_RETRIABLE and not doubtful


def _is_done_again(step: StepState, redone: Collection[str]) -> bool:
    return step.id in redone and step.status == StepStatus.COMPLETED and step.effect != EffectClass.PURE


def _by_home(ledger: Ledger, steps: Sequence[StepState]) -> list[tuple[Any, list[StepState]]]:
    """The steps by where their rows are looked for."""
    beyond = [step for step in steps if step.effect == EffectClass.TRANSACTIONAL]
    within = [step for step in steps if step.effect != EffectClass.TRANSACTIONAL]
    return [(rows, some) for rows, some in ((ledger.transactional, beyond), (ledger.effects, within)) if some]


# ---- where the store has forgotten the run


def has_begun(ledger: Ledger, row: LedgerRun, generation: int) -> bool:
    """Whether a run was started over by the oldest retry of this generation that has no answer yet: its process ended
    before it wrote that down, for they are carried out in their order, and each is answered before the next."""
    answers = (
        one.outcome for one in ledger.decisions_of(row.run_id) if (one.kind, one.generation) == ("retry", generation)
    )
    return row.generation > generation and not any((answer or "").startswith("retried") for answer in answers)


def start_over_forgotten(ledger: Ledger, row: LedgerRun, generation: int, again: Again) -> int | None:
    """Start a run over in the ledger, when the store has forgotten it, be it before it was told to or after: the audit
    misses it then, and it is built again in its new generation. Answers that. None: too little is known of it."""
    if has_begun(ledger, row, generation):
        return generation + 1
    if row.ended_at is None or row.generation != generation or row.status not in RUN_RETRIABLE:
        return None
    planned = ledger.history.admitted_plan(row.run_id, generation) is not None
    if row.plan_hash is not None and not planned:
        return None
    told = recall(ledger, row)
    if told is None or told.run.generation == generation:
        if not _prepare_forgotten(ledger, row, told, again):
            return None
        following = generation + 1
    else:
        following = told.run.generation  # the store had started it over, and that was heard of
    ledger.reopen_run(row.run_id, following, RunStatus.RUNNING if planned else RunStatus.ACCEPTED)
    return following


def _prepare_forgotten(ledger: Ledger, row: LedgerRun, told: Recalled | None, again: Again) -> bool:
    """As `set_aside`, from what was heard. Which rows that is about is known only of a run that was heard to end."""
    heard = ledger.history.run(row.run_id)
    if told is not None and not _starts_over(told.run, told.steps):
        return False
    if not again:
        return True
    if told is None or heard is None or heard.version < row.version:
        return False
    _set_aside(ledger, row.run_id, told.run.fence, told.steps, again)
    return True
