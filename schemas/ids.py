"""Names of runs, steps, tasks and tokens. Every part is checked before parts are joined.

No part can hold the separator that follows it, so two different tuples of parts never make one name.
"""

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import Any, Final

from schemas.canonical import canonical_bytes, hash_of, sha256_hex

RUN_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
SESSION_KEY: Final = re.compile(r"[0-9a-f]{16}|-")
STEP_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
PLAN_ID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
ACTION_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}(?:\.[a-z0-9_]{1,64}){0,7}")
NO_SESSION: Final = "-"
_RUN_NAMESPACE: Final = "mandor.run.1"


class InvalidId(ValueError):
    """A part that must not become part of a name; `field` says which."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class RunRef:
    """Where a run's state lies. session: 16 hex characters of SHA-256(session_id), or "-" for none."""

    run_id: str
    session: str = NO_SESSION

    def __post_init__(self) -> None:
        _matching("run_id", self.run_id, RUN_ID)
        _matching("session", self.session, SESSION_KEY)


def session_key(session_id: str | None) -> str:
    """The session's part of a key: of fixed length and alphabet, whatever the session is called."""
    if session_id is None:
        return NO_SESSION
    return sha256_hex(_text("session_id", session_id))[:16]


def run_id_for(principal: str, session_id: str | None, request_id: str) -> str:
    """The UUIDv8 of a request: same principal, session and request, same run."""
    session = None if session_id is None else _text("session_id", session_id)
    name = [_RUN_NAMESPACE, _text("principal", principal), session, _text("request_id", request_id)]
    return _uuid8(hashlib.sha256(canonical_bytes(name)).digest())


def _uuid8(digest: bytes) -> str:
    """The first 128 bits with version 8 and the RFC 9562 variant written over theirs."""
    number = int.from_bytes(digest[:16], "big")
    number = number & ~(0xF << 76) | 8 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    return str(uuid.UUID(int=number))


def is_run_id(text: object) -> bool:
    """Whether the text is a run id in its only spelling: lower case, 36 characters, version 8."""
    return isinstance(text, str) and RUN_ID.fullmatch(text) is not None


def step_token(plan_id: str, index: int, action: str, params: dict[str, Any]) -> str:
    """Fingerprint of what a step does: defaults filled in, references unresolved. It is nobody's key."""
    digest = hash_of({"action": _matching("action", action, ACTION_NAME), "params": params}, exact_integers=True)
    return token_of(plan_id, index, digest)


def token_of(plan_id: str, index: int, digest: str) -> str:
    """The step token whose hash is known already."""
    return f"step:{_matching('plan_id', plan_id, PLAN_ID).lower()}:{_count('index', index, 0)}:{digest}"


def idempotency_key(run_id: str, step_id: str, attempt_group: int = 0) -> str:
    """What the other side and the effect rows know a step's effect by, the same over all its attempts."""
    return f"idem:{_run(run_id)}:{_step(step_id)}:{_count('attempt_group', attempt_group, 0)}"


def undo_key(run_id: str, step_id: str, attempt_group: int = 0) -> str:
    """The same for the undoing of the step's effect, which is an effect of its own."""
    return f"{idempotency_key(run_id, step_id, attempt_group)}:undo"


def plan_task_id(run_id: str) -> str:
    """Celery's id of the task that plans the run."""
    return f"{_run(run_id)}.plan"


def step_task_id(run_id: str, step_id: str) -> str:
    """Celery's id of the task that runs the step, however often it is sent."""
    return f"{_run(run_id)}.step.{_step(step_id)}"


def undo_task_id(run_id: str, step_id: str) -> str:
    """Celery's id of the task that undoes the step."""
    return f"{_run(run_id)}.undo.{_step(step_id)}"


def close_task_id(run_id: str, step_id: str) -> str:
    """Celery's id of the task that finds out what became of the step's lost attempt."""
    return f"{_run(run_id)}.close.{_step(step_id)}"


def settle_task_id(run_id: str) -> str:
    """Celery's id of the task that settles the run, which is the body of its chord."""
    return f"{_run(run_id)}.settle"


def group_id(run_id: str, generation: int) -> str:
    """Celery's id of the run's chord group; a retried run has a new one."""
    return f"{_run(run_id)}.g{_count('generation', generation, 1)}"


def _run(run_id: str) -> str:
    return _matching("run_id", run_id, RUN_ID)


def _step(step_id: str) -> str:
    return _matching("step_id", step_id, STEP_ID)


def _matching(field: str, value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise InvalidId(field, f"does not have the form {pattern.pattern}")
    return value


def _count(field: str, value: object, least: int) -> int:
    if type(value) is not int or value < least:
        raise InvalidId(field, f"is not an integer from {least}")
    return value


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidId(field, "is not a text of at least one character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidId(field, "holds half of a surrogate pair") from None
    return value
