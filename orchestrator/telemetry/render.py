"""The two shapes of a line."""

import json
from collections.abc import Mapping
from typing import Any, Final

from orchestrator.telemetry.text import printable

FIRST: Final = ("timestamp", "level", "event", "logger")
# what a person at a terminal does not need on every line; JSON has it all
_LEFT_OUT: Final = frozenset(
    {
        *FIRST,
        "request_id",
        "session_id",
        "job_id",
        "lock_key",
        "idempotency_key",
        "policy_hash",
        "state_version",
        "worker_id",
        "service",
        "host",
        "pid",
        "exception",
    }
)
# nothing in a line leads back to itself: it is a copy, folded below a depth
_encode: Final = json.JSONEncoder(default=str, separators=(",", ":"), check_circular=False).encode
_COLOURS: Final = {"debug": "2", "warning": "33", "error": "31", "critical": "1;31"}


def json_line(line: Mapping[str, Any]) -> str:
    """One JSON object; everything outside printable ASCII is escaped, so no value can forge a line."""
    return _encode(line)


def human(line: Mapping[str, Any], *, colour: bool) -> str:
    """`12:30:01.250 warning step.retry  run_id=… kind=timeout`, and below it the traceback if there is one."""
    moment = str(line.get("timestamp", ""))[11:23]
    level = str(line.get("level", ""))
    head = " ".join(part for part in (moment, f"{level:<8}" if level else "", printable(str(line["event"]))) if part)
    fields = [f"{name}={_shown(value)}" for name, value in line.items() if name not in _LEFT_OUT and value is not None]
    text = "  ".join([_coloured(head, level) if colour else head, " ".join(fields)]).rstrip()
    return "\n    ".join([text, *_traceback(line)])


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    safe = printable(text)
    return json.dumps(safe, ensure_ascii=False) if isinstance(value, str) and (" " in text or not text) else safe


def _coloured(text: str, level: str) -> str:
    code = _COLOURS.get(level)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def _traceback(line: Mapping[str, Any]) -> list[str]:
    return [printable(part) for part in str(line.get("exception") or "").splitlines()]
