"""Plans that attack the worker: the cases of tests/corpora/hostile.jsonl, with their tokens filled in."""

import base64
import binascii
import re
from functools import cache
from typing import Any, Final

from tests.support.corpora import cases

CORPUS: Final = "hostile.jsonl"
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_TOKEN: Final = re.compile(r"@@([A-Z_]+)@@")

Tokens = dict[str, object]


@cache
def corpus() -> dict[str, dict[str, Any]]:
    """Every case by its id."""
    return {case["id"]: case for case in cases(CORPUS)}


def steps(name: str, tokens: Tokens) -> list[dict[str, Any]]:
    """The steps of a case. KeyError: it has a token that was not given."""
    return [_filled(step, tokens) for step in _written(corpus()[name])]


def commands(name: str, tokens: Tokens) -> list[str]:
    """The lines that a case gives to run_command."""
    return [step["params"]["command"] for step in steps(name, tokens) if step["action"] == "run_command"]


def contents(name: str, tokens: Tokens) -> list[tuple[str, str]]:
    """Path and content of each file that a case creates."""
    made = [step["params"] for step in steps(name, tokens) if step["action"] == "create_file"]
    return [(params["path"], params["content"]) for params in made]


def _written(case: dict[str, Any]) -> list[dict[str, Any]]:
    if "steps" in case:
        return list(case["steps"])
    return list(eval(case["steps_expr"], {}))


def _filled(value: Any, tokens: Tokens) -> Any:
    if isinstance(value, str):
        return _replaced(_BASE64.sub(lambda match: _rebuilt(match.group(), tokens), value), tokens)
    if isinstance(value, dict):
        return {_filled(key, tokens): _filled(item, tokens) for key, item in value.items()}
    return [_filled(item, tokens) for item in value] if isinstance(value, list) else value


def _rebuilt(text: str, tokens: Tokens) -> str:
    """A token may hide in base64."""
    try:
        said = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text
    return base64.b64encode(_replaced(said, tokens).encode()).decode() if _TOKEN.search(said) else text


def _replaced(text: str, tokens: Tokens) -> str:
    return _TOKEN.sub(lambda match: str(tokens[match[1]]), text)
