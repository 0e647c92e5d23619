"""What an exception of an action means: the text that is stored, and what is asked of the store. Pure."""

import json
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import LedgerUnavailable, MandorError
from orchestrator.settings import Settings
from orchestrator.telemetry.text import printable, without_secrets
from schemas.policy import LONGEST_S
from workers.outcomes import AskedToWait, NoEffect, PermanentError, Snooze, TimeUp, WorkerStopping

MESSAGE_BYTES: Final = 1024
SNOOZES: Final = 1000
SOFT_STOPS: Final = 5
_LEDGER_WAITS: Final = 1000
_LEDGER_DELAY_S: Final = 5.0
_UNKNOWN_TIMES: Final = 3
WORKER_LOST: Final = "worker_lost"  # the store's own word
_UNKNOWN_DELAY_S: Final = 2.0


class UnknownAction(MandorError):
    """This worker has no such action; another one may have."""

    kind = "unknown_action"


class EffectOpen(PermanentError):
    """An earlier attempt of a `once` step may have had its effect. Nobody knows, so it is not tried again."""

    kind = "in_doubt"


@dataclass(frozen=True, slots=True)
class HandBack:
    """The attempt is not to count. It ends as too often after more than `times` in at least `age_s`."""

    reason: str
    delay_s: float
    times: int
    age_s: float = 0.0


def hand_back(error: BaseException, settings: Settings) -> HandBack | None:
    """How the attempt is given back uncounted; None: it failed."""
    match error:
        case Snooze():
            return HandBack("snooze", error.seconds, SNOOZES)
        case WorkerStopping():
            return HandBack("worker_stopping", 0.0, SOFT_STOPS)
        case UnknownAction():
            return HandBack("unknown_action", _UNKNOWN_DELAY_S, _UNKNOWN_TIMES, settings.dispatch_deadline_s)
        case LedgerUnavailable():
            return HandBack("ledger_away", _LEDGER_DELAY_S, _LEDGER_WAITS, settings.dispatch_deadline_s)
    return None


def is_retryable(error: BaseException) -> bool:
    """Whether policy may allow another attempt."""
    return not isinstance(error, PermanentError)


def delay_ms(error: BaseException) -> int:
    """How long the other side, or a task, asked to be left alone, in milliseconds; 0 where nothing was said."""
    return round(1000 * min(error.retry_after_s, LONGEST_S)) if isinstance(error, AskedToWait) else 0


def had_no_effect(error: BaseException) -> bool:
    """Whether the action vouches for it."""
    return isinstance(error, NoEffect)


def error_text(error: BaseException, index: int) -> str:
    """The error as JSON {"kind", "message", "path"}: one short line, no secrets, the path in plan coordinates."""
    path = getattr(error, "path", None) if isinstance(error, MandorError) else None
    fields = {"kind": kind_of(error), "message": message_of(error), "path": _in_plan(path, index)}
    return json.dumps(fields, ensure_ascii=False)


def kind_of(error: BaseException) -> str:
    """One stable word."""
    if isinstance(error, TimeUp):
        return "step_timeout"
    return error.kind if isinstance(error, MandorError) else "step_error"


def message_of(error: BaseException) -> str:
    """The message; of a stranger's exception with its type in front, cut to MESSAGE_BYTES."""
    if isinstance(error, MandorError):
        text = error.message + (f" ({error.hint})" if error.hint else "")
    else:
        text = f"{type(error).__name__}: {_said(error)}"
    return _cut(printable(without_secrets(text[: 4 * MESSAGE_BYTES])))


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (somebody's __str__ may raise; that is no reason to lose the failure)
        return "(its message could not be read)"


def _cut(text: str) -> str:
    raw = text.encode()
    return text if len(raw) <= MESSAGE_BYTES else raw[: MESSAGE_BYTES - 3].decode(errors="ignore") + "…"


def _in_plan(path: str | None, index: int) -> str | None:
    """`params.path` as `steps.3.params.path`; other paths as they are."""
    is_params = path is not None and path.split(".", 1)[0] == "params"
    return f"steps.{index}.{path}" if is_params else path
