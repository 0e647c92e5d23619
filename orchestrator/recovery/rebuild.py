"""What a run is taken to be when the state store has forgotten it: decided from what the ledger knows, without any I/O.

The run stands where it was last heard of, never earlier than the ledger itself knows. A step is completed if it was
heard to be, or if its effect row has landed. One that may be under a claim nobody remembers has that claim ended by
what its row says; the store decides the rest (restore_run), as it does for a claim whose lease has lapsed. The attempt
is not counted: it was not its fault.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from orchestrator.ledger import AdmittedPlan, EffectState, Kind, LedgerRun
from orchestrator.ledger.losses import ClosedRow, beyond
from orchestrator.startover import NOTHING, REPEATED, Again, behind
from orchestrator.store.new import NewPlan, NewRun, NewStep, plan_as_text
from schemas.states import EffectClass, Fact, RunStatus, StepStatus

Stage = Literal["accepted", "running", "failing", "compensating"]
Record = dict[str, Any]
IDLE: Final = frozenset({"pending", "waiting_approval", "ready", "dispatched", "backoff"})
OVER: Final = frozenset({"failed", "skipped", "compensated", "compensation_failed"})
UNDONE: Final = frozenset({"compensated", "compensation_failed"})
# of a claim, or of a call's answer, that nobody remembers
FORGOTTEN: Final = ("dead", "claim", "worker", "lease_end", "reply", "refused_by", "refused_with", "undo", "undo_wait")


@dataclass(frozen=True, slots=True)
class Known:
    """All that is known of a run. new: as it was accepted; fields, records, results, errors: as last heard of;
    unadmitted: the steps of a plan of which the admitted ones are not known."""

    row: LedgerRun
    new: NewRun
    plan: NewPlan | None
    fields: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, Record] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    unadmitted: tuple[str, ...] = ()

    @property
    def fence(self) -> int:
        """The newest fence that was heard of."""
        return int(self.fields.get("fence", 0))

    @property
    def standing(self) -> tuple[int, int]:
        """Generation and version that were heard of last."""
        return int(self.fields.get("generation", 0)), int(self.fields.get("version", 0))


@dataclass(frozen=True, slots=True)
class RebuiltStep:
    """A step for the store. fact: of the claim that ends with this, None where there is none to end."""

    step: NewStep
    record: Record
    fact: Fact | None = None
    result_text: str = ""
    error_text: str = ""

    def words(self) -> tuple[str, ...]:
        """The step as restore_run takes it."""
        step, fact = self.step, self.fact.value if self.fact else ""
        record = json.dumps(self.record)
        return step.id, record, fact, self.result_text, self.error_text, step.text, ",".join(step.needs)


@dataclass(frozen=True, slots=True)
class RebuiltRun:
    """A run for the store. fence: its rows are closed up to it; heard: its generation and version before."""

    stage: Stage
    fence: int
    heard: tuple[int, int]
    fields: Mapping[str, str]
    steps: tuple[RebuiltStep, ...]


def silence_ms(lease_ms: int, stop_grace_ms: int) -> int:
    """How long a holder of a claim may act that hears nothing, until it is killed."""
    return 2 * lease_ms + stop_grace_ms


def as_admitted(plan: NewPlan, stop_grace_ms: int) -> AdmittedPlan:
    """A plan as the ledger keeps it, so that its run can be built again."""
    longest = max((step.lease_ms for step in plan.steps), default=0)
    return AdmittedPlan(plan_as_text(plan), silence_ms(longest, stop_grace_ms))


def planned_anew(known: Known, plan_text: str | None) -> Known | None:
    """The same, of which the admitted steps are not known, as if its plan had just been made. plan_text: the plan of
    this very generation, so that no planner is asked. None: it cannot go by that.

    What its steps have done is in their effect rows. One that was being undone knows more than they say.
    """
    ending = (RunStatus.FAILING, RunStatus.COMPENSATING)
    if plan_text is None or known.row.status in ending or known.fields.get("status") in ending:
        return None
    unadmitted = tuple(step["id"] for step in json.loads(plan_text).get("steps", ()))
    kept = ("fence", "version", "created_at", "ttl_ms")
    fields = {name: known.fields[name] for name in kept if name in known.fields}
    generation = {"generation": str(known.row.generation)} if fields else {}
    return replace(known, fields=fields | generation, records={}, results={}, errors={}, unadmitted=unadmitted)


def of_this_generation(known: Known, ordered: Sequence[Again]) -> Known:
    """The same, where the run was started over since it was heard of: completed steps stay, the others begin anew.

    ordered: what people wanted done again each time that it was, and was not heard of.
    """
    if not known.fields or known.standing[0] >= known.row.generation:
        return known
    kept = ("fence", "version", "created_at", "ttl_ms")
    fields = {name: known.fields[name] for name in kept} | {"generation": str(known.row.generation)}
    records = known.records
    for again in ordered or (NOTHING,):
        redone = behind(known.plan.steps if known.plan else (), again.from_steps)
        records = {name: _started_over(one, name in redone, name in again.new_keys) for name, one in records.items()}
    return replace(known, fields=fields, records=records)


def _started_over(record: Record, redone: bool, renewed: bool) -> Record:
    """As the script `retry` does it."""
    completed = record["status"] == StepStatus.COMPLETED
    if completed and not redone:
        return record
    repeated = record["effect"] in REPEATED
    asked = record.get("approval") and (repeated or renewed or not completed)
    anew = {"status": "pending", "attempt": 0, **({"approval": "needed"} if asked else {})}
    if completed:
        anew["touched"] = record["effect"] != EffectClass.PURE
    if renewed:
        anew |= {"group": record["group"] + 1, "touched": False}
    kept = {name: value for name, value in record.items() if name != "given_up"}
    return {**kept, **anew}


def undone_again(known: Known, begun: Mapping[str, Collection[int]], generation: int | None) -> Known:
    """The same, where people have had undos begun again since. begun: by step, the fences of those that had been given
    up; generation: the one that this began, None: none that was not heard of."""
    fields = known.fields
    if generation is not None:  # the bound of its end is counted anew, too
        fields = {name: value for name, value in fields.items() if name != "deadline_at"}
        fields |= {"generation": str(generation), "status": RunStatus.COMPENSATING.value, "ended_at": "0"}
    records = {name: _undone_again(one, begun.get(name, ())) for name, one in known.records.items()}
    return replace(known, fields=fields, records=records)


def _undone_again(record: Record, given_up: Collection[int]) -> Record:
    """As the script `undo_again` does it."""
    over = record["status"] == StepStatus.COMPENSATION_FAILED and (record.get("undo") or {}).get("fence") in given_up
    return {**record, "status": StepStatus.COMPENSATING.value} if over else record


def stage_of(known: Known) -> Stage:
    """How far the run had come. The ledger knows of undoing before it begins."""
    heard = known.fields.get("status", "")
    if RunStatus.COMPENSATING in (known.row.status, heard):
        return "compensating"
    if known.plan is None:
        return "accepted"
    return "failing" if heard == RunStatus.FAILING else "running"


def rows_to_close(known: Known) -> list[tuple[str, Kind]]:
    """The effect rows through which somebody could still act on a claim that nobody remembers."""
    kinds: tuple[Kind, ...] = ("do", "undo") if stage_of(known) == "compensating" else ("do",)
    steps = known.plan.steps if known.plan else ()
    changing = [step.id for step in steps if step.effect != EffectClass.PURE]
    return [(step_id, kind) for step_id in (*changing, *known.unadmitted) for kind in kinds]


def rebuilt(
    known: Known, era: int, fence: int, rows: Mapping[tuple[str, str], ClosedRow], now_ms: int, ttl_ms: int
) -> RebuiltRun:
    """The run as the store is to have it in this era. rows: its effect rows, closed up to `fence`."""
    stage = stage_of(known)
    fields = {**_fresh(known, now_ms, ttl_ms), **_heard(known), **_planned(known)}
    fields |= {"policy": known.new.policy_text, "version": str(beyond(era, known.standing[1]))}
    return RebuiltRun(stage, fence, known.standing, fields, _steps(known, stage, rows))


# ---- the run's hash


def _fresh(known: Known, now_ms: int, ttl_ms: int) -> dict[str, str]:
    """The fields of a run that was just accepted."""
    new, row = known.new, known.row
    begun = row.accepted_at if row.generation == 1 else now_ms
    named = ("submission_hash", "request_id", "principal", "policy_hash", "context_hash", "planner", "on_failure")
    times = {"wait_ms": new.wait_ms, "stop_grace_ms": new.stop_grace_ms, "plan_limit_ms": new.limit_ms}
    plan = {"lease_ms": new.lease_ms, "tries": new.tries, "backoff_ms": new.backoff_ms}
    plan |= {"backoff_max_ms": new.backoff_max_ms, "attempt": 0, "holder": 0, "checks": 0, "not_before": 0}
    counted = {"generation": row.generation, "fence": 0, "ended_at": 0, "total": 0, "active": 0, "ttl_ms": ttl_ms}
    numbers = {**times, **counted, **{f"plan_{name}": value for name, value in plan.items()}}
    return {
        **{name: getattr(new, name) for name in named},
        **{name: str(value) for name, value in numbers.items()},
        "reason": "",
        "session_id": new.session_id or "",
        "on_doubt": new.on_doubt,
        "plan_queue": new.queue,
        "created_at": str(row.accepted_at),
        "deadline_at": str(begun + new.deadline_ms),
    }


def _heard(known: Known) -> dict[str, str]:
    """What was heard of it, without counters, which are counted anew, and without the claim on its planning."""
    kept = {name: value for name, value in known.fields.items() if not name.startswith("n_") and name != "owed"}
    ended = {"plan_holder": "0", "plan_dead": "0", "plan_not_before": "0"} if kept else {}
    return {**kept, **ended}


def _planned(known: Known) -> dict[str, str]:
    plan = known.plan
    if plan is None:
        return {}
    numbers = {"total": len(plan.steps), "max_parallel": plan.max_parallel, "inputs_bytes": plan.inputs_bytes}
    named = {"plan_id": plan.plan_id, "plan_hash": plan.plan_hash}
    return {**{name: str(value) for name, value in numbers.items()}, **named}


# ---- the steps


def _steps(known: Known, stage: Stage, rows: Mapping[tuple[str, str], ClosedRow]) -> tuple[RebuiltStep, ...]:
    """All steps of the plan, in its order, which is one in which every step comes behind those it needs."""
    begun: dict[str, bool] = {}  # whether a step may have completed without our knowing, or has
    found: list[RebuiltStep] = []
    for step in known.plan.steps if known.plan else ():
        may_have_begun = all(begun[need] for need in step.needs)
        one = _step(known, stage, step, rows.get((step.id, "do")), may_have_begun)
        done = one.record["status"] == StepStatus.COMPLETED or one.fact is Fact.LANDED
        begun[step.id] = done or (may_have_begun and EffectClass(step.effect) in REPEATED)
        found.append(one)
    return tuple(found)


def _step(known: Known, stage: Stage, step: NewStep, row: ClosedRow | None, may_have_begun: bool) -> RebuiltStep:
    record, result = _record(known, step), known.results.get(step.id)
    plain = RebuiltStep(step, record, error_text=known.errors.get(step.id, ""))
    if record["status"] in OVER:
        return plain
    if record["status"] in (StepStatus.COMPLETED, StepStatus.COMPENSATING) and result is not None:
        return replace(plain, record={**record, "status": "completed"}, result_text=result)
    if row is not None and row.state is EffectState.LANDED:
        return _claimed(plain, Fact.LANDED, row.result_text or "null")
    if record["status"] in (StepStatus.IN_DOUBT, StepStatus.COMPENSATING):
        return replace(plain, record={**record, "status": "in_doubt"})
    if row is not None and row.state is EffectState.OPEN and not _asked_again(record):
        return _claimed(plain, Fact.MAYBE)
    if record["status"] not in IDLE:
        return _claimed(plain, Fact.MAYBE if step.effect == EffectClass.IDEMPOTENT else Fact.NONE)
    return _idle(plain, stage, may_have_begun)


def _asked_again(record: Record) -> bool:
    """Whether a person is to approve a step that has been tried before: an open row is of that time, then."""
    return record.get("approval") == "needed" and bool(record.get("touched"))


def _claimed(one: RebuiltStep, fact: Fact, result_text: str = "") -> RebuiltStep:
    """Under a claim that ends with this. The attempt is given back, but for a `once` step, which is not tried again.

    It had begun: whoever was to approve it has, whether that was heard of or not.
    """
    counted = fact is Fact.LANDED or one.step.effect == EffectClass.ONCE
    attempt = max(one.record["attempt"], 1) if counted else max(one.record["attempt"] - 1, 0)
    approved = {"approval": "given"} if one.record.get("approval") else {}
    record = {**one.record, **approved, "attempt": attempt}
    return replace(one, record=record, fact=fact, result_text=result_text)


def _idle(one: RebuiltStep, stage: Stage, may_have_begun: bool) -> RebuiltStep:
    """Not under a claim that was heard of. An idempotent effect has no row before it landed: it may have begun."""
    unseen = one.step.effect == EffectClass.IDEMPOTENT and may_have_begun
    touched = bool(one.record.get("touched")) or unseen
    record = {**one.record, **({"touched": True} if touched else {})}
    if stage != "running":
        return replace(one, record={**record, "status": "in_doubt" if touched else "skipped"})
    waits = record["status"] == StepStatus.WAITING_APPROVAL and record.get("approval") == "needed"
    return replace(one, record={**record, "status": "waiting_approval" if waits else "pending"})


def _record(known: Known, step: NewStep) -> Record:
    """The record that was last heard of, without the claim; else that of a step which has not moved."""
    heard = known.records.get(step.id)
    if heard is not None:
        # a letter names an undo that is over by its fence
        over = {"undo": heard["undo"]} if heard["status"] in UNDONE and heard.get("undo") else {}
        return {**{name: value for name, value in heard.items() if name not in FORGOTTEN}, "holder": 0, **over}
    same = ("index", "action", "effect", "token", "queue", "max_attempts", "lease_ms", "limit_ms")
    record = {name: getattr(step, name) for name in (*same, "backoff_ms", "backoff_max_ms")}
    record |= {"refs": ",".join(step.refs), "status": "pending", "attempt": 0, "fence": 0, "holder": 0, "group": 0}
    asked = {"approval": "needed"} if step.approval else {}
    return {**record, **asked, **({"probe": True} if step.probe else {})}
