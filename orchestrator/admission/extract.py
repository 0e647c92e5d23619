"""From a planner's text to the one JSON object in it, mechanically, in one pass over the text.

    whole text is JSON       that value is judged; a value that is no object is refused
    otherwise                a byte order mark and closed thinking blocks at the front are dropped; then the first
                             `{` that a quote or `}` follows opens the object, and prose and fences around it are
                             passed over
    refused                  an object inside a list, another object, a string or behind a comma; a second such `{`
                             after it; a thinking block that never closes; no object at all

Nothing is repaired, unwrapped or chosen. Whoever sends two plans has sent none.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from orchestrator.admission.refusal import Kind, drift

# straight, curly, angled and full-width ones, acute accent and backtick: whatever models put around keys
_QUOTES: Final = "\"'`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a\uff02\uff07"
_OPENS_OBJECT = re.compile(r"\{\s*[" + re.escape(_QUOTES) + r"}]")
_OPENING: Final = {"]": "[", "}": "{"}
_STRING_QUOTES: Final = _QUOTES.replace("`", "")  # a backtick before an object is Markdown
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)

_THOUGHT = r"think(?:ing)?|thoughts?|reasoning|reflection|scratchpad"
_THINKING = re.compile(rf"<(?P<slash>/?)(?P<angle>{_THOUGHT})\b[^<>]*>|\[(?P<bar>/?)(?P<square>THINK)\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """The text of one JSON object, and what a lax reader makes of it. extracted: something had to be passed over."""

    text: str
    extracted: bool
    value: Any


def extract(text: str) -> Found:
    """The one object in the text, or PayloadDrift. The result is grammatical JSON that pydantic's reader takes."""
    whole = _value_or_none(text)
    if whole is None:
        one = _one_object(text)
        return Found(one, extracted=True, value=_grammatical(one))
    if not isinstance(whole[0], dict):
        raise drift(Kind.EXTRACTION, f"the answer is {_json_name(whole[0])}; a plan is one JSON object")
    return Found(text, extracted=False, value=whole[0])


def _value_or_none(text: str) -> tuple[object] | None:
    try:
        return (from_json(text, allow_inf_nan=False),)
    except ValueError:
        return None


def _one_object(text: str) -> str:
    front = _after_thinking(text)
    opening = _OPENS_OBJECT.search(text, front)
    if opening is None:
        raise drift(Kind.EXTRACTION, "the answer holds no JSON object")
    start = opening.start()
    _refuse_inner(text, front, start)
    end = _object_end(text, start)
    _refuse_enclosed(text, front, start, end)
    if _OPENS_OBJECT.search(text, end):
        raise drift(Kind.EXTRACTION, "the answer holds more than one JSON object; only one plan may be sent")
    return text[start:end]


def _after_thinking(text: str) -> int:
    """Where the answer begins: behind one byte order mark and the thinking blocks at the front."""
    front = 1 if text.startswith("\ufeff") else 0
    for start, end in _thoughts(text, front, len(text)):
        if text[front:start].strip():
            break
        if end is None:
            raise drift(Kind.EXTRACTION, "a thinking block never closes, so nothing in it is the answer")
        front = end
    return front


def _thoughts(text: str, begin: int, limit: int) -> Iterator[tuple[int, int | None]]:
    """Begin and end of each thinking block; None for the end of one that is not closed before the limit."""
    opened, name = 0, ""
    for tag in _THINKING.finditer(text, begin, limit):
        if not name and not _closes(tag):
            opened, name = tag.start(), _tag_name(tag)
        elif _closes(tag) and _tag_name(tag) == name:
            yield opened, tag.end()
            name = ""
    if name:
        yield opened, None


def _closes(tag: re.Match[str]) -> bool:
    return bool(tag["slash"] or tag["bar"])


def _tag_name(tag: re.Match[str]) -> str:
    return (tag["angle"] or f"[{tag['square']}]").lower()


def _refuse_inner(text: str, front: int, start: int) -> None:
    """Refuse an object that is only a part of something: of a list, a string, a thought."""
    if any(end is None for _, end in _thoughts(text, front, start)):
        raise drift(Kind.EXTRACTION, "the object stands in a thinking block that is not closed before it")
    before = text[front:start].rstrip()[-1:]
    if before in {"[", ","}:
        _name_fault_of_whole(text[front:].strip())
        raise drift(Kind.EXTRACTION, "the object stands inside a list or behind a comma; a plan stands alone")
    if before and before in _STRING_QUOTES and _in_string(text, front, start, before):
        raise drift(Kind.EXTRACTION, "the object stands inside a string; send the plan itself, not quoted")


def _refuse_enclosed(text: str, front: int, start: int, end: int) -> None:
    """Refuse an object inside what would be a list or an object, were it JSON: with a comment in it, or a bare key.

    Its bracket begins a line, or a value in a line of code, stays open, and closes right behind the object; brackets
    within prose do not.
    """
    closing = text[end:].lstrip()[:1]
    if closing not in _OPENING:
        return
    at = text.rfind(_OPENING[closing], front, start)
    line = max(front, text.rfind("\n", front, max(at, front)) + 1)
    if at >= 0 and _begins_value(text[line:at].strip()) and closing not in text[at:start]:
        raise drift(Kind.EXTRACTION, "the object stands inside a list or another object; a plan stands alone")


def _begins_value(before: str) -> bool:
    """Whether a bracket behind this on its line is a value: nothing, an assignment, a call, a bracket, a return."""
    return before in ("", "return", "yield") or before[-1] in "=([{,"


def _name_fault_of_whole(answer: str) -> None:
    """An answer that is one broken object, say with an unquoted key, is told where it breaks, not what lies inside."""
    if answer.startswith("{") and answer.endswith("}"):
        _grammatical(answer)


def _in_string(text: str, front: int, start: int, quote: str) -> bool:
    """A quote right before the object opens a string; one with a gap may close an earlier one."""
    return text[start - 1] == quote or (quote == '"' and text.count('"', front, start) % 2 == 1)


def _object_end(text: str, start: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(text, start):
        bracket = text[token.start()]
        if bracket in "{[":
            depth += 1
        elif bracket in "}]":
            depth -= 1
            if depth == 0:
                return token.end()
    raise drift(Kind.JSON, f"the object that begins at {_position(text, start)} never ends; the answer was cut")


def _grammatical(text: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as wrong:
        if "recursion limit" in str(wrong):
            raise drift(Kind.DEPTH, "the answer is nested too deeply") from None
        raise drift(Kind.JSON, f"not JSON: {wrong}") from None


def _position(text: str, offset: int) -> str:
    line_start = text.rfind("\n", 0, offset) + 1
    return f"line {text.count(chr(10), 0, offset) + 1} column {offset - line_start + 1}"


def _json_name(value: object) -> str:
    names = {list: "a JSON list", str: "a JSON string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
