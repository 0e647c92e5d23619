"""What makes two dead letters the same trouble: where it happened and what was said, without what differs each time."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from schemas.callback import host_of
from schemas.canonical import sha256_hex
from schemas.dead_letter import DeadLetterKind

LENGTH: Final = 12
SHOWN: Final = 300  # characters of a message that count
_QUOTED = re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\"")
_NAMED = re.compile(r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b|\d+")


def fingerprint(kind: str, reason: str, content: Mapping[str, Any]) -> str:
    """The same for letters of one kind about one action, planner or host of callbacks that say the same."""
    if kind == DeadLetterKind.DELIVERY:
        return _hashed(kind, host_of(str(content.get("url"))), str(content.get("status_code") or content.get("error")))
    where = content.get("action") or content.get("planner") or content.get("queue")
    return _hashed(kind, where if isinstance(where, str) else "", *(_refused(content) or [_said(reason, content)]))


def _hashed(*words: str) -> str:
    return sha256_hex("\n".join(words).encode("utf-8", "surrogatepass"))[:LENGTH]


def common(text: str) -> str:
    """A message without what is quoted in it, and without its numbers and ids."""
    return _NAMED.sub("#", _QUOTED.sub("'…'", text[:SHOWN]))


def _refused(content: Mapping[str, Any]) -> list[str]:
    """Of a planner's answers that were refused: the kinds of faults of the last one, and where in a plan they are."""
    answers = content.get("attempts")
    last = answers[-1] if isinstance(answers, list) and answers else None
    faults = last.get("errors") if isinstance(last, dict) else None
    return sorted(set(_places(faults))) if isinstance(faults, list) else []


def _places(faults: list[Any]) -> Iterator[str]:
    for fault in faults:
        if isinstance(fault, dict):
            yield f"{fault.get('kind')} {common(str(fault.get('path') or ''))}"


def _said(reason: str, content: Mapping[str, Any]) -> str:
    """The error that a letter about an undo carries names no step, its reason does."""
    error = content.get("error")
    if isinstance(error, dict) and error.get("message"):
        return common(f"{error.get('kind')} {error['message']}")
    return common(reason)
