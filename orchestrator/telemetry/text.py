"""Making other people's text safe to show: no value may move a cursor, forge a line or carry a secret."""

import re
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

LONGEST: Final = 4096  # characters of one value in a log line
HIDDEN: Final = "***"

# control, bidirectional and invisible characters; halves of surrogate pairs
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_URL_PASSWORD = re.compile(r"(://[^\s/@:]{0,256}):[^\s/]{1,1024}@")
_PAIR = re.compile(
    r"(?i)\b((?!step_|fencing_)(?:[a-z]{1,20}[_-])?(?:password|passwd|secret|api[_-]?key|access[_-]?key|authorization|token)"
    r"[\"']?\s{0,3}[=:]\s{0,3})(?:\"[^\"]*\"|'[^']*'|(?:(?:bearer|basic)\s)?[^\s\"',;&}]+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")

_SECRET_WORDS = frozenset({"password", "passwd", "passphrase", "secret", "token", "authorization", "cookie", "apikey"})
_SECRET_PAIRS = frozenset({("api", "key"), ("access", "key"), ("private", "key"), ("signing", "key")})
_NO_SECRETS = frozenset({"step_token", "fencing_token"})  # fingerprints and counters by these names are public
_SHORTEST_SECRET: Final = 8
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def printable(text: str) -> str:
    """The text on one line, with every control, bidirectional or invisible character written as its escape."""
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@lru_cache(maxsize=4096)
def is_secret_name(name: str, also: frozenset[str] = frozenset()) -> bool:
    """Whether a value under this key must not be shown, judged by the key's words: `apiKey`, `DB_PASSWORD`."""
    if name in _NO_SECRETS:
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    if name.lower() in also or not _SECRET_WORDS.isdisjoint(words):
        return True
    return any(pair in _SECRET_PAIRS for pair in pairwise(words))


_hidden: list[str] = []


def hide(secret: str) -> None:
    """Never show this very text again, wherever it stands. A very short one is left alone: it would spoil words."""
    if len(secret) >= _SHORTEST_SECRET and secret not in _hidden:
        _hidden.append(secret)


def without_secrets(text: str) -> str:
    """The text without passwords of URLs, bearer tokens, `password=…` pairs and what was hidden by name."""
    for secret in _hidden:
        text = text.replace(secret, HIDDEN)
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)
    if "=" in text or ":" in text:
        text = _PAIR.sub(rf"\1{HIDDEN}", text)
    return _BEARER.sub(rf"\1 {HIDDEN}", text) if " " in text else text


def redacted(value: Any, also: frozenset[str] = frozenset(), depth: int = 6) -> Any:
    """A copy fit for a log: secrets hidden by key name and by shape, long text cut, deep nesting folded."""
    if isinstance(value, str):
        return _cut(without_secrets(value))
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        return {str(key): redacted_item(str(key), item, also, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(item, also, depth - 1) for item in value]
    return _cut(without_secrets(str(value)))


def redacted_item(key: str, value: Any, also: frozenset[str] = frozenset(), depth: int = 6) -> Any:
    """The value as a log may show it under this key."""
    if value is not None and is_secret_name(key, also):
        return HIDDEN
    return redacted(value, also, depth)


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text) - LONGEST} more characters)"
