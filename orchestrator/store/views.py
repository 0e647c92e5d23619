"""Reads: the state of a run as frozen values. Never part of a decision."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from orchestrator.store.keys import Keys, member, of_member
from orchestrator.store.replies import DUTIES, Duty
from orchestrator.store.scripts import Scripts, pairs
from schemas.ids import RunRef

FIELDS: Final = 1000  # of a hash, asked for at once
UNDO = ".undo"  # behind a step's id, where errors are kept


@dataclass(frozen=True, slots=True)
class Planning:
    """How far the making of the plan is. holder: fence of the open claim, 0 = none."""

    queue: str
    holder: int
    worker: str
    lease_end: int
    dispatched_at: int
    not_before: int
    attempt: int
    tries: int
    limit_ms: int
    dead: bool


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
    on_failure: str
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
    max_parallel: int
    paused_at: int
    paused_by: str
    stop_grace_ms: int
    wait_ms: int
    on_doubt: str
    plan: "Planning"
    counts: dict[str, int]
    error_text: str | None


@dataclass(frozen=True, slots=True)
class UndoState:
    """Where the undoing of a step stands: waiting (begun again, for its turn), ready, dispatched, running, backoff or
    over. holder: as for a step.
    """

    state: str
    attempt: int
    fence: int
    holder: int
    worker: str | None
    lease_end: int
    started_at: int
    ended_at: int
    dead: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """That the store has given a step up: in which generation, in the words of its letter, and of which cause."""

    generation: int
    why: str
    cause: str


@dataclass(frozen=True, slots=True)
class StepState:
    """A step's record. holder: fence of the open claim, 0 = none. undo: None as long as its turn has not come.

    given_up: about which a letter is owed: with the loss of its last worker, or for want of an answer.
    """

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
    group: int
    refs: tuple[str, ...]
    needs: tuple[str, ...]
    dispatched_at: int
    started_at: int
    ended_at: int
    not_before: int
    touched: bool
    dead: bool
    waiting_since: int = 0
    wait_until: int = 0
    limit_ms: int = 0
    lease_ms: int = 0
    backoff_ms: int = 0
    backoff_max_ms: int = 0
    probe: bool = False
    undo: UndoState | None = None
    given_up: tuple[GivenUp, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One transition. steps: (id, status, attempt, fence) of each step it moved."""

    id: str
    version: int
    at: int
    event: str
    steps: tuple[tuple[str, str, int, int], ...]
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Members of a duty; overdue: those whose time has come; first: when the first one's comes, None: there is none."""

    members: int
    overdue: int
    first: int | None


class Views:
    """What an operator or a client may see of a run."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._keys: Keys = scripts.keys

    def run(self, ref: RunRef) -> RunState | None:
        fields = pairs(self._ask("HGETALL", self._keys.state(ref)))
        return run_state(fields) if fields else None

    def steps(self, ref: RunRef) -> list[StepState]:
        """All steps, in the plan's order."""
        records = pairs(self._ask("HGETALL", self._keys.part(ref, "steps")))
        texts = pairs(self._ask("HGETALL", self._keys.part(ref, "plan")))
        steps = [step_state(step_id, record, texts.get(step_id)) for step_id, record in records.items()]
        return sorted(steps, key=lambda step: step.index)

    def records(self, ref: RunRef, ids: Sequence[str] | None = None) -> list[StepState]:
        """All steps, or these, in the plan's order, without their needs: what changes, and not what the plan says."""
        found = self._fields(self._keys.part(ref, "steps"), ids)
        return sorted((step_state(*pair, None) for pair in found.items()), key=lambda step: step.index)

    def step(self, ref: RunRef, step_id: str) -> StepState | None:
        record = self._ask("HGET", self._keys.part(ref, "steps"), step_id)
        return step_state(step_id, record, self.step_text(ref, step_id)) if record else None

    def due(self, ref: RunRef, step_id: str | None = None) -> dict[Duty, int]:
        """When the run (or a step of it) is looked at next, by the duty that does it."""
        shard, name = self._keys.shard_of(ref.run_id), member(ref, step_id)
        scores = ((duty, self._ask("ZSCORE", self._keys.due(shard, duty), name)) for duty in DUTIES)
        return {duty: int(float(score)) for duty, score in scores if score is not None}

    def last_passes(self) -> dict[Duty, int]:
        """When a pass over each duty last began, in the shard that waits longest; 0: in one of them never."""
        keys = (self._keys.shard_part(shard, "pass") for shard in range(self._keys.shards))
        shards = self._scripts.ask_all([("HMGET", key, *DUTIES) for key in keys])
        return {duty: min(int(began[at] or 0) for began in shards) for at, duty in enumerate(DUTIES)}

    def backlogs(self, now: int) -> dict[Duty, list[Backlog]]:
        """What each duty has before it, shard by shard."""
        shards = range(self._keys.shards)
        keys = [self._keys.due(shard, duty) for duty in DUTIES for shard in shards]
        asked = [
            words
            for key in keys
            for words in (("ZCARD", key), ("ZCOUNT", key, "-inf", now), ("ZRANGE", key, 0, 0, "WITHSCORES"))
        ]
        answers = self._scripts.ask_all(asked)
        found = [_backlog(*three) for three in zip(answers[::3], answers[1::3], answers[2::3], strict=True)]
        return {duty: found[at * len(shards) : (at + 1) * len(shards)] for at, duty in enumerate(DUTIES)}

    def first_due(self, duty: Duty, count: int) -> list[RunRef]:
        """The runs that come first, so many of each shard, under a duty that is about runs."""
        keys = (self._keys.due(shard, duty) for shard in range(self._keys.shards))
        found = self._scripts.ask_all([("ZRANGE", key, 0, count - 1) for key in keys])
        return [of_member(name)[0] for names in found for name in names]

    def needs(self, ref: RunRef, step_id: str) -> tuple[str, ...]:
        """The steps that this one waits for, as its plan says; () for an unknown step."""
        return _needs(self.step_text(ref, step_id))

    def result(self, ref: RunRef, step_id: str) -> str | None:
        """JSON text of a completed step's result."""
        text: str | None = self._ask("HGET", self._keys.part(ref, "results"), step_id)
        return text

    def results(self, ref: RunRef) -> dict[str, str]:
        return pairs(self._ask("HGETALL", self._keys.part(ref, "results")))

    def undo_error(self, ref: RunRef, step_id: str) -> str | None:
        """JSON text of the last error of the step's undoing."""
        text: str | None = self._ask("HGET", self._keys.part(ref, "errors"), f"{step_id}{UNDO}")
        return text

    def errors(self, ref: RunRef, ids: Sequence[str] | None = None) -> dict[str, str]:
        """JSON text of the last error of each step, or each of these, that has one; of its undoing under the step's id
        and UNDO.
        """
        return self._fields(self._keys.part(ref, "errors"), ids)

    def events(self, ref: RunRef, after: str | None = None, count: int | None = None) -> list[Event]:
        """Transitions in their order, behind the one with id `after`."""
        start = f"({after}" if after else "-"
        limit = ("COUNT", count) if count else ()
        entries = self._ask("XRANGE", self._keys.part(ref, "events"), start, "+", *limit)
        return [event_of(entry_id, dict(zip(flat[::2], flat[1::2], strict=True))) for entry_id, flat in entries]

    def step_text(self, ref: RunRef, step_id: str) -> str | None:
        """Canonical JSON of the whole step, as it was admitted."""
        text: str | None = self._ask("HGET", self._keys.part(ref, "plan"), step_id)
        return text

    def _fields(self, key: str, names: Sequence[str] | None) -> dict[str, str]:
        """A hash, or these fields of it as far as they are there."""
        if names is None:
            return pairs(self._ask("HGETALL", key))
        found: dict[str, str | None] = {}
        for page in _pages(names):
            found |= zip(page, self._ask("HMGET", key, *page), strict=True)
        return {name: value for name, value in found.items() if value is not None}

    def _ask(self, *words: Any) -> Any:
        return self._scripts.ask(*words)


def _backlog(members: Any, overdue: Any, first: Any) -> Backlog:
    flat = list(chain.from_iterable(first)) if first and isinstance(first[0], list) else first
    return Backlog(int(members), int(overdue), int(float(flat[1])) if flat else None)


def _pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + FIELDS] for start in range(0, len(names), FIELDS))


def run_state(fields: dict[str, str]) -> RunState:
    """A run from the fields of its hash."""
    numbers = (
        *("version", "generation", "fence", "created_at", "deadline_at", "ended_at", "total", "active"),
        *("max_parallel", "paused_at", "stop_grace_ms", "wait_ms"),
    )
    texts = ("status", "reason", "request_id", "planner", "context_hash", "policy_hash", "paused_by")
    chosen = ("on_doubt", "on_failure")
    return RunState(
        **{name: int(fields.get(name, 0)) for name in numbers},  # type: ignore[arg-type]
        **{name: fields.get(name, "") for name in (*texts, *chosen)},  # type: ignore[arg-type]
        policy_text=fields.get("policy", ""),
        session_id=fields.get("session_id") or None,
        plan_id=fields.get("plan_id"),
        plan_hash=fields.get("plan_hash"),
        error_text=fields.get("error") or None,
        plan=_planning(fields),
        counts={name[2:]: int(value) for name, value in fields.items() if name.startswith("n_") and value != "0"},
    )


def _planning(fields: dict[str, str]) -> Planning:
    numbers = ("holder", "lease_end", "dispatched_at", "not_before", "attempt", "tries", "limit_ms")
    return Planning(
        queue=fields.get("plan_queue", ""),
        worker=fields.get("plan_worker", ""),
        dead=fields.get("plan_dead") == "1",
        **{name: int(fields.get(f"plan_{name}", 0)) for name in numbers},
    )


def _needs(text: str | None) -> tuple[str, ...]:
    return tuple(json.loads(text).get("needs") or ()) if text else ()


def step_state(step_id: str, record_text: str, step_text: str | None) -> StepState:
    """A step from its record and, as far as that is known, its place in the plan."""
    record = json.loads(record_text)
    numbers = (
        *("lease_end", "dispatched_at", "started_at", "ended_at", "not_before"),
        *("waiting_since", "wait_until", "limit_ms", "lease_ms", "backoff_ms", "backoff_max_ms"),
    )
    same = (
        *("index", "action", "effect", "queue", "status", "attempt", "max_attempts"),
        *("fence", "holder", "token", "group"),
    )
    return StepState(
        id=step_id,
        **{name: record[name] for name in same},
        **{name: int(record.get(name) or 0) for name in numbers},  # type: ignore[arg-type]
        worker=record.get("worker"),
        refs=tuple(name for name in record["refs"].split(",") if name),
        needs=_needs(step_text),
        touched=bool(record.get("touched")),
        dead=bool(record.get("dead")),
        probe=bool(record.get("probe")),
        undo=_undo_state(record["undo"]) if record.get("undo") else None,
        given_up=tuple(GivenUp(**told) for told in record.get("given_up") or ()),
    )


def _undo_state(undo: dict[str, Any]) -> UndoState:
    numbers = ("attempt", "fence", "holder", "lease_end", "started_at", "ended_at")
    return UndoState(
        state=undo["state"],
        **{name: int(undo.get(name) or 0) for name in numbers},
        worker=undo.get("worker"),
        dead=bool(undo.get("dead")),
    )


def event_of(entry_id: str, fields: dict[str, str]) -> Event:
    """A transition from its entry in the stream."""
    moves = (move.replace("=", "/").split("/") for move in fields.pop("steps").split(",") if move)
    return Event(
        id=entry_id,
        event=fields.pop("event"),
        version=int(fields.pop("version")),
        at=int(fields.pop("at")),
        steps=tuple((step_id, status, int(attempt), int(fence)) for step_id, status, attempt, fence in moves),
        fields=fields,
    )
