"""Both adapters against a server on the loopback: what each answer, slowness and refusal becomes."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from orchestrator.settings import Settings
from tests.support.models import KEY, ModelServer, Refuses, Says, Turn, model_server
from workers.failures import message_of
from workers.outcomes import ProviderError
from workers.planners.llm import http
from workers.planners.llm.anthropic import has_open_object
from workers.planners.llm.configured import configured_model
from workers.planners.llm.protocol import (
    Call,
    Model,
    ModelMisconfigured,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
    Prompt,
)

CALL = Call(timeout_s=5, key="plan:r:1:0", max_tokens=50)
PROMPT = Prompt("be brief", "say hello")
CLOSED = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}, "additionalProperties": False}
DIALECTS = ["openai", "anthropic"]


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serve() -> Iterator[Callable[..., ModelServer]]:
    with ExitStack() as stack:
        yield lambda dialect, *script: stack.enter_context(model_server(dialect, *script))


def model_at(server: ModelServer, **settings: Any) -> Model:
    given = {"llm_provider": server.dialect, "llm_model": "stub", "llm_base_url": server.url, "llm_api_key": KEY}
    return configured_model(Settings(**(given | settings)))


def test_an_answer_comes_with_its_bill_and_its_reason(dialect: str, serve: Callable[..., ModelServer]) -> None:
    server = serve(dialect, Says("hello"))
    reply = model_at(server).write(PROMPT, CALL)
    assert (reply.text, reply.model, reply.tokens()) == ("hello", "stub-1", {"input": 11, "output": 7})
    assert reply.finish_reason in {"stop", "end_turn"}
    headers, body = server.requests[0]
    assert headers["idempotency-key"] == "plan:r:1:0"
    assert headers["accept-encoding"] == "identity"
    assert KEY in headers.get("authorization", headers.get("x-api-key", ""))
    assert (body["max_tokens"], body["model"]) == (50, "stub")
    assert "tools" not in body


def test_the_system_s_words_and_the_user_s_go_in_roles_of_their_own(
    dialect: str, serve: Callable[..., ModelServer]
) -> None:
    server = serve(dialect, Says("hello"))
    model_at(server).write(PROMPT, CALL)
    body = server.requests[0][1]
    messages = body["messages"] if dialect == "openai" else [{"role": "system", "content": body["system"]}]
    assert messages[0] == {"role": "system", "content": "be brief"}
    assert body["messages"][-1] == {"role": "user", "content": "say hello"}


def test_a_reason_other_than_the_end_is_handed_on(dialect: str, serve: Callable[..., ModelServer]) -> None:
    assert model_at(serve(dialect, Says("he", "length"))).write(PROMPT, CALL).finish_reason == "length"


@pytest.mark.parametrize("turn", [Says("late", wait_s=3), Says("late", drip_s=0.2)], ids=["silent", "dripping"])
def test_the_time_of_a_request_bounds_all_of_it(turn: Turn, dialect: str, serve: Callable[..., ModelServer]) -> None:
    server, started = serve(dialect, turn), time.monotonic()
    with pytest.raises(ModelTimeout):
        model_at(server).write(PROMPT, Call(0.6, "k", 10))
    assert time.monotonic() - started < 2.5
    assert len(server.requests) == 1


def test_nothing_is_tried_again_by_the_library(dialect: str, serve: Callable[..., ModelServer]) -> None:
    server = serve(dialect, Refuses(500))
    with pytest.raises(ModelUnavailable):
        model_at(server).write(PROMPT, CALL)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("turn", "expected", "wait_s"),
    [
        (Refuses(429, {"retry-after": "7"}), ModelRateLimited, 7.0),
        (Refuses(429), ModelRateLimited, 0.0),
        (Refuses(429, {"retry-after": "999999"}), ModelRateLimited, 3600.0),
        (Refuses(429, {"retry-after": "soon"}), ModelRateLimited, 0.0),
        (Refuses(429, {"retry-after": "-5"}), ModelRateLimited, 0.0),
        (Refuses(429, {"retry-after": "inf"}), ModelRateLimited, 0.0),
        (Refuses(503, {"retry-after": "2"}), ModelUnavailable, 2.0),
        (Refuses(529), ModelUnavailable, 0.0),
        (Refuses(500, body="<html>"), ModelUnavailable, 0.0),
        (Refuses(409), ModelUnavailable, 0.0),
        (Refuses(408), ModelTimeout, 0.0),
        (Refuses(200, body="<html>no json</html>"), ModelUnavailable, 0.0),
        (Refuses(200, body='{"choices": []}'), ModelUnavailable, 0.0),
        (Refuses(200, body="[" * 100_000), ModelUnavailable, 0.0),
        (Refuses(200, {"content-encoding": "gzip"}, body="x"), ModelUnavailable, 0.0),
        (Says("hello there", cut=True), ModelUnavailable, 0.0),
    ],
)
def test_what_passes_is_told_apart_from_what_stays(
    turn: Turn, expected: type[ProviderError], wait_s: float, dialect: str, serve: Callable[..., ModelServer]
) -> None:
    with pytest.raises(expected) as caught:
        model_at(serve(dialect, turn)).write(PROMPT, CALL)
    assert caught.value.retry_after_s == wait_s


@pytest.mark.parametrize(
    ("turn", "setting"),
    [
        (Refuses(400), "MANDOR_LLM_STRUCTURED"),
        (Refuses(401), "MANDOR_LLM_API_KEY"),
        (Refuses(403), "MANDOR_LLM_API_KEY"),
        (Refuses(404), "MANDOR_LLM_MODEL"),
        (Refuses(413), "MANDOR_GOAL_BYTES"),
        (Refuses(418), "MANDOR_LLM_"),
        (Refuses(308, {"location": "http://127.0.0.1:9/v1"}), "MANDOR_LLM_BASE_URL"),
        (Refuses(429, body='{"error": {"message": "pay", "code": "insufficient_quota"}}'), "MANDOR_LLM_API_KEY"),
    ],
)
def test_what_no_repetition_helps_names_the_setting(
    turn: Turn, setting: str, dialect: str, serve: Callable[..., ModelServer]
) -> None:
    server = serve(dialect, turn)
    with pytest.raises(ModelMisconfigured) as caught:
        model_at(server).write(PROMPT, CALL)
    assert setting in (caught.value.hint or "")
    assert len(server.requests) == 1


def test_a_date_to_come_back_at_is_understood() -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < http.retry_after_s(httpx2.Headers({"retry-after": at})) <= 60


def test_a_server_that_is_not_there_is_unavailable(dialect: str, serve: Callable[..., ModelServer]) -> None:
    server = serve(dialect, Says())
    with pytest.raises(ModelUnavailable, match="cannot be spoken to"):
        model_at(server, llm_base_url="http://127.0.0.1:9").write(PROMPT, CALL)


def test_an_answer_without_end_is_cut_off(
    dialect: str, serve: Callable[..., ModelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 1000)
    with pytest.raises(ModelUnavailable, match="1000 bytes"):
        model_at(serve(dialect, Says("x" * 2000))).write(PROMPT, CALL)


def test_a_server_that_shows_the_key_does_not_get_it_shown(dialect: str, serve: Callable[..., ModelServer]) -> None:
    said = json.dumps({"error": {"message": f"{'x' * 280} Incorrect key {KEY}\x1b[31m"}})
    with pytest.raises(ModelMisconfigured) as caught:
        model_at(serve(dialect, Refuses(401, body=said))).write(PROMPT, CALL)
    assert KEY[:12] not in message_of(caught.value)
    assert "\x1b" not in str(caught.value)


def test_the_key_stands_in_no_representation(dialect: str, serve: Callable[..., ModelServer]) -> None:
    server = serve(dialect, Says())
    assert KEY not in repr(model_at(server))
    assert KEY not in repr(Settings(llm_api_key=SecretStr(KEY)))


def test_a_schema_is_sent_where_the_server_takes_one(dialect: str, serve: Callable[..., ModelServer]) -> None:
    server = serve(dialect, Says("{}"))
    model_at(server).fill(PROMPT, CLOSED, CALL)
    body = server.requests[0][1]
    if dialect == "openai":
        assert body["response_format"]["json_schema"]["schema"] == CLOSED
    else:
        assert body["output_config"]["format"]["schema"]["properties"].keys() == {"a"}


def test_no_schema_is_sent_where_the_setting_says_no(dialect: str, serve: Callable[..., ModelServer]) -> None:
    server = serve(dialect, Says("{}"))
    model_at(server, llm_structured=False).fill(PROMPT, CLOSED, CALL)
    assert not {"response_format", "output_config"} & server.requests[0][1].keys()


def test_anthropic_gets_no_schema_with_open_objects(serve: Callable[..., ModelServer]) -> None:
    server = serve("anthropic", Says("{}"))
    model_at(server).fill(PROMPT, {"type": "object"}, CALL)
    assert "output_config" not in server.requests[0][1]


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        (CLOSED, False),
        ({}, True),
        ({"type": "array", "items": {"type": "object"}}, True),
        ({"$ref": "#/$defs/A", "$defs": {"A": CLOSED}}, False),
        ({"$ref": "#/$defs/A", "$defs": {"A": {}}}, True),
        ({"anyOf": [CLOSED, {"type": "object", "additionalProperties": True}]}, True),
    ],
)
def test_an_open_object_is_found_wherever_it_is(schema: dict[str, Any], is_open: bool) -> None:
    assert has_open_object(schema) is is_open


def test_a_forked_child_connects_anew(dialect: str, serve: Callable[..., ModelServer]) -> None:
    server = serve(dialect, Says("hello"))
    model = model_at(server)
    model.write(PROMPT, CALL)
    inherited = http.of_this_process("probe", os.getpid)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.write(writer, b"y" if http.of_this_process("probe", os.getpid) not in (inherited, None) else b"n")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1) == b"y"
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({}, "MANDOR_LLM_PROVIDER"),
        ({"llm_provider": "openai"}, "MANDOR_LLM_MODEL"),
        ({"llm_provider": "openai", "llm_model": "m"}, "MANDOR_LLM_API_KEY"),
    ],
)
def test_what_is_not_set_is_named(settings: dict[str, Any], hint: str) -> None:
    with pytest.raises(ModelMisconfigured) as caught:
        configured_model(Settings(**settings))
    assert hint in (caught.value.hint or "")


def test_a_key_that_no_header_carries_is_refused_at_once(dialect: str, serve: Callable[..., ModelServer]) -> None:
    server = serve(dialect, Says())
    with pytest.raises(ModelMisconfigured):
        model_at(server, llm_api_key="kéy\nwith lines").write(PROMPT, CALL)
    assert server.requests == []
