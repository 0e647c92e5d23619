"""What the door says when it refuses: closed words, plan coordinates, and other people's text made harmless."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from orchestrator.errors import MandorError
from orchestrator.telemetry.text import printable, without_secrets
from schemas.issues import Issue

MAX_ISSUES: Final = 20
SHOWN_MESSAGE: Final = 300
SHOWN_VALUE: Final = 60
_SHOWN_BITS: Final = 200


class Kind(StrEnum):
    """Why something was refused. The set is closed: programs branch on it, metrics use it as a label."""

    SIZE = "size"
    ENCODING = "encoding"
    CUT = "cut"
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
        others = len(self.issues) - 1
        more = f" (and {others} more {'faults' if others > 1 else 'fault'})" if others else ""
        super().__init__(first.message + more, path=first.path or None)

    def __reduce__(self) -> tuple[type["PayloadDrift"], tuple[tuple[Issue, ...]]]:
        """A failed task hands its error from process to process."""
        return type(self), (self.issues,)

    def errors(self) -> list[dict[str, str | None]]:
        """The issues as JSON objects; a path of None stands for the document as a whole."""
        return [
            {"path": issue.path or None, "kind": str(issue.kind), "message": issue.message} for issue in self.issues
        ]


def drift(kind: Kind, message: str, path: str = "") -> PayloadDrift:
    """A refusal for one reason."""
    return PayloadDrift([Issue(path, kind, message)])


def excerpt(value: Any) -> str:
    """A short look at an attacker's value, written as in JSON: on one line, with nothing that acts on a terminal."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        cut = "…" if len(value) > SHOWN_VALUE else ""
        return f'"{printable(value[:SHOWN_VALUE])}"{cut}'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if isinstance(value, float) or value.bit_length() < _SHOWN_BITS else "a huge number"


def _harmless(issue: Issue) -> Issue:
    message = without_secrets(issue.message[: 32 * SHOWN_MESSAGE])  # before the cut, which could halve one
    cut = "…" if len(message) > SHOWN_MESSAGE else ""
    return Issue(printable(issue.path), str(issue.kind), printable(message[:SHOWN_MESSAGE]) + cut)
