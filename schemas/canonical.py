"""JSON that means one thing: a strict reader, and the one spelling (RFC 8785) that is hashed and stored.

The reader takes text only: once another parser has been at it, repeated keys and exact digits are gone.
Read and written numbers stay within what every language's JSON agrees on, so that whoever recomputes a
hash gets ours. The free parts of a plan may hold longer integers (`exact_integers`); they are written digit
for digit.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

import rfc8785

from schemas.issues import Located, dotted

MAX_DEPTH: Final = 64
MAX_SAFE_INTEGER: Final = 2**53 - 1
MAX_DIGITS: Final = 4300
_FIRST_EXPONENT_FORM: Final = 1e21
_LONGEST: Final = 10**MAX_DIGITS - 1

_encode_plain: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_CLOSER = {"[": "]", "{": "}"}


class NotCanonical(Located):
    """A text or value that has no canonical JSON.

    kind: one of `too_large`, `utf8`, `syntax`, `too_deep`, `duplicate_key`, `not_finite`, `integer_range`,
    `surrogate`, `not_json`.
    """


class _Refused(NamedTuple):
    """Left by the parser's hooks where a value should be, for the walk that knows the path."""

    kind: str
    message: str
    key: str | None = None


def parse_json(text: str | bytes, *, max_bytes: int, max_depth: int = MAX_DEPTH, exact_integers: bool = False) -> Any:
    """The value of a JSON text, or NotCanonical. Time grows with the length of the text only."""
    readable = _decode(text, max_bytes)
    _check_depth(readable, max_depth)
    value = _loads(readable)
    check(value, max_depth=max_depth, exact_integers=exact_integers)
    return value


def canonical_bytes(value: Any, *, exact_integers: bool = False) -> bytes:
    """RFC 8785 bytes of a plain JSON value, or NotCanonical with the path of what has none."""
    check(value, exact_integers=exact_integers)
    parts: list[str] = []
    _write(value, parts.append)
    return "".join(parts).encode()


def canonical_text(value: Any, *, exact_integers: bool = False) -> str:
    """The canonical bytes as text."""
    return canonical_bytes(value, exact_integers=exact_integers).decode()


def plain_text(value: Any) -> str:
    """The canonical text of a value whose spelling is the standard library's: string keys within the basic plane, whole
    numbers, no halves of surrogate pairs. That it is such a value is the caller's word; see `canonical_text` else.
    """
    return _encode_plain(value)


def sha256_hex(data: bytes | str) -> str:
    """64 lower-case hex characters; text is hashed as UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def hash_of(value: Any, *, exact_integers: bool = False) -> str:
    """SHA-256 of the canonical bytes."""
    return sha256_hex(canonical_bytes(value, exact_integers=exact_integers))


def check(value: Any, *, max_depth: int = MAX_DEPTH, exact_integers: bool = False) -> None:
    """Raise NotCanonical for the first thing, in document order, that has no canonical form."""
    keys: list[Any] = [None]
    levels: list[Iterator[tuple[Any, Any]]] = [iter(((None, value),))]
    while levels:
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
            keys.pop()
            continue
        keys[-1], child = entry
        fault = _fault(child, exact_integers)
        if fault is not None:
            raise _refusal(fault, keys)
        if isinstance(child, (dict, list, tuple)):
            if len(levels) > max_depth:
                raise _refusal(_too_deep(max_depth), keys)
            levels.append(_children(child))
            keys.append(None)


def _children(container: Any) -> Iterator[tuple[Any, Any]]:
    return iter(container.items()) if isinstance(container, dict) else iter(enumerate(container))


def _refusal(fault: _Refused, keys: list[Any]) -> NotCanonical:
    path = keys[1:] if fault.key is None else [*keys[1:], fault.key]
    return NotCanonical(fault.kind, fault.message, dotted(path))


def _fault(value: Any, exact_integers: bool) -> _Refused | None:
    """What is wrong with this one value, its children aside."""
    if isinstance(value, _Refused):
        return value
    if isinstance(value, str):
        return None if _encodable(value) else _lone_surrogate("the text")
    if isinstance(value, dict):
        return _key_fault(value)
    if value is None or isinstance(value, (bool, list, tuple)):
        return None
    return _number_fault(value, exact_integers)


def _number_fault(value: Any, exact_integers: bool) -> _Refused | None:
    if isinstance(value, float):
        if not math.isfinite(value):
            return _Refused("not_finite", "NaN and infinite numbers are no JSON")
        unsafe = MAX_SAFE_INTEGER < abs(value) < _FIRST_EXPONENT_FORM and not exact_integers
    elif isinstance(value, int):
        unsafe = abs(value) > (_LONGEST if exact_integers else MAX_SAFE_INTEGER)
    else:
        return _Refused("not_json", f"a {type(value).__name__} is no JSON value")
    return _out_of_range(exact_integers) if unsafe else None


def _out_of_range(exact_integers: bool) -> _Refused:
    if exact_integers:
        return _Refused("integer_range", f"an integer of more than {MAX_DIGITS} digits")
    return _Refused("integer_range", "an integer beyond ±(2^53-1), which other readers round; send it as a string")


def _key_fault(value: dict[Any, Any]) -> _Refused | None:
    for key in value:
        if not isinstance(key, str):
            return _Refused("not_json", f"a key is a {type(key).__name__}; keys are strings", str(key))
        if not _encodable(key):
            return _lone_surrogate("the key", key)
    return None


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _lone_surrogate(what: str, key: str | None = None) -> _Refused:
    return _Refused("surrogate", f"{what} holds half of a surrogate pair, which UTF-8 cannot hold", key)


def _too_deep(max_depth: int) -> _Refused:
    return _Refused("too_deep", f"nested more than {max_depth} levels deep")


def _decode(text: str | bytes, max_bytes: int) -> str:
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > max_bytes:
        raise NotCanonical("too_large", f"{len(raw)} bytes, at most {max_bytes} are allowed")
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as wrong:
        raise NotCanonical("utf8", f"not UTF-8 at byte {wrong.start}") from None


def _check_depth(text: str, max_depth: int) -> None:
    """Count brackets outside strings, so that the parser, which recurses, never meets too many."""
    closers: list[str] = []
    for token in _TOKEN.finditer(text):
        opening = _CLOSER.get(token[0])
        if opening is not None:
            if len(closers) == max_depth:
                raise _refusal(_too_deep(max_depth), _way_down(text[: token.start()], closers))
            closers.append(opening)
        elif closers and token[0] == closers[-1]:
            closers.pop()


def _way_down(before: str, closers: list[str]) -> list[Any]:
    """The keys that lead to the value that would follow `before`."""
    value = _loads(before + "null" + "".join(reversed(closers)))
    keys: list[Any] = [None]
    while value:
        keys.append(next(reversed(value)) if isinstance(value, dict) else len(value) - 1)
        value = value[keys[-1]]
    return keys


def _loads(text: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_read_object,
            parse_int=_read_integer,
            parse_float=_read_float,
            parse_constant=_read_constant,
        )
    except json.JSONDecodeError as wrong:
        raise NotCanonical("syntax", f"{wrong.msg} (line {wrong.lineno}, column {wrong.colno})") from None


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return _Refused("duplicate_key", "the key is given more than once", key)
        seen.add(key)
    return value


def _read_integer(digits: str) -> int | _Refused:
    return int(digits) if len(digits.removeprefix("-")) <= MAX_DIGITS else _out_of_range(True)


def _read_float(digits: str) -> float | _Refused:
    value = float(digits)
    return value if math.isfinite(value) else _Refused("not_finite", "the number would become infinite")


def _read_constant(name: str) -> _Refused:
    return _Refused("not_finite", f"{name} is no JSON")


def _write(value: Any, out: Callable[[str], None]) -> None:
    """Spell a checked value. Recursion is bounded by the check."""
    if isinstance(value, dict):
        _write_object(value, out)
    elif isinstance(value, (list, tuple)):
        _write_array(value, out)
    else:
        out(_scalar(value))


def _write_object(value: dict[str, Any], out: Callable[[str], None]) -> None:
    lead = "{"
    for key in sorted(value, key=_utf16):
        out(lead + encode_basestring(key) + ":")
        _write(value[key], out)
        lead = ","
    out("}" if value else "{}")


def _write_array(value: Sequence[Any], out: Callable[[str], None]) -> None:
    lead = "["
    for child in value:
        out(lead)
        _write(child, out)
        lead = ","
    out("]" if value else "[]")


def _utf16(key: str) -> bytes:
    """RFC 8785 orders keys by UTF-16 code units, which differs from code points beyond the basic plane."""
    return key.encode("utf-16-be")


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, float):
        return rfc8785.dumps(value).decode()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(int(value))
