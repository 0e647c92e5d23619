"""What stands as `***` in a dead letter: where a secret was taken out, and where somebody had written just that.

A letter of before that was noted says nothing of it: then each of them may be a secret.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from orchestrator.telemetry.text import HIDDEN, WHOLE, is_secret_name, redacted
from schemas.canonical import NotCanonical, parse_json

NOTE: Final = "redacted"
MOST_BYTES: Final = 64 * 1024 * 1024
DEEPEST: Final = 100


class Starred(NamedTuple):
    """A text that shows stars. path: dotted; within an answer that is JSON, the place in there."""

    path: str
    text: str
    is_secret: bool


def told_apart(told: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """The note in a letter that shows stars. told: what it was to say; shown: what it says."""
    found = list(_starred(told, shown))
    if not found:
        return {}
    secrets = [one for one in found if one.is_secret]
    as_written = {one.text for one in found if not one.is_secret} - {one.text for one in secrets} if secrets else set()
    return {NOTE: {"at": [one.path for one in secrets], "as_written": sorted(as_written)}}


def of_secrets(sent: Any, content: Mapping[str, Any], about: str) -> list[str]:
    """Where in an edited text stars may stand in place of a secret. about: the path in the letter of what is edited."""
    note = content.get(NOTE)
    if note is None:
        note = {"at": [about] if HIDDEN in json.dumps(content) else [], "as_written": []}
    if not any(f"{path}.".startswith(f"{about}.") for path in note["at"]):
        return []
    found = (one for one in _starred(sent, sent) if one.is_secret or one.text not in note["as_written"])
    return sorted({one.path or "edited" for one in found})


def _starred(told: Any, shown: Any, path: tuple[str, ...] = (), *, within: bool = False) -> Iterator[Starred]:
    """within: inside a text already, where texts are not read as JSON once more."""
    if isinstance(shown, dict):
        given = {str(name): value for name, value in told.items()}
        for name, value in shown.items():
            yield from _starred(given[name], value, (*path, name), within=within)
    elif isinstance(shown, list):
        for index, (before, after) in enumerate(zip(told, shown, strict=True)):
            yield from _starred(before, after, (*path, str(index)), within=within)
    elif isinstance(shown, str) and HIDDEN in shown:
        yield from _of_text(told, shown, path, within=within)


def _of_text(told: Any, shown: str, path: tuple[str, ...], *, within: bool) -> Iterator[Starred]:
    changed = str(told) != shown
    if not within and (document := _document(told)) is not None:
        inside = list(_starred(document, redacted(document, DEEPEST, WHOLE), path, within=True))
        if not changed or any(one.is_secret for one in inside):
            yield from inside
            return
    named = bool(path) and shown == HIDDEN and is_secret_name(path[-1])  # somebody else took it out
    yield Starred(".".join(path), shown, changed or named)


def _document(told: Any) -> Any:
    """The JSON object or list that a text is; else None."""
    try:
        found = parse_json(told, max_bytes=MOST_BYTES, max_depth=DEEPEST) if isinstance(told, str) else None
    except NotCanonical:
        return None
    return found if isinstance(found, dict | list) else None
