"""What the strict reader refuses, where it says the fault is, and that nothing makes it slow or deep."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any

import pytest
import rfc8785

from schemas.canonical import MAX_DEPTH, NotCanonical, canonical_bytes, canonical_text, hash_of, parse_json

MIB = 1024 * 1024


def refusal_of(text: str | bytes, **limits: Any) -> NotCanonical:
    with pytest.raises(NotCanonical) as caught:
        parse_json(text, **{"max_bytes": MIB, **limits})
    return caught.value


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ('{"a":1,"a":1}', "duplicate_key", "a"),
        ('{"steps":[{},{"params":{"x":1,"y":2,"x":3}}]}', "duplicate_key", "steps.1.params.x"),
        ('{"a":{"b":1,"b":2},"a":1}', "duplicate_key", "a"),
        (r'{"a":1,"\u0061":2}', "duplicate_key", "a"),
        ('{"":0,"":0}', "duplicate_key", ""),
        ('[1,{"mean":NaN}]', "not_finite", "1.mean"),
        ("Infinity", "not_finite", ""),
        ('{"a":[0,-Infinity]}', "not_finite", "a.1"),
        ('{"steps":[{"params":{"x":1E400}}]}', "not_finite", "steps.0.params.x"),
        ("-1e999999999999999999999", "not_finite", ""),
        ('{"n":9007199254740992}', "integer_range", "n"),
        ("[-9007199254740993]", "integer_range", "0"),
        ("[1e20]", "integer_range", "0"),
        ('{"n":' + "9" * 100_000 + "}", "integer_range", "n"),
        (r'{"a":["\ud83d"]}', "surrogate", "a.0"),
        (r'{"a":"\ude00\ud83d"}', "surrogate", "a"),
        ('{"a":"' + chr(0xD83D) + '"}', "surrogate", "a"),
        (r'{"a":{"\ud800":1}}', "surrogate", r"a.\ud800"),
        ("", "syntax", ""),
        ("{'a':1}", "syntax", ""),
        ('{"a":1,}', "syntax", ""),
        ("[1] 2", "syntax", ""),
        ("[01]", "syntax", ""),
        ('"a\nb"', "syntax", ""),
        ('"a\x00b"', "syntax", ""),
        ("\ufeff{}", "syntax", ""),
        ("\u00a0{}", "syntax", ""),
        ("[\u0661]", "syntax", ""),
        ("nan", "syntax", ""),
        (r'"\ud83', "syntax", ""),
        ('"\\', "syntax", ""),
        (b'{"a":"\xff"}', "utf8", ""),
        (b"\xed\xa0\xbd", "utf8", ""),
        (b"{\x00}", "syntax", ""),
    ],
)
def test_refusals_name_kind_and_path(text: str | bytes, kind: str, path: str) -> None:
    refusal = refusal_of(text)
    assert (refusal.kind, refusal.path) == (kind, path)
    assert str(refusal).encode()


@pytest.mark.parametrize(("text", "value"), [("1E2", 100.0), (' "x" ', "x"), (b"[]", []), ('"\\ud83d\\ude00"', "😀")])
def test_what_is_json_is_read(text: str | bytes, value: Any) -> None:
    assert parse_json(text, max_bytes=MIB) == value


def test_the_byte_limit_counts_bytes_not_characters() -> None:
    assert parse_json('"éé"', max_bytes=6) == "éé"
    refusal = refusal_of('"éé"', max_bytes=5)
    assert (refusal.kind, refusal.message) == ("too_large", "6 bytes, at most 5 are allowed")


def test_depth_is_limited_and_the_path_leads_there() -> None:
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH, max_bytes=MIB)
    refusal = refusal_of('{"a":[1,{"b":[[]]}],"z":[[[[[]]]]]}', max_depth=4)
    assert (refusal.kind, refusal.path) == ("too_deep", "a.1.b.0")


def test_brackets_inside_text_have_no_depth() -> None:
    text = json.dumps({"a": "[" * 1000 + '"{\\' * 1000})
    assert parse_json(text, max_bytes=MIB) == json.loads(text)


def test_an_earlier_fault_wins_over_depth() -> None:
    assert refusal_of("[1,,{" + "[" * 1000).kind == "syntax"


@pytest.mark.parametrize(
    "text",
    [
        "[" * MIB,
        '{"a":' * (MIB // 5),
        "[]" * (MIB // 2),
        '"' + "\\" * (MIB - 1),
        '"' * MIB,
        '[""' + ',""' * (MIB // 4),
        "[" + "9" * (MIB - 2) + "]",
        "[0." + "9" * (MIB - 4) + "]",
        "{" + ",".join(f'"{n}":0' for n in range(80_000)) + ',"79999":0}',
        "[" * 60 + "[],{}" * 100_000,
    ],
    ids=["brackets", "braces", "values", "backslashes", "quotes", "texts", "digits", "decimals", "keys", "empties"],
)
def test_hostile_texts_take_time_in_proportion(text: str) -> None:
    started = time.process_time()
    with suppress(NotCanonical):
        parse_json(text, max_bytes=2 * MIB)
    assert time.process_time() - started < 5


def test_long_keys_do_not_make_long_paths() -> None:
    long = "k" * 100_000
    refusal = refusal_of(json.dumps({long: {long: [{long: {"x": 0}}]}})[:-5] + ',"x":1}}]}}')
    assert refusal.kind == "duplicate_key"
    assert len(refusal.path) < 402


def test_exact_integers_keep_their_digits_and_their_limit() -> None:
    assert canonical_text(
        parse_json("[9007199254740993]", max_bytes=MIB, exact_integers=True), exact_integers=True
    ) == ("[9007199254740993]")
    refusal = refusal_of('{"n":' + "9" * 5000 + "}", exact_integers=True)
    assert (refusal.kind, refusal.path) == ("integer_range", "n")
    assert hash_of(10**20, exact_integers=True) == hash_of(1e20, exact_integers=True)


class Colour(StrEnum):
    RED = "red"


class Whole(int):
    pass


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("make", "kind", "path"),
    [
        (lambda: {"a": [object()]}, "not_json", "a.0"),
        (lambda: {"a": {1: 2}}, "not_json", "a.1"),
        (lambda: {"a": b"x"}, "not_json", "a"),
        (lambda: {"a": {1, 2}}, "not_json", "a"),
        (lambda: [float("nan")], "not_finite", "0"),
        (lambda: [2**53], "integer_range", "0"),
        (lambda: {"a": [True, "\udc00"]}, "surrogate", "a.1"),
        (itself, "too_deep", ".".join("0" * MAX_DEPTH)),
    ],
)
def test_python_values_without_a_json_form(make: Callable[[], Any], kind: str, path: str) -> None:
    with pytest.raises(NotCanonical) as caught:
        canonical_bytes(make())
    assert (caught.value.kind, caught.value.path) == (kind, path)


def test_python_values_with_one() -> None:
    assert canonical_text((Colour.RED, Whole(7), True, 1.0, (None,))) == '["red",7,true,1,[null]]'


def test_the_library_and_we_agree() -> None:
    value: Any = {
        "\U0001f600": [1e21, 1e-7, -0.0, 0.1],
        "\ufb33": {"b": "\x00\x1f\x7f\u2028", "a": {}},
        "": [[], None, True],
    }
    assert canonical_bytes(value) == rfc8785.dumps(value)
