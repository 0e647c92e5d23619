"""What is wrong with a document, in the coordinates of its sender."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SHOWN_KEY = 80
SHOWN_PATH = 400


class Issue(NamedTuple):
    """One thing wrong: `path` is dotted (`steps.1.params.x`) and empty for the document as a whole."""

    path: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Located(ValueError):
    """A refusal that knows its place. path: dotted, below whatever is being validated; empty for all of it."""

    def __init__(self, kind: str, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.kind = kind
        self.message = message
        self.path = path


def dotted(parts: Sequence[str | int]) -> str:
    """Keys and indexes as one path. Always encodable, never longer than a log line bears."""
    path = ".".join(_shown(part) for part in parts)
    return path if len(path) <= SHOWN_PATH else path[:SHOWN_PATH] + "…"


def _shown(part: str | int) -> str:
    text = str(part)
    if len(text) > SHOWN_KEY:
        text = text[:SHOWN_KEY] + "…"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def issues_of(refusal: ValidationError) -> list[Issue]:
    """Pydantic's refusal, without its internals and without the values it quotes."""
    return [_issue(error) for error in refusal.errors(include_url=False, include_input=False)]


def _issue(error: "ErrorDetails") -> Issue:
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, Located):
        return Issue(joined(dotted(error["loc"]), cause.path), cause.kind, cause.message)
    return Issue(dotted(error["loc"]), error["type"], error["msg"].removeprefix("Value error, "))


def joined(above: str, below: str) -> str:
    """One path of two, either of which may be empty."""
    return f"{above}.{below}" if above and below else above or below
