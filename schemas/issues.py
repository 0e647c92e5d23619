"""What is wrong with a document, in the coordinates of its sender."""

from typing import NamedTuple

from pydantic import ValidationError

SHOWN_KEY = 80
SHOWN_PATH = 400


class Issue(NamedTuple):
    """One thing wrong: `path` is dotted (`steps.1.params.x`) and empty for the document as a whole."""

    path: str
    kind: str
    message: str


def dotted(parts: tuple[str | int, ...] | list[str | int]) -> str:
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
    found = refusal.errors(include_url=False, include_input=False, include_context=False)
    return [Issue(dotted(error["loc"]), error["type"], error["msg"].removeprefix("Value error, ")) for error in found]
