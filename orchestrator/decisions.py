"""What people decide about runs: cancel, pause, resume, retry, approve, resolve; and undo, for a dead letter.

Each is written into the ledger first, with its generation, by whom and why; then come effect rows (of a step that is
resolved, or done again), the store's transition, its messages, and the outcome in the ledger. A supervisor repeats what
has no outcome yet, and the store answers a repeat as before. No worker has to listen; who decides also carries out.

Decisions about one run are carried out in the order they were made. One made in a former generation is dropped.
"""

import getpass
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator import dispatch, kept, progress, startover, undoagain
from orchestrator.dispatch import App
from orchestrator.errors import DecisionRefused, EffectRefused, NotFound, StoreError
from orchestrator.ledger import Decision, DecisionOver, EffectState, Ledger, LedgerRun, NotClosed, RowClosed
from orchestrator.lookup import Lookup
from orchestrator.settings import settings
from orchestrator.startover import Again
from orchestrator.store import Store
from orchestrator.store.decided import Retried, StillInDoubt, outcome_of
from orchestrator.store.replies import NotDue, OtherGeneration, Publish, UnknownRun
from orchestrator.store.views import RunState, StepState
from orchestrator.telemetry import decided
from orchestrator.telemetry.logs import emit, identity
from schemas.canonical import NotCanonical, canonical_text, parse_json
from schemas.ids import RunRef
from schemas.policy import Policy
from schemas.states import EffectClass, RunStatus, StepStatus

KINDS: Final = ("cancel", "pause", "resume", "retry", "approve", "resolve")
AT_ONCE: Final = 1000  # decisions about one run that are looked at
# what an outcome begins with when the decision was carried out
CARRIED_OUT: Final = frozenset(
    {"ending", "waiting", "paused", "resumed", "retried", "again", "noted", "failed", "committed", "skipped"}
    | {undoagain.BEGUN, undoagain.BEGUN_BEFORE}
)


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision and what came of it. outcome: a word, and behind a colon what it is about (`too_late:succeeded`)."""

    id: str
    run_id: str
    kind: str
    step_id: str | None
    generation: int
    outcome: str

    @property
    def word(self) -> str:
        return self.outcome.partition(":")[0]

    @property
    def carried_out(self) -> bool:
        """Whether the run did as it was told. `waiting`: it was ending already."""
        return self.word in CARRIED_OUT


@dataclass(frozen=True, slots=True)
class Desk:
    """What deciding needs: the services of an installation."""

    app: App
    store: Store
    ledger: Ledger

    @property
    def lookup(self) -> Lookup:
        return Lookup(self.ledger, self.store)


@dataclass(frozen=True, slots=True)
class Order:
    """What a person wants. details: the rest of it, as JSON values."""

    kind: str
    by: str
    reason: str | None = None
    step_id: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def os_user() -> str:
    """Who decides, where nobody says so: the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


# ---- one function a decision


def cancel(desk: Desk, run_id: str, by: str, reason: str | None = None) -> Decided:
    """End the run: nothing more starts, what runs is told to stop, and what was done is undone where policy says so."""
    return _make(desk, run_id, Order("cancel", by, reason))


def pause(desk: Desk, run_id: str, by: str, reason: str | None = None) -> Decided:
    """Start nothing more of the run. What runs goes on, and so does the deadline."""
    return _make(desk, run_id, Order("pause", by, reason))


def resume(desk: Desk, run_id: str, by: str, reason: str | None = None) -> Decided:
    """Let a paused run go on."""
    return _make(desk, run_id, Order("resume", by, reason))


def retry(desk: Desk, run_id: str, by: str, reason: str | None = None, again: Again = startover.NOTHING) -> Decided:
    """Start an ended run over: completed steps stay, the rest is done in a new generation, with a new deadline.

    again: completed steps that are not to stay. DecisionRefused: it has not ended, succeeded, something of it was
    undone, a `once` step is in doubt, what a completed step did is not in the ledger any more, or a step cannot get a
    new key. NotFound: no such step.
    """
    state, details = may_retry(desk, run_id, again)
    return _make(desk, run_id, Order("retry", by, reason, details=details), state.generation)


def may_retry(desk: Desk, run_id: str, again: Again = startover.NOTHING) -> tuple[RunState, dict[str, Any]]:
    """The run as it stands, and what a decision to start it over would say of it; refused as by `retry`."""
    row, state = _live(desk, run_id)
    startover.check_ended(row.run_id, state.status)
    startover.refuse_submitted_again(desk.ledger, row)
    steps = desk.store.views.steps(_ref(row))
    startover.check(row.run_id, steps, again)
    kept.refuse_lost(desk.ledger, row.run_id, [step for step in steps if step.id not in again.new_keys])
    old = startover.not_had_again(steps, again)
    kept.refuse_without_files(settings(), desk.ledger, desk.store, _ref(row), old)
    return state, startover.details(desk.store, _ref(row), steps, again)


def approve(
    desk: Desk, run_id: str, by: str, reason: str | None = None, step_id: str | None = None, *, allowed: bool = True
) -> Decided:
    """Say whether a step may start. Without step_id: the one step that waits for it. A refusal ends the run."""
    row, state = _live(desk, run_id)
    chosen = step_id or _the_one(desk, row, StepStatus.WAITING_APPROVAL, "waits for approval")
    _step(desk, row, chosen)
    return _make(desk, run_id, Order("approve", by, reason, chosen, {"allowed": allowed}), state.generation)


def resolve(
    desk: Desk,
    run_id: str,
    by: str,
    reason: str | None = None,
    step_id: str | None = None,
    *,
    landed: bool,
    result: Any = None,
) -> Decided:
    """Say what became of a step in doubt: its effect landed (with the result that later steps shall see), or did not.

    Not landed: it runs again while its run goes on, and counts as never done in one that ends. Without step_id: the one
    step in doubt. DecisionRefused: the step is not in doubt, or the result is not what JSON can hold, or too large.
    """
    row, state = _live(desk, run_id)
    chosen = step_id or _the_one(desk, row, StepStatus.IN_DOUBT, "is in doubt")
    step = _step(desk, row, chosen)
    if step.status != StepStatus.IN_DOUBT:
        raise DecisionRefused(f"step {chosen} is {step.status}, not in doubt", path="step_id", hint=_look(run_id))
    result_told = {"result": json.loads(_result_text(row, step.action, result))} if landed else {}
    details = {"landed": landed, "fence": step.fence, **result_told}
    return _make(desk, run_id, Order("resolve", by, reason, chosen, details), state.generation)


# ---- made, carried out


def start_over(desk: Desk, run_id: str, by: str, reason: str | None, generation: int, decision_id: str) -> Decided:
    """A retry of this generation under an id of its own: repeated, it is the same decision. It may come too late."""
    return _make(desk, run_id, Order("retry", by, reason), generation, decision_id)


def undo_again(
    desk: Desk, run_id: str, by: str, reason: str | None, given_up: undoagain.GivenUpUndo, decision_id: str
) -> Decided:
    """Have a step undone once more whose undo was given up, under an id of its own, as above."""
    order = Order(undoagain.KIND, by, reason, given_up.step_id, {"fence": given_up.fence})
    return _make(desk, run_id, order, given_up.generation, decision_id)


def _make(
    desk: Desk, run_id: str, order: Order, generation: int | None = None, decision_id: str | None = None
) -> Decided:
    """Write the decision down and carry it out, behind those about the same run that still wait."""
    row = desk.lookup.find(run_id)
    seen = generation or _state(desk, row).generation
    details = canonical_text(dict(order.details)) if order.details else None
    said = (row.run_id, seen, order.kind, order.by, order.reason, order.step_id)
    made = desk.ledger.decide(*said, details_text=details, decision_id=decision_id)
    emit(decided.DecisionMade(order.kind, order.by, seen))
    try:
        _carry_out_up_to(desk, row.run_id, made)
    except StoreError as away:
        away.also("the decision is kept, and carried out when this is mended")
        raise
    return _decided(desk, made)


def _carry_out_up_to(desk: Desk, run_id: str, decision_id: str) -> None:
    for pending in desk.ledger.pending_decisions(AT_ONCE, run_id):
        carry_out(desk, pending)
        if pending.id == decision_id:
            return


def _decided(desk: Desk, decision_id: str) -> Decided:
    found = desk.ledger.decision(decision_id)
    if found is None or found.outcome is None:
        raise NotFound(f"decision {decision_id} is not in the ledger", hint="was the ledger restored meanwhile?")
    return Decided(found.id, found.run_id, found.kind, found.step_id, found.generation, found.outcome)


def carry_out(desk: Desk, decision: Decision) -> str:
    """Do what was decided, if it has not been done; answers the outcome. Repeated, it changes nothing."""
    row = desk.ledger.run(decision.run_id)
    if row is None:
        raise NotFound(f"the ledger knows no run {decision.run_id}", path="run_id")
    with identity(run_id=row.run_id, step_id=decision.step_id):
        outcome = _CARRIED_OUT_BY[decision.kind](desk, row, decision)
        if desk.ledger.decision_done(decision.id, outcome):
            emit(decided.DecisionDone(decision.kind, decision.made_by, outcome))
    return outcome


def _cancel(desk: Desk, row: LedgerRun, decision: Decision) -> str:
    return _told(desk, desk.store.runs.cancel(_ref(row), decision.generation, call_id=decision.id))


def _pause(desk: Desk, row: LedgerRun, decision: Decision) -> str:
    made = (decision.generation, decision.made_by)
    return _told(desk, desk.store.runs.pause(_ref(row), *made, call_id=decision.id))


def _resume(desk: Desk, row: LedgerRun, decision: Decision) -> str:
    made = (decision.generation, decision.made_by)
    return _told(desk, desk.store.runs.resume(_ref(row), *made, call_id=decision.id))


def _approve(desk: Desk, row: LedgerRun, decision: Decision) -> str:
    step_id, made = str(decision.step_id), (decision.generation, decision.made_by)
    allowed = bool(_details(decision)["allowed"])
    return _told(desk, desk.store.runs.approve(_ref(row), step_id, *made, allowed=allowed, call_id=decision.id))


def _retry(desk: Desk, row: LedgerRun, decision: Decision) -> str:
    """What the end owed comes first, letters say: once the run goes on nothing asks for it any more. Then effect rows,
    for what a new attempt may do rests on them. Then the store starts the run over, and the ledger forgets its end. If
    the store has forgotten the run, the ledger alone does, and the run is built again as it says.
    """
    ref, again = _ref(row), startover.wanted(decision.details_text)
    begun = desk.lookup.newest_generation(row) > decision.generation
    if not begun and (letter := startover.submitted_again_for(desk.ledger, row)):
        return f"submitted_again:{letter}"
    if lost := _lost_files(desk, ref, decision, again):
        return f"no_files:{lost.id}"
    progress.settle(desk.app, desk.store, desk.ledger, ref, decision.generation)
    redone = startover.set_aside(desk.ledger, desk.store, ref, decision.generation, again) if again else []
    made = (decision.generation, decision.made_by, row.deadline_ms)
    reply = desk.store.runs.retry(ref, *made, redone, again.new_keys, call_id=decision.id)
    if isinstance(reply, UnknownRun):
        generation = startover.start_over_forgotten(desk.ledger, row, decision.generation, again)
        return f"retried:{generation}" if generation else _told(desk, reply)
    if isinstance(reply, OtherGeneration) and startover.has_begun(desk.ledger, row, decision.generation):
        return f"retried:{decision.generation + 1}"
    if isinstance(reply, StillInDoubt):
        return f"in_doubt:{reply.step_id}"
    if isinstance(reply, Retried):
        status = RunStatus.ACCEPTED if reply.planned_anew else RunStatus.RUNNING
        desk.ledger.reopen_run(row.run_id, reply.generation, status)
        if reply.total:
            dispatch.open_chord(desk.app, ref, reply.generation, reply.total)
    return _told(desk, reply)


def _undo_again(desk: Desk, row: LedgerRun, decision: Decision) -> str:
    reply = undoagain.begin(desk.app, desk.store, desk.ledger, row, decision)
    return undoagain.BEGUN_BEFORE if isinstance(reply, NotDue) else _told(desk, reply)


def _lost_files(desk: Desk, ref: RunRef, decision: Decision, again: Again) -> StepState | None:
    """Files may have gone between the look at them and the row of this decision."""
    old = startover.not_had_again(desk.store.views.steps(ref), again)
    return kept.step_without_files(desk.ledger, ref.run_id, decision.generation, old)


def _resolve(desk: Desk, row: LedgerRun, decision: Decision) -> str:
    """The effect row first: what the store does next rests on it."""
    ref, step_id, details = _ref(row), str(decision.step_id), _details(decision)
    state, step = desk.store.views.run(ref), desk.store.views.step(ref, step_id)
    if state is None or step is None:
        return "unknown"
    if state.generation != decision.generation:
        return f"other_generation:{state.generation}"
    landed, text = bool(details["landed"]), canonical_text(details.get("result"))
    fence = int(details.get("fence", step.fence))  # of the attempt that the person spoke of
    if step.status == StepStatus.IN_DOUBT and step.fence == fence:
        try:
            answer = _landed_elsewhere(desk, row, step) or desk.ledger.answer_effect(
                decision.id, row.run_id, step_id, step.fence, step.token, landed, text
            )
        except EffectRefused:
            return "other_token"
        if isinstance(answer, NotClosed | DecisionOver):
            return "not_closed" if isinstance(answer, NotClosed) else "carried_out"
        landed, text = answer.state is EffectState.LANDED, answer.result_text or text
    made = (decision.generation, decision.made_by)
    reply = desk.store.runs.resolve(ref, step_id, fence, *made, landed=landed, result_text=text, call_id=decision.id)
    return _told(desk, reply)


def _landed_elsewhere(desk: Desk, row: LedgerRun, step: StepState) -> RowClosed | None:
    """What a transactional effect left in a database of the user's own: nothing is said against it, nor beside it."""
    if step.effect != EffectClass.TRANSACTIONAL:
        return None
    return desk.ledger.transactional.landed_elsewhere(row.run_id, step.id, step.fence, step.token)


_CARRIED_OUT_BY: Final[dict[str, Callable[[Desk, LedgerRun, Decision], str]]] = {
    "cancel": _cancel,
    "pause": _pause,
    "resume": _resume,
    "retry": _retry,
    "approve": _approve,
    "resolve": _resolve,
    undoagain.KIND: _undo_again,
}


def _told(desk: Desk, reply: object) -> str:
    """Send what the reply asks for, and say it in a word."""
    publish: Publish = getattr(reply, "publish", ())
    dispatch.publish(desk.app, publish)
    return outcome_of(reply)


# ---- refused before anything is written


def _live(desk: Desk, run_id: str) -> tuple[LedgerRun, RunState]:
    row = desk.lookup.find(run_id)
    return row, _state(desk, row)


def _state(desk: Desk, row: LedgerRun) -> RunState:
    state = desk.lookup.state(row)
    if state is not None:
        return state
    ended = f"it ended as {row.status} and is no longer kept there" if row.ended_at else "it is not there yet"
    raise NotFound(f"the state store has nothing of run {row.run_id}: {ended}", path="run_id", hint=_look(row.run_id))


def _step(desk: Desk, row: LedgerRun, step_id: str) -> StepState:
    step = desk.store.views.step(_ref(row), step_id)
    if step is None:
        raise NotFound(f"run {row.run_id} has no step {step_id}", path="step_id", hint=_look(row.run_id))
    return step


def _the_one(desk: Desk, row: LedgerRun, status: StepStatus, does: str) -> str:
    """The only step of this status, where none was named."""
    found = [step.id for step in desk.store.views.steps(_ref(row)) if step.status == status]
    if len(found) == 1:
        return found[0]
    if not found:
        raise DecisionRefused(f"no step of this run {does}", path="step_id", hint=_look(row.run_id))
    shown = ", ".join(found[:10])
    raise DecisionRefused(f"{len(found)} steps of this run: each {does} ({shown})", path="step_id", hint="name one")


def _result_text(row: LedgerRun, action: str, result: Any) -> str:
    """The result as it is stored, or DecisionRefused."""
    most = Policy.model_validate_json(row.policy_text).result_bytes_for(action)
    try:
        text = canonical_text(result)
        parse_json(text, max_bytes=most)
    except NotCanonical as wrong:
        raise DecisionRefused(f"this cannot be a result: {wrong}", path="result", hint="give JSON") from None
    return text


def _details(decision: Decision) -> dict[str, Any]:
    details: dict[str, Any] = json.loads(decision.details_text or "{}")
    return details


def _ref(row: LedgerRun) -> RunRef:
    return RunRef(row.run_id, row.session)


def _look(run_id: str) -> str:
    return f"see `mandor run show {run_id}`"
