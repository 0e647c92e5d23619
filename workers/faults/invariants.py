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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.ledger.history import Happened
from schemas.states import RUN_TERMINAL, STEP_TERMINAL, EffectClass, StepStatus
from workers.faults import effects
from workers.faults.effects import RESTORED
from workers.faults.known import Found, RunFacts, Violation

ENDS: Final = frozenset({*(f"run.{status}" for status in RUN_TERMINAL), "plan.rejected"})
LEFT_RUNNING: Final = frozenset({"run.compensating", "run.cancel", "run.deadline", *ENDS})
RETRIED, UNDO_CLAIMED = "run.retried", "undo.claimed"
STANDING: Final = frozenset({StepStatus.RUNNING, StepStatus.COMPLETED, StepStatus.IN_DOUBT, StepStatus.COMPENSATING})


def broken(run: RunFacts) -> list[Violation]:
    """Every invariant that does not hold."""
    return [Violation(name, sort, run.run_id, text) for name, judge in CHECKS.items() for sort, text in judge(run)]


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


def _accounted(run: RunFacts) -> Found:
    yield from undoing(run)
    yield from effects.accounted(run)


CHECKS: Final[dict[str, Callable[[RunFacts], Found]]] = {
    "I1": _one_outcome,
    "I2": _fences_grow,
    "I3": _needs_first,
    "I4": _none_after,
    "I5": effects.transactions,
    "I6": effects.starts,
    "I7": _one_policy,
    "I8": _versions,
    "I9": _ends,
    "I10": _accounted,
    "I11": effects.own_inputs,
    "I12": _one_end,
}
