"""What must hold of every run, whatever happened to it: judged from the ledger's history and from the log of effects,
which no run and no worker owns. Pure.

    I1  one committed outcome for each step of a generation    I7  one policy, at each claim and commit
    I2  fences only grow; a commit shows its step's newest     I8  the version grows by one with each transition
    I3  no step starts before its needs are completed          I9  the run ends, within its bound
    I4  none starts after its run left `running`               I10 each effect is of a completed step, or was undone
    I5  a transactional effect is applied once                 I11 nothing of one run is read by another
    I6  a `once` effect happens once, and starts again only    I12 one end for each generation, and nothing after it
        where who can know said that it had not happened;
        a keyed one has one key

A run that was built again may commit once more what nobody had heard of: so commits are counted between one
`run.restored` and the next, and versions may leave a gap there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from orchestrator.ledger.history import Happened
from schemas.states import RUN_TERMINAL, STEP_TERMINAL, EffectClass, RunStatus, StepStatus
from workers.faults.log import Act

Sort = Literal["duplicate", "loss", "stuck", "other"]
ENDS: Final = frozenset({*(f"run.{status}" for status in RUN_TERMINAL), "plan.rejected"})
LEFT_RUNNING: Final = frozenset({"run.compensating", "run.cancel", "run.deadline", *ENDS})
RESTORED, RETRIED, UNDO_CLAIMED, CLAIM_ENDED = "run.restored", "run.retried", "undo.claimed", "step.claim_ended"
STANDING: Final = frozenset({StepStatus.RUNNING, StepStatus.COMPLETED, StepStatus.IN_DOUBT, StepStatus.COMPENSATING})
ACTED, BEGAN, RAISED, ASKED = "acted", "began", "raised", "asked"
UNDOING, UNDONE, UNDO_RAISED = "undoing", "undone", "undo_raised"
IN_DOUBT, EXHAUSTED, LATE, UNDO = "in_doubt", "retry_exhausted", "late_effect", "undo"  # what letters about steps say


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A step as it stands in the end. inputs: fingerprint of what its action must have seen, None: nobody knows;
    has_undo: its action has a compensation; confined: the end of its run's workspace undoes what no compensation does;
    has_probe: before anything else a worker is to ask what became of it.
    """

    id: str
    action: str
    effect: str
    needs: tuple[str, ...]
    status: str
    max_attempts: int = 3
    inputs: str | None = None
    has_undo: bool = True
    confined: bool = False
    has_probe: bool = False


@dataclass(frozen=True, slots=True)
class RunFacts:
    """All that is known of a run when all is over.

    events: all of them, or (told: false) those that were told before the store forgot the run. ended_at, bound_at: ms
    since the epoch. letters: reasons of dead letters, by step; `undo` for those about undos. late: steps whose landing
    was refused. landed: steps whose row says that they have had their effect. reason: why it ended as it did, in the
    store's words.
    """

    run_id: str
    status: str
    version: int
    policy_hash: str
    steps: tuple[StepFacts, ...]
    events: tuple[Happened, ...]
    acts: tuple[Act, ...]
    ended_at: int | None = None
    bound_at: int | None = None
    letters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    late: frozenset[str] = frozenset()
    landed: frozenset[str] = frozenset()
    told: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """What does not hold, and where. sort: under which count of the certificate it falls."""

    invariant: str
    sort: Sort
    run_id: str
    text: str


Found = Iterator[tuple[Sort, str]]


def broken(run: RunFacts) -> list[Violation]:
    """Every invariant that does not hold."""
    return [Violation(name, sort, run.run_id, text) for name, judge in CHECKS.items() for sort, text in judge(run)]


def _is_known(run: RunFacts) -> bool:
    """Whether it is known how each step stands. A run that has succeeded has completed them all."""
    return run.told or run.status == RunStatus.SUCCEEDED


# ---- from the history


@dataclass(frozen=True, slots=True)
class Move:
    """What one transition did to one step."""

    step_id: str
    status: str
    attempt: int
    fence: int


def moves(event: Happened) -> Iterator[Move]:
    """Each step that the transition moved."""
    for text in event.fields.get("steps", "").split(","):
        if text:
            step_id, _, rest = text.partition("=")
            status, attempt, fence = rest.split("/")
            yield Move(step_id, status, int(attempt), int(fence))


def _one_outcome(run: RunFacts) -> Found:
    seen: Counter[tuple[int, str]] = Counter()
    for event in run.events:
        if event.event == RESTORED:
            seen.clear()
            continue
        seen.update((event.generation, move.step_id) for move in moves(event) if move.status == StepStatus.COMPLETED)
    for (generation, step_id), times in seen.items():
        if times > 1:
            yield "duplicate", f"{step_id} was committed {times} times in generation {generation}"


def grants(events: Sequence[Happened]) -> Iterator[tuple[Happened, Move]]:
    """Each claim that was granted. A later transition of a running step shows the same fence, and is none."""
    known: set[tuple[str, int]] = set()
    for event in events:
        for move in moves(event):
            if move.status == StepStatus.RUNNING and (move.step_id, move.fence) not in known:
                known.add((move.step_id, move.fence))
                if event.event != RESTORED:
                    yield event, move


def _fences_grow(run: RunFacts) -> Found:
    newest = 0
    for _, move in grants(run.events):
        if move.fence <= newest:
            yield "other", f"{move.step_id} was granted fence {move.fence} after {newest}"
        newest = max(newest, move.fence)
    yield from _newest_committed(run)


def _newest_committed(run: RunFacts) -> Found:
    held: dict[str, int] = {}
    for event in run.events:
        if event.event == RESTORED:
            held.clear()
        for move in moves(event):
            if move.status == StepStatus.COMPLETED and move.fence < held.get(move.step_id, 0):
                yield "other", f"{move.step_id} was committed with fence {move.fence}, not {held[move.step_id]}"
            if move.status == StepStatus.RUNNING:
                held[move.step_id] = move.fence


def _needs_first(run: RunFacts) -> Found:
    needs, status = {step.id: step.needs for step in run.steps}, dict[str, str]()
    granted = {(event.version, move.step_id) for event, move in grants(run.events)}
    for event in run.events:
        status |= {move.step_id: move.status for move in moves(event)}
        for move in moves(event):
            missing = [need for need in needs.get(move.step_id, ()) if status.get(need) != StepStatus.COMPLETED]
            if missing and (event.version, move.step_id) in granted:
                yield (
                    "other",
                    f"{move.step_id} started while {missing[0]}, which it needs, was {status.get(missing[0])}",
                )


def _none_after(run: RunFacts) -> Found:
    granted: dict[int, list[str]] = {}
    for event, move in grants(run.events):
        granted.setdefault(event.version, []).append(move.step_id)
    left = None
    for event in run.events:
        left = None if event.event == RETRIED else left
        if left and event.version in granted:
            yield "other", f"{', '.join(granted[event.version])} started after {left}"
        left = event.event if event.event in LEFT_RUNNING else left


def _one_policy(run: RunFacts) -> Found:
    for event in run.events:
        found = event.fields.get("policy_hash")
        if found is None and bears_policy(event):
            yield "other", f"{event.event} (version {event.version}) does not say under which policy"
        if found and found != run.policy_hash:
            yield (
                "other",
                f"{event.event} (version {event.version}) under policy {found[:12]}, not {run.policy_hash[:12]}",
            )


def bears_policy(event: Happened) -> bool:
    """Whether it is a claim, a commit, or what else a holder did to a step."""
    return event.event == "plan.claimed" or event.event.startswith(("step.", "undo."))


def _versions(run: RunFacts) -> Found:
    before = 0
    for event in run.events:
        if event.version <= before:
            yield "other", f"versions go back: {event.version} after {before}"
        elif event.version != before + 1 and event.event != RESTORED:
            yield "other", f"version {event.version} follows {before}"
        before = event.version


def _ends(run: RunFacts) -> Found:
    if run.status not in RUN_TERMINAL:
        yield "stuck", f"it is still {run.status}"
        return
    if run.ended_at and run.bound_at and run.ended_at > run.bound_at:
        yield "stuck", f"it ended {(run.ended_at - run.bound_at) / 1000:.1f} s after its bound"
    for step in run.steps if run.told else ():
        if step.status not in STEP_TERMINAL:
            yield "stuck", f"it has ended, and {step.id} is still {step.status}"


def _one_end(run: RunFacts) -> Found:
    ended: str | None = None
    for event in run.events:
        if event.event in (RETRIED, RESTORED):
            ended = None
        elif ended:
            yield "other", f"{event.event} after {ended}"
        if event.event in ENDS:
            ended = event.event


def undoing(run: RunFacts) -> Found:
    """What the history alone says of I10: each step is undone once, and after all that needed it."""
    yield from _undone_once(run)
    yield from _undone_last(run)


def _undone_once(run: RunFacts) -> Found:
    seen: Counter[str] = Counter()
    for event in run.events:
        if event.event == RESTORED:
            seen.clear()
        seen.update(move.step_id for move in moves(event) if move.status == StepStatus.COMPENSATED)
    for step_id, times in seen.items():
        if times > 1:
            yield "duplicate", f"{step_id} was said to be undone {times} times"


def _undone_last(run: RunFacts) -> Found:
    """No undo is begun before all that needed its step is undone, or given up. Nothing of a pure step is outside. Of
    steps that were built again it is not told how they stand."""
    status, outside = dict[str, str](), [step for step in run.steps if step.effect != EffectClass.PURE]
    for event in run.events:
        if event.event == RESTORED:
            status.clear()
        status |= {move.step_id: move.status for move in moves(event)}
        for other in outside if event.event == UNDO_CLAIMED else ():
            step_id = event.fields["step_id"]
            if step_id in other.needs and status.get(other.id) in STANDING:
                yield "other", f"{step_id} was to be undone while {other.id}, which needed it, was {status[other.id]}"


# ---- from the log of effects


def _acts(run: RunFacts, step: StepFacts, *whats: str) -> list[Act]:
    return [act for act in run.acts if act.step_id == step.id and act.what in whats]


def _of_class(run: RunFacts, effect: EffectClass) -> Iterator[StepFacts]:
    return (step for step in run.steps if step.effect == effect)


def _transactions(run: RunFacts) -> Found:
    for step in _of_class(run, EffectClass.TRANSACTIONAL):
        times = len(_acts(run, step, ACTED))
        if times > 1:
            yield "duplicate", f"{step.id} ({step.action}, transactional) was applied {times} times"


def _starts(run: RunFacts) -> Found:
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


def _accounted(run: RunFacts) -> Found:
    yield from undoing(run)
    if not _is_known(run):
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


def _own_inputs(run: RunFacts) -> Found:
    for step in run.steps:
        seen = {str(act.details.get("inputs")) for act in _acts(run, step, BEGAN)}
        strange = seen - {step.inputs, "None"} if step.inputs else set()
        if strange:
            yield "other", f"{step.id} ({step.action}) was given inputs that are not its run's"


CHECKS: Final[dict[str, Callable[[RunFacts], Found]]] = {
    "I1": _one_outcome,
    "I2": _fences_grow,
    "I3": _needs_first,
    "I4": _none_after,
    "I5": _transactions,
    "I6": _starts,
    "I7": _one_policy,
    "I8": _versions,
    "I9": _ends,
    "I10": _accounted,
    "I11": _own_inputs,
    "I12": _one_end,
}
