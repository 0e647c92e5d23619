"""What a run waits for, since when, what will move it on, and when. Reads only; nothing here decides.

Each wait names one mover: a worker that holds a lease, a supervisor and the time of its next look, or a person.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator import bound
from orchestrator.lookup import Lookup
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Duty
from orchestrator.store.views import RunState, StepState
from schemas.ids import RunRef
from schemas.states import RUN_TERMINAL, RunStatus, StepStatus

SHOWN: Final = 50  # steps that are looked at one by one
A_PERSON: Final = "a person"
NOT_THERE: Final = "the ledger has accepted it, the state store does not have it: it is going to be built again there"
MOVERS: Final[Mapping[Duty, str]] = {
    "leases": "reclaim-stale-leases",
    "dispatches": "redispatch-lost-steps",
    "retries": "retry-due-steps",
    "deadlines": "enforce-deadlines",
    "settles": "settle-runs",
    "undos": "trigger-compensation",
    "waits": "end-waits",
}


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that is waited for. Times: milliseconds since the epoch, None where there is none.

    what: a word for programs; text: a sentence; until: when it ends by itself; mover: who moves it on, at that time.
    """

    what: str
    text: str
    step_id: str | None = None
    since: int | None = None
    until: int | None = None
    mover: str | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """All that a run waits for.

    now: the store's clock; more: steps that are not shown; ended_by: the latest end, see orchestrator.bound.
    """

    status: str
    now: int
    waits: tuple[Wait, ...]
    more: int
    deadline_at: int | None
    ended_by: int | None


def why(lookup: Lookup, store: Store, run_id: str, settings: Settings) -> Why:
    """Look at a run. NotFound: it was never accepted."""
    row = lookup.find(run_id)
    run = lookup.state(row)
    if run is not None:
        return look(store, lookup.ref(row), run, settings)
    waits = () if row.ended_at else (Wait("store", NOT_THERE, since=row.accepted_at, mover="audit-runs"),)
    return Why(row.status, store.now_ms(), waits, 0, None, None)


def look(store: Store, ref: RunRef, run: RunState, settings: Settings) -> Why:
    """The same for a run that the store has."""
    now = store.now_ms()
    if run.status in RUN_TERMINAL:
        return Why(run.status, now, tuple(_ended(store, ref, run, now)), 0, None, None)
    steps = store.views.steps(ref)
    moving = [step for step in steps if step.status in _STEPS]
    looked_at = sorted(moving, key=lambda step: (step.status not in _URGENT, step.index))[:SHOWN]
    waits = (*_of_run(store, ref, run, now), *(_of_step(store, ref, _Seen(run, step, now)) for step in looked_at))
    left = len(moving) - len(looked_at)
    return Why(run.status, now, waits, left, run.deadline_at, bound.ended_by(run, steps, settings))


# ---- the run itself


def _ended(store: Store, ref: RunRef, run: RunState, now: int) -> Iterator[Wait]:
    at = store.views.due(ref).get("settles")
    if at is not None:
        text = f"the run has ended as {run.status}; the ledger is still to be told{_lag(store, now)}"
        yield Wait("ledger", text, since=run.ended_at, mover=MOVERS["settles"], at=at)


def _lag(store: Store, now: int) -> str:
    """How far the ledger is behind, for whoever waits for it: does it stand still, or is this run alone left?"""
    oldest = store.stream.oldest_at()
    if oldest is None:
        return ""
    behind, oldest_s = sum(store.stream.lengths()), (now - oldest) / 1000
    return f"; it is {behind} transitions behind, the oldest from {oldest_s:.0f} s ago"


def _of_run(store: Store, ref: RunRef, run: RunState, now: int) -> Iterator[Wait]:
    due = store.views.due(ref)
    if run.paused_at:
        text = f"paused by {run.paused_by}; what runs goes on, nothing else starts"
        yield Wait("pause", text, None, run.paused_at, run.deadline_at, A_PERSON)
    if run.status == RunStatus.ACCEPTED and not run.paused_at:
        yield _of_planner(run, due, now)
    elif run.status == RunStatus.PLANNING:
        yield _planning(run, due, now)
    elif run.status == RunStatus.FAILING:
        yield Wait("ending", f"it is ending ({run.reason}); attempts that run have been told to stop")
    if "settles" in due:
        text = "nothing of it moves any more; it is to be closed"
        yield Wait("settle", text, mover=MOVERS["settles"], at=due["settles"])
    if "undos" in due:
        text = "nothing of it runs any more; what it did is to be undone"
        yield Wait("undoing", text, mover=MOVERS["undos"], at=due["undos"])


def _of_planner(run: RunState, due: Mapping[Duty, int], now: int) -> Wait:
    plan = run.plan
    if plan.not_before > now:
        text = f"the planner is asked again, attempt {plan.attempt + 1} of {plan.tries}"
        return Wait("backoff", text, None, None, plan.not_before, MOVERS["retries"], due.get("retries"))
    text = f"its planning lies in the queue {plan.queue} and waits for a worker"
    return Wait("message", text, None, plan.dispatched_at, None, MOVERS["dispatches"], due.get("dispatches"))


def _planning(run: RunState, due: Mapping[Duty, int], now: int) -> Wait:
    plan = run.plan
    text = f"{plan.worker} is making the plan, attempt {plan.attempt} of {plan.tries}"
    if plan.dead or plan.lease_end <= now:
        over = f"{text}; its lease is over"
        return Wait("stale", over, None, None, plan.lease_end, MOVERS["leases"], due.get("leases"))
    return Wait("lease", text, None, None, plan.lease_end, plan.worker)


# ---- its steps


@dataclass(frozen=True, slots=True)
class _Seen:
    """One step, the run it belongs to, and the time."""

    run: RunState
    step: StepState
    now: int
    due: Mapping[Duty, int] = field(default_factory=dict)

    def waits(
        self,
        what: str,
        text: str,
        *,
        since: int = 0,
        until: int = 0,
        mover: str | None = None,
        duty: Duty | None = None,
    ) -> Wait:
        """duty: whose look is the next; names the mover, unless another one is given."""
        at = self.due.get(duty) if duty else None
        who = mover or (MOVERS[duty] if duty else None)
        return Wait(what, text, self.step.id, since or None, until or None, who, at)

    @property
    def lapsed(self) -> bool:
        return self.step.dead or self.step.lease_end <= self.now


def _of_step(store: Store, ref: RunRef, seen: _Seen) -> Wait:
    return _STEPS[StepStatus(seen.step.status)](replace(seen, due=store.views.due(ref, seen.step.id)))


def _running(seen: _Seen) -> Wait:
    step = seen.step
    text = f"{step.worker} runs attempt {step.attempt} of {step.max_attempts}"
    since, until = step.started_at, step.lease_end
    if seen.lapsed:
        return seen.waits("stale", f"{text}; its lease is over", since=since, until=until, duty="leases")
    limit = f"{text}, at most {step.limit_ms / 1000:g} s"
    return seen.waits("lease", limit, since=since, until=until, mover=step.worker)


def _dispatched(seen: _Seen) -> Wait:
    text = f"its message lies in the queue {seen.step.queue} and waits for a worker"
    return seen.waits("message", text, since=seen.step.dispatched_at, duty="dispatches")


def _ready(seen: _Seen) -> Wait:
    run = seen.run
    if run.paused_at:
        return seen.waits("pause", f"held by the pause of {run.paused_by}", since=run.paused_at, mover=A_PERSON)
    text = f"waits for room: {run.active} of at most {run.max_parallel} steps are under way"
    return seen.waits("room", text, mover="the next step that ends")


def _backoff(seen: _Seen) -> Wait:
    step = seen.step
    text = f"is tried again: {step.attempt} of {step.max_attempts} attempts are used"
    return seen.waits("backoff", text, since=step.ended_at, until=step.not_before, duty="retries")


def _approval(seen: _Seen) -> Wait:
    step, text = seen.step, "a person has to agree to it: `mandor run approve`"
    return seen.waits("approval", text, since=step.waiting_since, until=step.wait_until, mover=A_PERSON, duty="waits")


def _doubt(seen: _Seen) -> Wait:
    step = seen.step
    if not step.wait_until or seen.run.status != RunStatus.RUNNING:
        return seen.waits("doubt", "its effect may have happened; the run is ending", since=step.ended_at)
    text = "its effect may have happened, and a person has to say: `mandor run resolve`"
    return seen.waits("doubt", text, since=step.waiting_since, until=step.wait_until, mover=A_PERSON, duty="waits")


def _undoing(seen: _Seen) -> Wait:
    if seen.step.undo is not None and seen.step.undo.state == "waiting":
        text = "is undone again once what needed it is undone, which was begun again as well"
        return seen.waits("undo", text, mover="the last of those undos that ends")
    duty = min(seen.due, key=lambda name: seen.due[name], default=None)
    return seen.waits("undo", "what it did is being undone", duty=duty)


_STEPS: Final[Mapping[StepStatus, Callable[[_Seen], Wait]]] = {
    StepStatus.RUNNING: _running,
    StepStatus.DISPATCHED: _dispatched,
    StepStatus.READY: _ready,
    StepStatus.BACKOFF: _backoff,
    StepStatus.WAITING_APPROVAL: _approval,
    StepStatus.IN_DOUBT: _doubt,
    StepStatus.COMPENSATING: _undoing,
}
_URGENT: Final = frozenset({StepStatus.WAITING_APPROVAL, StepStatus.IN_DOUBT, StepStatus.RUNNING, StepStatus.BACKOFF})
