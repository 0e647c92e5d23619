"""The door, over whatever comes."""

import json
import re
from typing import Annotated, Any, Literal
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from orchestrator import admission
from orchestrator.admission import MAX_ISSUES, Catalogue, PayloadDrift, Referable, readmit
from schemas.canonical import canonical_text
from schemas.policy import Policy
from tests.support.corpora import cases, raw_of
from tests.support.plans import ENTITY, HASH, PLAN_ID, admit, built_in, command, file, plan_text, record
from workers import Context
from workers.actions.commands import RunCommand
from workers.actions.files import CreateFile
from workers.actions.records import MutateRecord
from workers.registry import Registry

ACTING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text("abcdefgh./_- \u00e9", min_size=1, max_size=8)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
params = (
    st.tuples(st.just("create_file"), st.fixed_dictionaries({"path": names.map("f".__add__), "content": texts}))
    | st.tuples(
        st.just("run_command"),
        st.fixed_dictionaries({"command": names}, optional={"timeout_ms": st.integers(1, 30_000)}),
    )
    | st.tuples(
        st.just("mutate_record"),
        st.fixed_dictionaries({"entity_id": st.just(ENTITY), "changes": st.dictionaries(texts, values, max_size=4)}),
    )
)


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """A plan as a planner might mean it, with some ids and some needs given."""
    steps: list[dict[str, Any]] = []
    for index, (action, given_params) in enumerate(draw(st.lists(params, min_size=1, max_size=6))):
        step: dict[str, Any] = {"action": action, "params": given_params}
        if draw(st.booleans()):
            step["id"] = f"n{index}"
        if draw(st.booleans()):
            earlier = [one.get("id", f"s{place}") for place, one in enumerate(steps)]
            step["needs"] = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        steps.append(step)
    return {"plan_id": PLAN_ID, "context_hash": HASH, "steps": steps}


def accepted(plan: Any) -> bool:
    try:
        admit(json.dumps(plan))
    except PayloadDrift:
        return False
    return True


good_plans = plans().filter(accepted)
quiet = st.text("abc .:!?\n\u00e9", max_size=30)
slow = settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)


@slow
@given(good_plans)
def test_an_admitted_plan_is_a_fixed_point(plan: Any) -> None:
    once = admit(json.dumps(plan))
    again = admit(once.plan_text)
    stored = readmit(once.plan_text, catalogue=built_in(), policy=Policy(), context_hash=HASH)
    assert again.plan_text == once.plan_text == stored.plan_text
    assert again.plan_hash == once.plan_hash == stored.plan_hash
    assert [step.token for step in again.steps] == [step.token for step in once.steps]


class PlainStep(BaseModel):
    """What anybody would write: the plan as plain pydantic models, strict, without other keys."""

    model_config = ConfigDict(strict=True, extra="forbid")

    id: str | None = None
    needs: list[str] | None = None


class PlainFile(PlainStep):
    action: Literal["create_file"]
    params: CreateFile


class PlainCommand(PlainStep):
    action: Literal["run_command"]
    params: RunCommand


class PlainRecord(PlainStep):
    action: Literal["mutate_record"]
    params: MutateRecord


class PlainPlan(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    plan_id: UUID
    context_hash: str
    steps: list[Annotated[PlainFile | PlainCommand | PlainRecord, Field(discriminator="action")]]


def answer_of(data: st.DataObject) -> str:
    """A good plan, or one with a value replaced by another."""
    plan = data.draw(plans())
    if data.draw(st.booleans()):
        step = data.draw(st.sampled_from(plan["steps"]))
        place = data.draw(st.sampled_from([plan, step, step["params"]]))
        place[data.draw(st.sampled_from([*place, "x"]))] = data.draw(values)
    return json.dumps(plan)


@slow
@given(st.data())
def test_what_the_door_lets_in_plain_strict_pydantic_does_too(data: st.DataObject) -> None:
    """The door is never laxer than the models alone; the other way round it is stricter by design."""
    raw = answer_of(data)
    try:
        admitted = admit(raw)
    except PayloadDrift:
        return
    PlainPlan.model_validate_json(raw)
    PlainPlan.model_validate_json(admitted.plan_text)


def verdict(raw: Any, known: Catalogue | None = None) -> Any:
    """All that the door says of a text."""
    try:
        admitted = admit(raw, known)
    except PayloadDrift as drift:
        return drift.errors()
    return (admitted.plan_text, admitted.plan_hash, admitted.extracted, admitted.steps, admitted.plan)


def verdict_of_the_long_way(raw: Any, known: Catalogue | None = None) -> Any:
    with mock.patch.object(admission, "plainly", return_value=None):
        return verdict(raw, known)


numbers_as_written = st.sampled_from(["-0", "0", "1E2", "1.0", "-1", "9" * 20, "1e400", "NaN", "Infinity", "1e-7"])
strings_as_written = st.sampled_from(
    ['"\\ud83d\\ude00"', '"\\ud800"', '"\\u0000"', '"\U0001f600"', '"\u00e9"', '"\\/"', '"\\u007f"']
)
longest = st.sampled_from(["", "-"]).flatmap(lambda sign: st.integers(4299, 4301).map(lambda size: sign + "9" * size))
nests = st.integers(55, 66).map(lambda depth: "[" * depth + "]" * depth)


@slow
@given(plans(), st.data())
def test_the_short_way_says_what_the_long_way_says(plan: Any, data: st.DataObject) -> None:
    raw = data.draw(st.just(json.dumps(plan)) | st.builds(answer_of, st.just(data)))
    assert verdict(raw) == verdict_of_the_long_way(raw)


@slow
@given(numbers_as_written | longest | strings_as_written | nests, numbers_as_written | strings_as_written)
def test_both_ways_read_the_same_spellings(first: str, second: str) -> None:
    step = f'{{"action":"mutate_record","params":{{"entity_id":"{ENTITY}","changes":{{"a":{first},"b":{second}}}}}}}'
    raw = f'{{"plan_id":"{PLAN_ID.upper()}","context_hash":"{HASH}","steps":[{step}]}}'
    assert verdict(raw) == verdict_of_the_long_way(raw)
    keyed = raw.replace('"a"', second) if second.startswith('"') else raw
    assert verdict(keyed) == verdict_of_the_long_way(keyed)


class Anything(BaseModel):
    value: Annotated[JsonValue, Referable] = None
    free: JsonValue = None


def taking_anything() -> Catalogue:
    """An action whose model takes a reference for any other object."""
    registry = Registry()

    @registry.action("take", effect="pure")
    def take(params: Anything, ctx: Context) -> None:
        """Take."""

    return registry.catalogue()


def escaped(text: str, which: list[bool]) -> str:
    """JSON's other spelling of the same string."""
    return "".join(f"\\u{ord(char):04x}" if odd else char for char, odd in zip(text, which, strict=True))


@slow
@given(
    st.lists(st.booleans(), min_size=7, max_size=7),
    st.sampled_from(["value", "free"]),
    st.sampled_from(["s0", "s1", "s2", "nobody"]),
    st.sampled_from(["", ',"path":""', ',"path":"/a"', ',"path":1']),
)
def test_both_ways_know_a_reference_in_any_spelling(which: list[bool], key: str, target: str, rest: str) -> None:
    reference = f'{{"{escaped("$result", which)}":"{target}"{rest}}}'
    steps = f'{{"action":"take","params":{{}}}},{{"action":"take","params":{{"{key}":{reference}}}}}'
    raw = f'{{"plan_id":"{PLAN_ID}","context_hash":"{HASH}","steps":[{steps}]}}'
    known = taking_anything()
    assert verdict(raw, known) == verdict_of_the_long_way(raw, known)


@slow
@given(plans(), st.data())
def test_both_ways_say_the_same_of_damaged_plans(plan: Any, data: st.DataObject) -> None:
    text = json.dumps(plan).encode()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    raw = text[:start] + data.draw(st.binary(max_size=6)) + text[end:]
    assert verdict(raw) == verdict_of_the_long_way(raw)


@pytest.mark.parametrize("name", ["drift.jsonl"])
def test_both_ways_say_the_same_of_the_corpus(name: str) -> None:
    for case in cases(name):
        assert verdict(raw_of(case)) == verdict_of_the_long_way(raw_of(case)), case["id"]


def test_the_short_way_is_taken() -> None:
    """Else none of the above would say anything."""
    with mock.patch.object(admission, "read_plan", side_effect=AssertionError("the long way")):
        plain = plan_text(command(), file(), record({"a": [1, {"b": None}]}), file("b", id="b", needs=["s0"]))
        assert len(admit(plain).steps) == 4


@slow
@given(good_plans, st.sampled_from([None, 0, 2]), st.booleans())
def test_spelling_does_not_change_the_hash(plan: Any, indent: int | None, ascii_only: bool) -> None:
    spelled = json.dumps(plan, indent=indent, ensure_ascii=ascii_only, sort_keys=True)
    assert admit(spelled).plan_hash == admit(json.dumps(plan)).plan_hash


@slow
@given(good_plans, quiet, quiet, st.sampled_from(["", "```json\n", "~~~\n", "<think>{}</think>", "\ufeff"]))
def test_wrapping_does_not_change_the_hash(plan: Any, before: str, after: str, opening: str) -> None:
    text = json.dumps(plan)
    wrapped = (
        f"{opening}{text}\n```{after}" if opening.startswith(("<", "\ufeff")) else f"{before}\n{opening}{text}{after}"
    )
    assert admit(wrapped).plan_hash == admit(text).plan_hash


def spots(text: str) -> list[int]:
    """Where a key begins, outside of strings."""
    found, inside, index = [], False, 0
    while index < len(text):
        if text[index] == "\\" and inside:
            index += 1
        elif text[index] == '"':
            if not inside and text[index - 1] in "{," and is_key(text, index):
                found.append(index)
            inside = not inside
        index += 1
    return found


def is_key(text: str, start: int) -> bool:
    return text[json.decoder.scanstring(text, start + 1)[1]] == ":"  # type: ignore[attr-defined]


@slow
@given(good_plans, st.data())
def test_a_key_given_twice_is_refused_at_any_depth(plan: Any, data: st.DataObject) -> None:
    text = canonical_text(plan, exact_integers=True)
    start = data.draw(st.sampled_from(spots(text)))
    key = text[start : json.decoder.scanstring(text, start + 1)[1]]  # type: ignore[attr-defined]
    doubled = f"{text[:start]}{key}:1,{text[start:]}"
    assert not accepted_text(doubled)


def accepted_text(text: str | bytes) -> bool:
    try:
        admit(text)
    except PayloadDrift as drift:
        kinds = {issue.kind for issue in drift.issues}
        return "duplicate_key" not in kinds
    return True


def nothing_else_is_raised(raw: Any) -> None:
    try:
        admit(raw)
    except PayloadDrift as drift:
        assert 1 <= len(drift.issues) <= MAX_ISSUES  # noqa: PT017
        json.dumps(drift.errors()).encode()
        assert not any(ACTING.search(issue.path + issue.message) for issue in drift.issues)  # noqa: PT017


@given(st.binary(max_size=200) | st.text(max_size=200) | st.text('{}[]":,\\ \n0eE+-tn<think>/`', max_size=80))
def test_nothing_else_is_raised_over_noise(raw: Any) -> None:
    nothing_else_is_raised(raw)


@slow
@given(plans(), st.data())
def test_nothing_else_is_raised_over_damaged_plans(plan: Any, data: st.DataObject) -> None:
    text = json.dumps(plan).encode()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    nothing_else_is_raised(text[:start] + data.draw(st.binary(max_size=6)) + text[end:])


@slow
@given(plans(), st.data(), values)
def test_nothing_else_is_raised_over_plans_with_odd_values(plan: Any, data: st.DataObject, odd: Any) -> None:
    place: Any = plan
    for _ in range(data.draw(st.integers(1, 5))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        assume(keys)
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = odd
            break
        place = place[key]
    nothing_else_is_raised(json.dumps(plan))
