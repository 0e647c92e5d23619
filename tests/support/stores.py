"""Stores for tests: on a real server, with a clock that the test moves."""

from dataclasses import dataclass, field
from typing import Any

from orchestrator.store import Store
from orchestrator.store.connection import Links
from orchestrator.store.keys import Keys
from orchestrator.store.new import NewPlan, NewRun, NewStep
from orchestrator.store.replies import Created, Granted, PlanGranted, UndoGranted
from orchestrator.store.scripts import Scripts
from orchestrator.store.stream import BEGINNING
from schemas.canonical import canonical_text
from schemas.ids import RunRef, run_id_for, session_key
from schemas.states import Fact

EPOCH = "epoch-of-the-tests"
START = 1_700_000_000_000
LEASE = 15_000
CHECK = 10_000


@dataclass
class Clock:
    """The time that scripts see, in milliseconds; `store` follows it."""

    now: int = START
    constants: dict[str, Any] = field(default_factory=dict)

    def advance(self, ms: int) -> None:
        self.now += ms
        self.constants["now_ms"] = self.now


def clocked_store(url: str, namespace: str, shards: int = 1) -> tuple[Store, Clock]:
    """A store of its own namespace, set up, whose clock stands still until it is advanced. Jitter is 1: the longest."""
    clock = Clock()
    clock.constants = {"check_ms": CHECK, "ttl_ms": 86_400_000, "lease_ms": LEASE, "jitter": "1", "now_ms": clock.now}
    store = Store(Scripts(Links(url, 5.0), Keys(namespace, shards), EPOCH, clock.constants))
    for shard in range(shards):
        if not store.admin.is_whole(shard):
            store.restoring.set_up(shard, BEGINNING)
    return store, clock


def ref_of(name: str, session: str | None = None) -> RunRef:
    return RunRef(run_id_for("celery", session, name), session_key(session))


def name_in(store: Store, shard: int) -> str:
    """A request whose run lies in this shard."""
    return next(name for name in "rstuvwxyz" if store.keys.shard_of(ref_of(name).run_id) == shard)


def new_run(**changes: Any) -> NewRun:
    fields: dict[str, Any] = {
        "submission_hash": "a" * 64,
        "request_id": "request",
        "session_id": None,
        "principal": "celery",
        "policy_text": "{}",
        "policy_hash": "b" * 64,
        "context_hash": "c" * 64,
        "planner": "static",
        "on_failure": "compensate",
        "deadline_ms": 3_600_000,
        "queue": "mandor.plan",
        "limit_ms": 110_000,
        "stop_grace_ms": 10_000,
        "lease_ms": LEASE,
        "tries": 2,
        "backoff_ms": 1000,
        "backoff_max_ms": 60_000,
    }
    return NewRun(**{**fields, **changes})


def new_step(name: str, index: int, *needs: str, **changes: Any) -> NewStep:
    fields: dict[str, Any] = {
        "action": "demo",
        "effect": "pure",
        "text": canonical_text({"action": "demo", "id": name, "needs": list(needs), "params": {}}),
        "token": f"step:plan:{index}:{'d' * 64}",
        "refs": (),
        "queue": "mandor.steps",
        "max_attempts": 2,
        "lease_ms": LEASE,
        "limit_ms": 60_000,
        "backoff_ms": 1000,
        "backoff_max_ms": 60_000,
    }
    return NewStep(id=name, index=index, needs=needs, **{**fields, **changes})


@dataclass
class Scene:
    """One run on a real store, and short words for what is done to it."""

    store: Store
    clock: Clock
    ref: RunRef
    fences: dict[str, int] = field(default_factory=dict)
    generation: int = 1

    def accept(self, **changes: Any) -> "Scene":
        assert isinstance(self.store.runs.create_run(self.ref, new_run(**changes)), Created)
        return self

    def plan(self) -> PlanGranted:
        granted = self.store.runs.claim_plan(self.ref, 1, "planner", "host:1:1")
        assert isinstance(granted, PlanGranted)
        self.fences["plan"] = granted.fence
        return granted

    def admit(self, *steps: NewStep, max_parallel: int = 100, inputs_bytes: int = 1_048_576) -> "Scene":
        fence = self.plan().fence
        plan = NewPlan("plan", "e" * 64, max_parallel, inputs_bytes, steps)
        self.store.runs.admit_plan(self.ref, fence, "planner", plan)
        return self

    def claim(self, step_id: str, claim_id: str | None = None, worker: str = "host:2:2") -> Any:
        answer = self.store.guard.claim_step(
            self.ref, step_id, generation=self.generation, claim_id=claim_id or f"claim-{step_id}", worker=worker
        )
        if isinstance(answer, Granted):
            self.fences[step_id] = answer.fence
        return answer

    def complete(self, step_id: str, result: str = "{}") -> Any:
        return self.store.guard.complete_step(
            self.ref, step_id, self.fences.get(step_id, 0), f"claim-{step_id}", result
        )

    def claim_undo(self, step_id: str, claim_id: str | None = None, worker: str = "host:3:3") -> Any:
        answer = self.store.guard.claim_undo(
            self.ref, step_id, generation=self.generation, claim_id=claim_id or f"undo-{step_id}", worker=worker
        )
        if isinstance(answer, UndoGranted):
            self.fences[step_id] = answer.step.fence
        return answer

    def undo(self, step_id: str, *, well: bool = True) -> Any:
        """Undo a step whose turn it is, or fail to."""
        assert isinstance(self.claim_undo(step_id), UndoGranted)
        claim = (self.ref, step_id, self.fences[step_id], f"undo-{step_id}")
        if well:
            return self.store.guard.complete_undo(*claim)
        return self.store.guard.fail_undo(*claim, Fact.NONE, "{}", retryable=False)

    def status(self, step_id: str) -> str:
        step = self.store.views.step(self.ref, step_id)
        assert step is not None
        return step.status

    @property
    def run_status(self) -> str:
        run = self.store.views.run(self.ref)
        assert run is not None
        return run.status

    @property
    def version(self) -> int:
        run = self.store.views.run(self.ref)
        assert run is not None
        return run.version
