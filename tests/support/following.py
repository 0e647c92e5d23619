"""Runs as a follower knows them, without a service."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.following import Follower
from orchestrator.ledger import LedgerRun
from orchestrator.store.views import RunState, StepState
from schemas.states import RunStatus

NOW = 1_800_000_000_000
RUN_ID = "0190aa6e-5f1c-8a3e-9d5b-2f6c1d7e8a90"


def step(
    index: int,
    status: str = "pending",
    *,
    since_ms: int = 0,
    took_ms: int | None = None,
    in_ms: int = 0,
    lease_ms: int = 10_000,
) -> StepState:
    """since_ms: dispatched and started so long ago; took_ms: ended now, after so long; lease_ms: left of its lease."""
    tried = status not in {"pending", "ready", "dispatched", "skipped"}
    started = NOW - (took_ms or since_ms)
    return StepState(
        id=f"s{index}",
        index=index,
        action="test.echo",
        effect="pure",
        queue="mandor.steps",
        status=status,
        attempt=int(tried),
        max_attempts=3,
        fence=int(tried),
        holder=int(status == "running"),
        worker="host:41:5" if tried else None,
        lease_end=NOW + lease_ms,
        token="step",
        needs=(),
        dispatched_at=started,
        started_at=started if tried else 0,
        ended_at=NOW if took_ms is not None else 0,
        not_before=NOW + in_ms,
        touched=False,
        dead=False,
        group=0,
        refs=(),
    )


def state(status: str = "running", *, ended_at: int = 0, reason: str = "", **counts: int) -> RunState:
    """A run of so many steps in each status."""
    numbers = {name: 0 for name, about in RunState.__dataclass_fields__.items() if about.type is int}
    blank: dict[str, Any] = {**dict.fromkeys(RunState.__dataclass_fields__), **numbers}
    known = {"status": status, "reason": reason, "ended_at": ended_at, "planner": "orders.fulfil", "generation": 1}
    blank |= {**known, "deadline_at": NOW + 60_000, "counts": counts, "total": sum(counts.values())}
    return RunState(**blank)


UNSAID = state()


@dataclass
class Followed(Follower):
    """What a follower knows. state: by default that of a running run with these steps."""

    row: LedgerRun = field(init=False)
    state: RunState | None = None
    steps: dict[str, StepState] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def __init__(
        self,
        *steps: StepState,
        state: RunState | None = UNSAID,
        errors: dict[str, str] | None = None,
        age_ms: int = 5_000,
    ) -> None:
        counts = Counter(one.status for one in steps)
        running = replace(UNSAID, counts=dict(counts), total=len(steps))
        self.row = row(NOW - age_ms)
        self.state = running if state is UNSAID else state
        self.steps = {one.id: one for one in steps}
        self.errors = errors or {}

    @property
    def now_ms(self) -> int:
        return NOW


def row(accepted_at: int) -> LedgerRun:
    """The ledger's row of an open run."""
    texts = dict.fromkeys(("submission_hash", "submission_text", "policy_text", "policy_hash", "context_hash"), "")
    return LedgerRun(
        **texts,
        run_id=RUN_ID,
        session="-",
        session_id="s",
        request_id="r",
        principal="celery",
        deadline_ms=60_000,
        planner="orders.fulfil",
        namespace="mandor",
        callback=None,
        accepted_at=accepted_at,
        generation=1,
        status=RunStatus.ACCEPTED,
        reason=None,
        version=0,
        ended_at=None,
        plan_hash=None,
    )


def moved(*moves: str) -> tuple[tuple[str, str, int, int], ...]:
    """Moves of an event, each as `step=status`, all in the first attempt."""
    return tuple((step_id, status, 1, 1) for step_id, status in (move.split("=") for move in moves))
