"""Undoing once more what could not be undone, because a person has its letter replayed.

The letter names the undo that was given up by its fence. Whatever has come of it since, that one is begun again once:
by the state store, or, where that has let go of the run, by the ledger, from which the run is built again. An undo of
class `once` that may have happened is not begun again: nobody knows whether it would be had twice.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator import late_effects, progress
from orchestrator.dispatch import App
from orchestrator.errors import DecisionRefused, NotBuiltYet
from orchestrator.ledger import Decision, EffectState, Ledger, LedgerRun
from orchestrator.lookup import Lookup
from orchestrator.recalled import recall
from orchestrator.store import Store
from orchestrator.store.decided import TooLate, Undoing
from orchestrator.store.replies import NotDue, OtherGeneration, UnknownRun
from schemas.dead_letter import DeadLetter
from schemas.ids import RunRef
from schemas.states import EffectClass, RunStatus, StepStatus

KIND: Final = "undo"
BEGUN: Final = "undoing"  # what an outcome begins with where the undo was begun again
BEGUN_BEFORE: Final = "begun_before"  # the same, by a call that was not heard, or that the store has forgotten
_BY_HAND: Final = "take its effect back by hand, then `mandor dlq drop {id} --reason …`"


@dataclass(frozen=True, slots=True)
class GivenUpUndo:
    """An undo that was given up, by its fence. generation: of its run, as it stands."""

    step_id: str
    fence: int
    generation: int


def look(ledger: Ledger, store: Store, letter: DeadLetter) -> GivenUpUndo:
    """The undo that a letter is about. DecisionRefused: it cannot be begun again, and why."""
    by_hand = _BY_HAND.format(id=letter.id)
    if letter.reason.startswith(late_effects.UNDO_REASON):
        message = "this tells of an effect that came late: what undid it had one try, and is not begun again"
        raise DecisionRefused(message, path="letter_id", hint=by_hand)
    row, step_id, fence = ledger.run(letter.run_id or ""), letter.step_id or "", int(letter.content.get("fence") or 0)
    if row is None:
        raise DecisionRefused(f"the ledger has let go of run {letter.run_id}", path="letter_id", hint=by_hand)
    if is_in_doubt(ledger, row.run_id, step_id, letter.content.get("effect")):
        message = f"step {step_id} is of class once, and nobody knows whether it was undone: it is not undone again"
        raise DecisionRefused(message, path="letter_id", hint=f"look; {by_hand}")
    lookup = Lookup(ledger, store)
    state = lookup.state(row)
    if state is None and row.ended_at is not None and not _can_be_built(ledger, row, step_id, fence):
        message = f"the state store has let go of run {row.run_id}, and the ledger knows too little to build it again"
        raise DecisionRefused(message, path="letter_id", hint=by_hand)
    return GivenUpUndo(step_id, fence, state.generation if state else row.generation)


def is_in_doubt(ledger: Ledger, run_id: str, step_id: str, effect: str | None) -> bool:
    """Whether an undo may have happened that must not happen twice."""
    return effect == EffectClass.ONCE and ledger.effects.state(run_id, step_id, "undo") is EffectState.OPEN


def begin(
    app: App, store: Store, ledger: Ledger, row: LedgerRun, decision: Decision
) -> Undoing | NotDue | TooLate | OtherGeneration | UnknownRun:
    """Begin it again, as `retry` starts a run over: first what the end owed; then the store; then the ledger forgets
    the end. The fence says which undo was given up, in whatever generation: of several the first begins a new one.
    """
    ref, step_id, fence = RunRef(row.run_id, row.session), str(decision.step_id), details(decision)["fence"]
    progress.settle(app, store, ledger, ref, Lookup(ledger, store).newest_generation(row))
    reply = store.runs.undo_again(ref, step_id, fence, decision.made_by, call_id=decision.id)
    if isinstance(reply, UnknownRun):
        generation = begin_forgotten(ledger, row, step_id, fence)
        return Undoing(generation, ()) if generation else reply
    if isinstance(reply, Undoing):
        ledger.reopen_run(row.run_id, reply.generation, RunStatus.COMPENSATING)
    return reply


# ---- where the store has forgotten the run


def begin_forgotten(ledger: Ledger, row: LedgerRun, step_id: str, fence: int) -> int | None:
    """Have a run undone again of which the store has nothing: it is built again from the ledger, in a new generation.
    Answers that. None: too little is known of it. NotBuiltYet: it is about to be built for somebody else's sake.
    """
    if row.ended_at is None:
        raise NotBuiltYet(f"run {row.run_id} is going to be built again in the state store")
    heard = ledger.history.run(row.run_id)
    if heard is not None and heard.generation > row.generation:
        following = heard.generation  # the store had begun it, and that was heard
    elif _can_be_built(ledger, row, step_id, fence):
        following = row.generation + 1
    else:
        return None
    ledger.reopen_run(row.run_id, following, RunStatus.COMPENSATING)
    return following


def _can_be_built(ledger: Ledger, row: LedgerRun, step_id: str, fence: int) -> bool:
    """Whether the ledger was told of the end of the run, and of this undo."""
    heard, told = ledger.history.run(row.run_id), recall(ledger, row)
    if told is None or heard is None or heard.version < row.version or row.status != RunStatus.COMPENSATION_FAILED:
        return False
    if ledger.history.admitted_plan(row.run_id, row.generation) is None:
        return False
    given_up = (step for step in told.steps if step.id == step_id and step.status == StepStatus.COMPENSATION_FAILED)
    return any(step.undo is not None and step.undo.fence == fence for step in given_up)


# ---- as the ledger has it


def begun(made: Iterable[Decision]) -> dict[str, Collection[int]]:
    """By step, the fences of undos that were given up and that people have had begun again, or are about to."""
    found: dict[str, set[int]] = {}
    for one in made:
        if _has_begun(one):
            found.setdefault(str(one.step_id), set()).add(details(one)["fence"])
    return dict(found)


def began(made: Iterable[Decision], heard: int, generation: int) -> bool:
    """Whether one of the generations behind `heard` up to this one began with an undo. Which one does not matter: a run
    of which something was undone is not started over any more, so all behind it began so, whenever that was decided.
    """
    return heard < generation and any(_has_begun(one) for one in made)


def _has_begun(one: Decision) -> bool:
    return one.kind == KIND and (one.outcome or BEGUN).partition(":")[0] in (BEGUN, BEGUN_BEFORE)


def details(decision: Decision) -> Mapping[str, int]:
    """Which undo a decision is about."""
    found: dict[str, int] = json.loads(decision.details_text or "{}")
    return found
