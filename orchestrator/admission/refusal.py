"""What the door says when it refuses: closed words, plan coordinates, and other people's text made harmless."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from orchestrator.errors import MandorError
from orchestrator.telemetry.text import printable
from schemas.issues import Issue

MAX_ISSUES: Final = 20
SHOWN_MESSAGE: Final = 300
SHOWN_VALUE: Final = 60


class Kind(StrEnum):
    """Why something was refused. The set is closed: programs branch on it, metrics use it as a label."""

    SIZE = "size"
    ENCODING = "encoding"
    UNFINISHED = "unfinished"
    EXTRACTION = "extraction"
    JSON = "json"
    DEPTH = "depth"
    DUPLICATE_KEY = "duplicate_key"
    NUMBER = "number"
    SURROGATE = "surrogate"
    MISSING = "missing"
    EXTRA = "extra"
    TYPE = "type"
    VALUE = "value"
    MODEL = "model"
    UNKNOWN_ACTION = "unknown_action"
    TOO_MANY_STEPS = "too_many_steps"
    DUPLICATE_ID = "duplicate_id"
    UNKNOWN_STEP = "unknown_step"
    NEEDS_ITSELF = "needs_itself"
    NEEDS_LATER = "needs_later"
    REPEATED_NEED = "repeated_need"
    REFERENCE = "reference"
    CONFLICT = "conflict"
    NAME = "name"
    CONTEXT = "context"
    POLICY = "policy"


class PayloadDrift(MandorError):
    """A planner's answer that the contract does not allow. `issues` holds 1 to 20 of its faults.

    `path` and `message` are those of the first issue; an empty path means the document as a whole.
    """

    kind = "payload_drift"

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = tuple(_harmless(issue) for _, issue in zip(range(MAX_ISSUES), issues, strict=False))
        first = self.issues[0]
        more = f" (and {len(self.issues) - 1} more)" if len(self.issues) > 1 else ""
        super().__init__(first.message + more, path=first.path or None)

    def errors(self) -> list[dict[str, str | None]]:
        """The issues as JSON objects; a path of None stands for the document as a whole."""
        return [
            {"path": issue.path or None, "kind": str(issue.kind), "message": issue.message} for issue in self.issues
        ]


def drift(kind: Kind, message: str, path: str = "") -> PayloadDrift:
    """A refusal for one reason."""
    return PayloadDrift([Issue(path, kind, message)])


def excerpt(value: Any) -> str:
    """A short quotation of an attacker's value: one line, nothing in it that acts on a terminal or a prompt."""
    text = value if isinstance(value, str) else _name_of(value)
    quoted = printable(text[:SHOWN_VALUE])
    return f'"{quoted}"…' if len(text) > SHOWN_VALUE else f'"{quoted}"'


def _name_of(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return str(value)[: SHOWN_VALUE + 1] if not isinstance(value, int) or value.bit_length() < 256 else "a huge number"


def _harmless(issue: Issue) -> Issue:
    message = printable(issue.message[:SHOWN_MESSAGE])
    cut = "…" if len(issue.message) > SHOWN_MESSAGE else ""
    return Issue(printable(issue.path), str(issue.kind), message + cut)
