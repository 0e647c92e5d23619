import json
import time
from typing import Any

import pytest

from orchestrator.telemetry.text import (
    LONGEST,
    WHOLE,
    hide,
    hide_names,
    is_secret_name,
    printable,
    redacted,
    without_hidden,
    without_secrets,
)

DEEP = {"user": "ann", "clientSecret": "hunter2"}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202egpj", "abc\\u202egpj"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\ud800", "\\ud800"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("Grüße, 注文 🙂", "Grüße, 注文 🙂"),
    ],
)
def test_what_could_move_a_cursor_or_hide_is_written_as_its_escape(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@pytest.mark.parametrize("name", ["password", "DB_PASSWORD", "apiKey", "x-token", "Authorization", "client_secret"])
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["step_token", "fencing_token", "tokens", "idempotency_key", "lock_key", "monkey", "secretary"]
)
def test_names_that_only_look_secret(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "redis://:hunter2@host:6379/0",
        "postgresql+psycopg://mandor:hunter2@db/mandor",
        "redis://user:p@hunter2@host/0",
        "connect failed: password=hunter2, retrying",
        '{"api_key": "hunter2 and more"}',
        "Authorization: Bearer hunter2hunter2",
        "sent Bearer hunter2hunter2",
        "access_token=hunter2&x=1",
        "AWS_SECRET_ACCESS_KEY=hunter2",
        "DB_MASTER_PASSWORD: hunter2",
        "mysql --password=hunter2 -u ann",
        "curl --api-key='hunter2'",
        "x -token=hunter2",
        "message: x_api_key = hunter2",
        repr(DEEP),
        repr(str(DEEP)),
        json.dumps(json.dumps(json.dumps(DEEP))),
        '{"password": "quoted \\" hunter2", "x": 1}',
        '{"password": "cut before its end, hunter2',
        "tokens of {'token': ['x', 'hunter2']}",
    ],
)
def test_secrets_in_running_text_are_hidden(text: str) -> None:
    assert "hunter2" not in without_secrets(text)
    assert "***" in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://host:8080/a@b",
        "step:1:2:abc",
        "12:30:01 done",
        "secretary=3",
        "step_token=step:1:2:abc",
        '{"max_tokens": 12, "message": "a=b"}',
        "{mandor:3}:lock:run:5658445f:step:charge",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


def test_secrets_deep_inside_a_value_are_hidden_by_their_key() -> None:
    value = {"outer": [{"apiKey": "hunter2", "plain": 1}], "token": None}
    assert redacted(value) == {"outer": [{"apiKey": "***", "plain": 1}], "token": None}


def test_names_that_an_operator_adds_are_hidden_like_any_other() -> None:
    assert redacted({"iban": "DE00"}) == {"iban": "DE00"}
    hide_names({"iban"})
    assert redacted({"iban": "DE00", "said": "its IBAN=DE00 and"}) == {"iban": "***", "said": "its IBAN=*** and"}
    hide_names({"card"})
    assert redacted({"iban": "DE00", "card": 7}) == {"iban": "DE00", "card": "***"}


def test_what_is_hidden_by_its_own_words_is_hidden_where_no_shape_is() -> None:
    hide("a-word-of-this-test")
    assert without_hidden("say a-word-of-this-test, password=x") == "say ***, password=x"


def test_long_and_deep_values_are_folded() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    assert str(redacted(deep)).count("[") < 10
    assert len(redacted("x" * 1_000_000)) < LONGEST + 50
    assert redacted([["x" * 1_000_000]], 2, WHOLE) == [["x" * 1_000_000]]


def test_hostile_text_costs_linear_time() -> None:
    started = time.perf_counter()
    for part in ("password=", "://a:", "bearer ", "://", "'", '"password":"', "token:[", "a-", 'token=\\"', "x= "):
        without_secrets(part * 100_000)
    assert time.perf_counter() - started < 5
