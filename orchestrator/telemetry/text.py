"""Making other people's text safe to show: no value may move a cursor, forge a line or carry a secret."""

import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

LONGEST: Final = 4096  # characters of one value in a log line
WHOLE: Final = sys.maxsize
HIDDEN: Final = "***"

# control, bidirectional and invisible characters; halves of surrogate pairs
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_URL_PASSWORD = re.compile(r"(://[^\s/@:]{0,256}):[^\s/]{1,1024}@")
# a key within running text, of a program's or its options, or of JSON, which may be JSON inside JSON
_KEY = re.compile(r"(?<![\w-])-*+([A-Za-z_][\w-]{0,255})\\{0,7}[\"']?\s{0,3}[=:]\s{0,3}")
# what follows it, and what was cut before its own end, to the end
_VALUE = re.compile(
    r"(?is)(\\{0,7}[\"'])(?:(?!(?<!\\)\1).)*+(?:\1|\Z)"
    r"|[\[{][^\]}]*+(?:[\]}]|\Z)"
    r"|(?:(?:bearer|basic)\s)?[^\s\"',;&}]+"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")

_SECRET_WORDS = frozenset(
    {"password", "passwd", "passphrase", "secret", "secrets", "token", "authorization", "cookie", "apikey", "accesskey"}
)
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
def is_secret_name(name: str) -> bool:
    """Whether a value under this key must not be shown, judged by the key's words: `apiKey`, `DB_PASSWORD`."""
    if name in _NO_SECRETS:
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    if name.lower() in _more_names or not _SECRET_WORDS.isdisjoint(words):
        return True
    return any(pair in _SECRET_PAIRS for pair in pairwise(words))


_more_names: set[str] = set()


def hide_names(names: Iterable[str]) -> None:
    """From here on values under these keys, in lower case, are not shown either, and these alone."""
    _more_names.clear()
    _more_names.update(names)
    is_secret_name.cache_clear()


_hidden: list[str] = []


def hide(secret: str) -> None:
    """Never show this very text again, wherever it stands. A very short one is left alone: it would spoil words."""
    if len(secret) >= _SHORTEST_SECRET and secret not in _hidden:
        _hidden.append(secret)


def without_hidden(text: str) -> str:
    """The text without what was hidden by its own words."""
    for secret in _hidden:
        text = text.replace(secret, HIDDEN)
    return text


def without_secrets(text: str) -> str:
    """The text without passwords of URLs, bearer tokens, `password=…` pairs and what was hidden by its own words."""
    text = without_hidden(text)
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)
    if "=" in text or ":" in text:
        text = "".join(_without_named(text))
    return _BEARER.sub(rf"\1 {HIDDEN}", text) if " " in text else text


def _without_named(text: str) -> Iterator[str]:
    """The text in pieces, each value under a secret's name exchanged."""
    shown = 0
    for key in _KEY.finditer(text):
        if key.start() < shown or not is_secret_name(key[1]):
            continue
        value = _VALUE.match(text, key.end())
        if value is not None:
            yield text[shown : key.end()]
            yield HIDDEN
            shown = value.end()
    yield text[shown:]


def redacted(value: Any, depth: int = 6, most: int = LONGEST) -> Any:
    """A copy fit to be shown: secrets hidden by key name and by shape, deep nesting folded. most: characters that are
    left of one text; a log takes no more.
    """
    if isinstance(value, str):
        return _cut(without_secrets(value), most)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        return {str(key): redacted_item(str(key), item, depth - 1, most) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(item, depth - 1, most) for item in value]
    return _cut(without_secrets(str(value)), most)


def redacted_item(key: str, value: Any, depth: int = 6, most: int = LONGEST) -> Any:
    """The value as it may be shown under this key."""
    if value is not None and is_secret_name(key):
        return HIDDEN
    return redacted(value, depth, most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more characters)"
