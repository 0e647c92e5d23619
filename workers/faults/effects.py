"""What must hold of effects: judged from the log of them, which no run and no worker owns. Pure."""

from collections.abc import Iterator
from itertools import pairwise

from schemas.states import EffectClass, StepStatus
from workers.faults.known import Found, RunFacts, StepFacts, is_known
from workers.faults.log import Act

RESTORED, CLAIM_ENDED = "run.restored", "step.claim_ended"
ACTED, BEGAN, RAISED, ASKED = "acted", "began", "raised", "asked"
UNDOING, UNDONE, UNDO_RAISED = "undoing", "undone", "undo_raised"
IN_DOUBT, EXHAUSTED, LATE, UNDO = "in_doubt", "retry_exhausted", "late_effect", "undo"  # what letters about steps say


def _acts(run: RunFacts, step: StepFacts, *whats: str) -> list[Act]:
    return [act for act in run.acts if act.step_id == step.id and act.what in whats]


def _of_class(run: RunFacts, effect: EffectClass) -> Iterator[StepFacts]:
    return (step for step in run.steps if step.effect == effect)


def transactions(run: RunFacts) -> Found:
    """I5."""
    for step in _of_class(run, EffectClass.TRANSACTIONAL):
        times = len(_acts(run, step, ACTED))
        if times > 1:
            yield "duplicate", f"{step.id} ({step.action}, transactional) was applied {times} times"


def starts(run: RunFacts) -> Found:
    """I6."""
    for step in _of_class(run, EffectClass.ONCE):
        yield from _starts_of_once(run, step)
    yield from _lying_probes(run)
    for step in _of_class(run, EffectClass.KEYED):
        keys = {act.key for act in _acts(run, step, BEGAN)}
        if len(keys) > 1:
            yield "duplicate", f"{step.id} ({step.action}, keyed) was asked for under {len(keys)} keys"


def _starts_of_once(run: RunFacts, step: StepFacts) -> Found:
    """What has happened twice; else what might have, though it did not this time."""
    times = len(_acts(run, step, ACTED))
    if times > 1:
        yield "duplicate", f"{step.id} ({step.action}, once) acted {times} times"
        return
    for fence in _undenied(run, step):
        yield "duplicate", f"{step.id} ({step.action}, once) was begun again, as if fence {fence} had done nothing"


def _undenied(run: RunFacts, step: StepFacts) -> Iterator[int]:
    """Fences of attempts behind which the next one began, though they might have acted, or still might."""
    denied = _denied(run, step)
    for before, again in pairwise(_acts(run, step, BEGAN)):
        if not any(said.fence == before.fence and said.number < again.number for said in denied):
            yield before.fence


def _denied(run: RunFacts, step: StepFacts) -> list[Act]:
    """What those who can know said did not happen: an attempt by itself, or a probe of one that was proven dead."""
    dead = _proven_dead(run, step)
    raised = [act for act in _acts(run, step, RAISED) if act.details.get("no_effect")]
    asked = [act for act in _acts(run, step, ASKED) if not act.details.get("landed")]
    return [*raised, *(act for act in asked if dead is None or act.fence in dead)]


def _proven_dead(run: RunFacts, step: StepFacts) -> set[int] | None:
    """Fences of attempts whose process somebody has seen dead. None: what was said of some may have been lost."""
    if not run.told or any(event.event == RESTORED for event in run.events):
        return None
    mine = (event for event in run.events if event.event == CLAIM_ENDED and event.fields.get("step_id") == step.id)
    return {int(event.fields["fence"]) for event in mine}


def _lying_probes(run: RunFacts) -> Found:
    """Whoever says that nothing happened is believed; so it must not be said of what has acted."""
    for step in run.steps:
        acted = {act.fence: act.number for act in _acts(run, step, ACTED)}
        for said in _acts(run, step, ASKED):
            if not said.details.get("landed") and said.number > acted.get(said.fence, said.number):
                yield "duplicate", f"the probe of {step.id} ({step.action}) says that it did not happen, and it had"


def accounted(run: RunFacts) -> Found:
    """I10."""
    if not is_known(run):
        return
    for step in run.steps:
        if step.status == StepStatus.COMPLETED and not _has_happened(run, step):
            yield "loss", f"{step.id} ({step.action}) is completed, and nothing says that it has happened"
        if step.effect != EffectClass.PURE:
            yield from _effect(run, step)


def _has_happened(run: RunFacts, step: StepFacts) -> bool:
    """Whether its action has returned, or its probe has found it. A transaction may have been committed by an action
    that was killed before it could return; its row cannot be there without it.
    """
    if step.effect == EffectClass.TRANSACTIONAL:
        return step.id in run.landed
    found = (act for act in _acts(run, step, ASKED) if act.details.get("landed"))
    return bool(_acts(run, step, ACTED)) or any(found)


def _effect(run: RunFacts, step: StepFacts) -> Found:
    acted, undone = _acts(run, step, ACTED), _acts(run, step, UNDONE)
    if step.status == StepStatus.COMPLETED and undone:
        yield "other", f"{step.id} is completed, and was undone"
    elif step.status == StepStatus.COMPENSATED:
        yield from _undone(run, step, acted, undone)
    elif step.status != StepStatus.COMPLETED and acted and not may_stand(run, step):
        yield "loss", f"{step.id} is {step.status}, its effect stands, and no letter says so"


def may_stand(run: RunFacts, step: StepFacts) -> bool:
    """Whether a letter tells a person that something of the step may be there, though it is not completed. That its
    attempts are used up says so only of one that is shown to be in doubt.
    """
    saying = {IN_DOUBT, LATE, UNDO} | ({EXHAUSTED} if step.status == StepStatus.IN_DOUBT else set())
    return not saying.isdisjoint(run.letters.get(step.id, ()))


def _undone(run: RunFacts, step: StepFacts, acted: list[Act], undone: list[Act]) -> Found:
    if not undone:
        if not _goes_with_its_workspace(run, step):
            yield "loss", f"{step.id} is said to be undone, and its compensation never returned"
        return
    repeatable = step.effect in (EffectClass.IDEMPOTENT, EffectClass.KEYED)
    if not repeatable and len(undone) > 1 + (step.id in run.late):
        yield "duplicate", f"{step.id} was undone {len(undone)} times"
    if acted and acted[-1].number > undone[-1].number and not may_stand(run, step):
        yield "loss", f"{step.id} acted after it was undone, and no letter says so"
    yield from _in_order(run, step)


def _goes_with_its_workspace(run: RunFacts, step: StepFacts) -> bool:
    """Whether nobody else need undo it: a compensation that there is has tried before, and raised."""
    return step.confined and (not step.has_undo or bool(_acts(run, step, UNDO_RAISED)))


def _in_order(run: RunFacts, step: StepFacts) -> Found:
    """None is undone before all that needed it."""
    began = _acts(run, step, UNDOING)
    for other in run.steps:
        if step.id not in other.needs or other.status != StepStatus.COMPENSATED:
            continue
        ended = _acts(run, other, UNDONE)
        if began and ended and ended[0].number > began[0].number:
            yield "other", f"{step.id} was undone before {other.id}, which needed it"


def own_inputs(run: RunFacts) -> Found:
    """I11."""
    for step in run.steps:
        seen = {str(act.details.get("inputs")) for act in _acts(run, step, BEGAN)}
        strange = seen - {step.inputs, "None"} if step.inputs else set()
        if strange:
            yield "other", f"{step.id} ({step.action}) was given inputs that are not its run's"
