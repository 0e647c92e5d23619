"""Reads: the state of a run as frozen values. Never part of a decision."""

import json
from dataclasses import dataclass, field
from typing import Any

from orchestrator.store.keys import Keys
from orchestrator.store.scripts import Scripts
from schemas.ids import RunRef


@dataclass(frozen=True, slots=True)
class RunState:
    """The run's hash. Times: milliseconds since the epoch, 0 = not yet. counts: step status -> number."""

    status: str
    reason: str
    version: int
    generation: int
    fence: int
    session_id: str | None
    request_id: str
    planner: str
    plan_id: str | None
    plan_hash: str | None
    context_hash: str
    policy_hash: str
    policy_text: str
    created_at: int
    deadline_at: int
    ended_at: int
    total: int
    active: int
    counts: dict[str, int]
    error_text: str | None


@dataclass(frozen=True, slots=True)
class StepState:
    """A step's record. holder: fence of the open claim, 0 = none."""

    id: str
    index: int
    action: str
    effect: str
    queue: str
    status: str
    attempt: int
    max_attempts: int
    fence: int
    holder: int
    worker: str | None
    lease_end: int
    token: str
    needs: tuple[str, ...]
    dispatched_at: int
    started_at: int
    ended_at: int
    not_before: int
    touched: bool
    dead: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One transition. steps: (id, status, attempt, fence) of each step it moved."""

    id: str
    version: int
    at: int
    event: str
    steps: tuple[tuple[str, str, int, int], ...]
    fields: dict[str, str] = field(default_factory=dict)


class Views:
    """What an operator or a client may see of a run."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._keys: Keys = scripts.keys

    def run(self, ref: RunRef) -> RunState | None:
        fields = _pairs(self._ask("HGETALL", self._keys.state(ref)))
        return _run_state(fields) if fields else None

    def steps(self, ref: RunRef) -> list[StepState]:
        """All steps, in the plan's order."""
        records = _pairs(self._ask("HGETALL", self._keys.part(ref, "steps")))
        texts = _pairs(self._ask("HGETALL", self._keys.part(ref, "plan")))
        steps = [_step_state(step_id, record, texts.get(step_id)) for step_id, record in records.items()]
        return sorted(steps, key=lambda step: step.index)

    def step(self, ref: RunRef, step_id: str) -> StepState | None:
        record = self._ask("HGET", self._keys.part(ref, "steps"), step_id)
        return _step_state(step_id, record, self._step_text(ref, step_id)) if record else None

    def needs(self, ref: RunRef, step_id: str) -> tuple[str, ...]:
        """The steps that this one waits for, as its plan says; () for an unknown step."""
        return _needs(self._step_text(ref, step_id))

    def result(self, ref: RunRef, step_id: str) -> str | None:
        """JSON text of a completed step's result."""
        text: str | None = self._ask("HGET", self._keys.part(ref, "results"), step_id)
        return text

    def results(self, ref: RunRef) -> dict[str, str]:
        return _pairs(self._ask("HGETALL", self._keys.part(ref, "results")))

    def errors(self, ref: RunRef) -> dict[str, str]:
        """JSON text of the last error of each step that has one."""
        return _pairs(self._ask("HGETALL", self._keys.part(ref, "errors")))

    def events(self, ref: RunRef, after: str | None = None, count: int | None = None) -> list[Event]:
        """Transitions in their order, behind the one with id `after`."""
        start = f"({after}" if after else "-"
        limit = ("COUNT", count) if count else ()
        entries = self._ask("XRANGE", self._keys.part(ref, "events"), start, "+", *limit)
        return [_event(entry_id, dict(zip(flat[::2], flat[1::2], strict=True))) for entry_id, flat in entries]

    def _step_text(self, ref: RunRef, step_id: str) -> str | None:
        text: str | None = self._ask("HGET", self._keys.part(ref, "plan"), step_id)
        return text

    def _ask(self, *words: Any) -> Any:
        return self._scripts.ask(*words)


def _pairs(reply: Any) -> dict[str, str]:
    """A hash's fields, whichever protocol version the reply came in."""
    return dict(reply) if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _run_state(fields: dict[str, str]) -> RunState:
    numbers = ("version", "generation", "fence", "created_at", "deadline_at", "ended_at", "total", "active")
    texts = ("status", "reason", "request_id", "planner", "context_hash", "policy_hash")
    return RunState(
        **{name: int(fields.get(name, 0)) for name in numbers},  # type: ignore[arg-type]
        **{name: fields.get(name, "") for name in texts},  # type: ignore[arg-type]
        policy_text=fields.get("policy", ""),
        session_id=fields.get("session_id") or None,
        plan_id=fields.get("plan_id"),
        plan_hash=fields.get("plan_hash"),
        error_text=fields.get("error"),
        counts={name[2:]: int(value) for name, value in fields.items() if name.startswith("n_") and value != "0"},
    )


def _needs(text: str | None) -> tuple[str, ...]:
    return tuple(json.loads(text).get("needs") or ()) if text else ()


def _step_state(step_id: str, record_text: str, step_text: str | None) -> StepState:
    record = json.loads(record_text)
    numbers = ("lease_end", "dispatched_at", "started_at", "ended_at", "not_before")
    same = ("index", "action", "effect", "queue", "status", "attempt", "max_attempts", "fence", "holder", "token")
    return StepState(
        id=step_id,
        **{name: record[name] for name in same},
        **{name: int(record.get(name) or 0) for name in numbers},  # type: ignore[arg-type]
        worker=record.get("worker"),
        needs=_needs(step_text),
        touched=bool(record.get("touched")),
        dead=bool(record.get("dead")),
    )


def _event(entry_id: str, fields: dict[str, str]) -> Event:
    moves = (move.replace("=", "/").split("/") for move in fields.pop("steps").split(",") if move)
    return Event(
        id=entry_id,
        event=fields.pop("event"),
        version=int(fields.pop("version")),
        at=int(fields.pop("at")),
        steps=tuple((step_id, status, int(attempt), int(fence)) for step_id, status, attempt, fence in moves),
        fields=fields,
    )
