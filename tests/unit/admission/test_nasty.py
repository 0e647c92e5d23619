"""A mebibyte of malice costs seconds at most: linear time, and memory in proportion."""

import json
import time
import tracemalloc
from collections.abc import Callable

import pytest

from orchestrator.admission import MAX_ISSUES, PayloadDrift
from schemas.policy import Policy
from tests.support.plans import ENTITY, HASH, PLAN_ID, admit, plan_text

MIB = 1024 * 1024
SECONDS = 20.0  # a slow machine's generous share; quadratic time would take minutes
MEMORY = 200 * MIB


def full(unit: str, before: str = "", after: str = "") -> str:
    return before + unit * ((MIB - len(before) - len(after)) // len(unit.encode())) + after


def plan_of(steps: str) -> str:
    return f'{{"plan_id":"{PLAN_ID}","context_hash":"{HASH}","steps":[{steps}]}}'


def changes(text: str) -> str:
    return plan_of(f'{{"action":"mutate_record","params":{{"entity_id":"{ENTITY}","changes":{text}}}}}')


UNITS = [
    *("[", "{", "{ ", "{}", '{"', '{"a":', '{"a":1} ', "{'a'} ", '[{"', ',{"'),
    *("<think>", "<think></think>", "<think ", "</think", "</think>", "[THINK][/THINK]"),
    *("`", "```", "```json\n", "```json\n{", "~", '"', '\\"', "\\", "\n", " ", "\ufeff", "&quot;"),
]
MEASURED: dict[str, Callable[[], str]] = {
    "escapes": lambda: changes(full("\\n", '{"a":"', '"}')[: MIB - 400] + '"}'),
    "empty lists": lambda: changes(json.dumps({"a": [[]] * 200_000}, separators=(",", ":"))),
    "empty objects": lambda: changes(json.dumps({"a": [{}] * 200_000}, separators=(",", ":"))),
    "keys": lambda: changes(json.dumps(dict.fromkeys(map(str, range(80_000)), 1))),
    "repeated keys": lambda: changes("{" + ",".join(['"a":1'] * 150_000) + "}"),
    "long integers": lambda: changes(json.dumps({"a": ["9" * 4300] * 200}).replace('"9', "9").replace('9"', "9")),
    "unknown keys": lambda: json.dumps(dict.fromkeys(map(str, range(80_000)), 1)),
    "unknown params": lambda: plan_of(
        json.dumps({"action": "create_file", "params": dict.fromkeys(map(str, range(80_000)), 1)})
    ),
    "empty steps": lambda: plan_of(",".join(["{}"] * 10_000)),
    "too many empty steps": lambda: plan_of(",".join(["{}"] * 300_000)),
    "needs of nothing": lambda: plan_text(
        {"action": "run_command", "params": {"command": "x"}, "needs": ["x"] * 150_000}
    ),
    "needs of numbers": lambda: plan_of('{"action":"a","params":{},"needs":[' + ",".join("1" * 300_000) + "]}"),
    "prose with braces": lambda: full("{x} ", after=changes("{}")),
}


def judged(raw: str) -> PayloadDrift | None:
    try:
        admit(raw, policy=Policy(max_steps=10_000))
    except PayloadDrift as drift:
        return drift
    return None


@pytest.mark.parametrize("unit", UNITS)
def test_one_sign_over_and_over(unit: str) -> None:
    started = time.process_time()
    drift = judged(full(unit))
    assert drift is not None
    assert 1 <= len(drift.issues) <= MAX_ISSUES
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize("name", MEASURED)
def test_large_documents(name: str) -> None:
    raw = MEASURED[name]()
    assert len(raw) <= MIB
    started = time.process_time()
    judged(raw)
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize("name", ["unknown keys", "needs of numbers", "empty objects", "repeated keys"])
def test_memory_stays_in_proportion(name: str) -> None:
    raw = MEASURED[name]()
    tracemalloc.start()
    judged(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY


def wide(steps: int, needs: int) -> str:
    """Each step needs the ones before it, as many as there are up to `needs`."""
    parts = (
        {
            "id": f"s{index}",
            "action": "create_file",
            "needs": [f"s{other}" for other in range(max(0, index - needs), index)],
            "params": {"path": f"f{index}", "content": {"$result": "s0", "path": "/path"} if index else "x"},
        }
        for index in range(steps)
    )
    return plan_of(",".join(json.dumps(part) for part in parts))


def test_ten_thousand_steps_that_need_a_hundred_each_and_name_the_first() -> None:
    policy = Policy(max_steps=10_000, plan_bytes=16 * MIB)
    started = time.process_time()
    admission = admit(wide(10_000, 100), policy=policy)
    assert time.process_time() - started < SECONDS
    assert len(admission.steps) == 10_000
    assert admission.steps[-1].refs == ("s0",)


def test_ten_thousand_steps_that_write_one_file_in_turn() -> None:
    step = '{"action":"create_file","params":{"path":"f","content":"x"}}'
    assert len(admit(plan_of(",".join([step] * 10_000)), policy=Policy(max_steps=10_000)).steps) == 10_000
