"""Canonical JSON and ids, over whatever comes."""

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.canonical import MAX_SAFE_INTEGER, NotCanonical, canonical_bytes, hash_of, parse_json
from schemas.ids import InvalidId, group_id, idempotency_key, run_id_for, session_key, step_task_id, step_token
from tests.support.plans import PLAN_ID

LIMIT = 1_000_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
integers = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
reals = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) < 2**53 or abs(x) >= 1e21)
values = st.recursive(
    st.none() | st.booleans() | integers | reals | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)
hostile = st.text(max_size=40) | st.text('aA0:.-|{}[]",\\\n\x00\ud800é/', max_size=12)


@given(values)
def test_canonical_bytes_are_stable_and_read_back_equal(value: Any) -> None:
    text = json.dumps(value)
    parsed = parse_json(text, max_bytes=LIMIT)
    spelled = canonical_bytes(parsed)
    again = parse_json(spelled, max_bytes=LIMIT)
    assert again == parsed == value
    assert canonical_bytes(again) == spelled
    assert hash_of(again) == hash_of(value)


@given(values)
def test_the_library_spells_it_the_same_way(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


@given(values, st.integers(), st.booleans())
def test_how_it_was_written_does_not_matter(value: Any, seed: int, escaped: bool) -> None:
    text = json.dumps(reordered(value, seed), indent=seed % 3 or None, ensure_ascii=escaped)
    assert canonical_bytes(parse_json(text, max_bytes=LIMIT)) == canonical_bytes(value)


def reordered(value: Any, seed: int) -> Any:
    if isinstance(value, dict):
        ordered = sorted(value, key=lambda key: hash((key, seed)))
        return {key: reordered(value[key], seed) for key in ordered}
    return [reordered(child, seed) for child in value] if isinstance(value, list) else value


path_parts = st.lists(st.integers(0, 3) | st.text("abc$_", min_size=1, max_size=5), max_size=20)


@given(path_parts, st.dictionaries(texts, integers, min_size=1, max_size=4), st.data())
def test_a_repeated_key_is_found_at_any_depth(
    parts: list[int | str], members: dict[str, int], data: st.DataObject
) -> None:
    twice = data.draw(st.sampled_from(sorted(members)))
    pairs = [*members.items(), (twice, 0)]
    text = "{" + ",".join(f"{json.dumps(key)}:{number}" for key, number in pairs) + "}"
    for part in reversed(parts):
        text = f"{{{json.dumps(part)}:{text}}}" if isinstance(part, str) else f"[{'0,' * part}{text}]"
    with pytest.raises(NotCanonical) as caught:
        parse_json(text, max_bytes=LIMIT)
    assert caught.value.kind == "duplicate_key"
    assert caught.value.path.startswith(".".join(map(str, parts)))


@settings(max_examples=500)
@given(st.binary(max_size=200) | st.text('[]{}",:\\ue0123456789.-+aNIntrfls \n', max_size=60).map(str.encode))
def test_random_bytes_are_refused_or_read(raw: bytes) -> None:
    try:
        value = parse_json(raw, max_bytes=150)
    except NotCanonical as refusal:
        str(refusal).encode()
        return
    assert parse_json(canonical_bytes(value), max_bytes=LIMIT) == value


@given(st.text(max_size=50))
def test_random_text_is_refused_or_read_as_the_standard_library_reads_it(text: str) -> None:
    try:
        value = parse_json(text, max_bytes=LIMIT)
    except NotCanonical:
        return
    assert value == json.loads(text)


def made(make: Any, *parts: Any) -> str | None:
    try:
        return str(make(*parts))
    except InvalidId:
        return None


@given(st.tuples(hostile, hostile | st.none(), hostile), st.tuples(hostile, hostile | st.none(), hostile))
def test_other_requests_are_other_runs(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    first, second = made(run_id_for, *one), made(run_id_for, *other)
    assert (first == second) == (one == other) or None in (first, second)


def test_moving_a_character_between_parts_makes_another_run() -> None:
    joined = 'a","b:c|null'
    cuts = [(joined[:m], joined[m:n], joined[n:]) for m in range(1, len(joined)) for n in range(m + 1, len(joined))]
    assert len({run_id_for(*cut) for cut in cuts}) == len(cuts)


run_ids = st.builds(run_id_for, st.just("celery"), st.none(), texts.filter(bool)) | hostile
step_ids = (
    st.from_regex(r"[a-z0-9][a-z0-9_-]{0,6}", fullmatch=True)
    | st.sampled_from(["s0", "g1", "plan", "settle"])
    | hostile
)
names = st.one_of(
    st.tuples(st.just(idempotency_key), run_ids, step_ids, st.integers(-1, 12)),
    st.tuples(st.just(step_task_id), run_ids, step_ids),
    st.tuples(st.just(group_id), run_ids, st.integers(-1, 12)),
)


@settings(max_examples=300)
@given(st.lists(names, max_size=12))
def test_no_two_parts_make_one_name(parts: list[tuple[Any, ...]]) -> None:
    known: dict[str, tuple[Any, ...]] = {}
    for call in parts:
        name = made(*call)
        if name is not None:
            assert known.setdefault(name, call) == call


@given(hostile, hostile)
def test_session_keys_differ_and_stay_in_their_alphabet(one: str, other: str) -> None:
    first, second = made(session_key, one), made(session_key, other)
    if first and second:
        assert (first == second) == (one == other)
        assert set(first) <= set("0123456789abcdef")


@given(st.dictionaries(texts, values, max_size=4), st.dictionaries(texts, values, max_size=4))
def test_tokens_are_equal_where_params_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = canonical_bytes(one) == canonical_bytes(other)
    assert (step_token(PLAN_ID, 0, "pay", one) == step_token(PLAN_ID, 0, "pay", other)) == same
