"""Twice the input, about twice the operations: counted, so that a slow machine changes nothing.

Counted are the bytecodes of the door's own code and the characters that it hands to anything written in C: parsers,
regular expressions, searches, hashes. What these do inside is linear by their construction; that it is also fast is
shown with a mebibyte of each in test_nasty.py.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from orchestrator import admission
from orchestrator.admission import PayloadDrift, extract
from schemas import canonical
from schemas.plan import ExecutionPlan
from schemas.policy import Policy
from tests.support.plans import HASH, PLAN_ID, admit, built_in

OURS = ("/orchestrator/admission/", "/schemas/")
SIZE = 60  # units of each document
TOLERANCE = 2.35  # twice, and what does not halve evenly
POLICY = Policy(max_steps=10_000)
built_in()  # loaded before anything is counted


class Counted:
    """A compiled pattern that counts the characters it is given."""

    def __init__(self, pattern: Any, meter: "Meter") -> None:
        self._pattern = pattern
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._pattern, name)

        def call(text: str, *more: Any) -> Any:
            start = more[0] if name != "sub" and more else 0
            if name == "finditer":  # lazily: it costs what is consumed
                return self._consumed(method(text, *more), start)
            found = method(text, *more)
            end = found.end() if found is not None and hasattr(found, "end") else len(text)
            self._meter.operations += end - start + 1
            return found

        return call

    def _consumed(self, matches: Iterator[Any], start: int) -> Iterator[Any]:
        for match in matches:
            self._meter.operations += match.end() - start + 1
            start = match.end()
            yield match


class Meter:
    """Operations so far."""

    def __init__(self) -> None:
        self.operations = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not any(part in frame.f_code.co_filename for part in OURS):
            return None
        frame.f_trace_opcodes = True
        self.operations += event == "opcode"
        return self.trace

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its first text or bytes counted."""

        def call(*given: Any, **more: Any) -> Any:
            text = next((one for one in given if isinstance(one, str | bytes)), "")
            self.operations += len(text) + 1
            return function(*given, **more)

        return call


SEAMS = (
    *((extract, name) for name in ("from_json", "_OPENS_OBJECT", "_TOKEN", "_THINKING")),
    *((canonical, name) for name in ("_TOKEN", "_loads")),
    (ExecutionPlan, "model_validate_json"),
    (json, "dumps"),
    (admission, "sha256_hex"),
)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meter]:
    """Count whatever is done inside."""
    meter = Meter()
    with monkeypatch.context() as patch:
        for owner, name in SEAMS:
            original = getattr(owner, name)
            is_pattern = hasattr(original, "finditer")
            patch.setattr(owner, name, Counted(original, meter) if is_pattern else meter.counting(original))
        sys.settrace(meter.trace)
        try:
            yield meter
        finally:
            sys.settrace(None)


def operations(raw: str, monkeypatch: pytest.MonkeyPatch) -> int:
    with counted(monkeypatch) as meter, suppress(PayloadDrift):
        admit(raw, policy=POLICY)
    return meter.operations


def plan(steps: list[Any]) -> str:
    return json.dumps({"plan_id": PLAN_ID, "context_hash": HASH, "steps": steps})


def files(count: int, **fields: Any) -> list[Any]:
    return [
        {"action": "create_file", "params": {"path": f"f{number}", "content": "x"}, **fields} for number in range(count)
    ]


def record(changes: Any) -> str:
    return plan([{"action": "mutate_record", "params": {"entity_id": PLAN_ID, "changes": changes}}])


def chained(count: int) -> list[Any]:
    """Each step names the first one's result and needs the one before it."""
    steps = files(count)
    for number, step in enumerate(steps[1:], 1):
        step["needs"] = [f"s{number - 1}"]
        step["params"]["path"] = "same"
    return steps


DOCUMENTS: dict[str, Callable[[int], str]] = {
    "good steps": lambda n: plan(files(n)),
    "steps with needs": lambda n: plan(chained(n)),
    "needs of one step": lambda n: plan([*files(n, needs=[]), {**files(1)[0], "needs": [f"s{i}" for i in range(n)]}]),
    "bad steps": lambda n: plan([{"action": "create_file", "params": {"path": 3}}] * n),
    "unknown actions": lambda n: plan([{"action": f"a{i}", "params": {}} for i in range(n)]),
    "unknown params": lambda n: plan([{"action": "create_file", "params": dict.fromkeys(map(str, range(n)), 1)}]),
    "unknown keys": lambda n: json.dumps(dict.fromkeys(map(str, range(n)), 1)),
    "free keys": lambda n: record({str(i): i for i in range(n)}),
    "nested lists": lambda n: record({"a": [[1, [2]]] * n}),
    "repeated keys": lambda n: record({}).replace("{}", "{" + ",".join(['"a":1'] * n) + "}"),
    "long text": lambda n: record({"a": "\\\n\u00e9" * (10 * n)}),
    "long integers": lambda n: record({"a": [10**40] * n}),
    "too deep": lambda n: "[" * n + "]" * n,
    "open braces": lambda n: "{" * (10 * n),
    "open objects": lambda n: '{"a":' * n,
    "open strings": lambda n: '{"' * n,
    "lone quotes": lambda n: '"' * (10 * n),
    "backslashes": lambda n: '{"' + "\\" * (10 * n),
    "two plans": lambda n: plan(files(n)) * 2,
    "many objects": lambda n: '{"a":1} ' * n,
    "objects in a list": lambda n: "[" + '{"a":1},' * n,
    "prose with braces": lambda n: "{x} " * n + plan(files(1)),
    "prose with quotes": lambda n: 'he said "no" ' * n + plan(files(1)),
    "prose after": lambda n: plan(files(1)) + " {x} ]" * n,
    "fences": lambda n: "```json\n" * n + plan(files(1)) + "\n```" * n,
    "open thoughts": lambda n: "<think>" * n,
    "closed thoughts": lambda n: "<think>x</think>" * n + plan(files(1)),
    "thoughts of two kinds": lambda n: "<think><reasoning></think>" * n + plan(files(1)),
    "white space": lambda n: " \n" * (10 * n) + plan(files(1)),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_twice_the_input_is_about_twice_the_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = DOCUMENTS[name]
    once, twice = (operations(document(size), monkeypatch) for size in (SIZE, 2 * SIZE))
    assert twice <= TOLERANCE * once


def test_the_meter_sees_quadratic_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A door that looked at the rest of the text from every brace on would be found out."""

    def work(size: int) -> int:
        text = "{" * size
        with counted(monkeypatch) as meter:
            for start in range(size):
                extract._OPENS_OBJECT.search(text, start)
        return meter.operations

    assert work(2 * SIZE) > 3 * work(SIZE)
