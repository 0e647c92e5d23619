"""The action model.ask: one question, one bill, and what a provider's failures make of the step."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.settings import Settings
from tests.support.models import KEY, ModelServer, Refuses, Says, Turn, model_server
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, workbench
from workers import testing
from workers.actions import models
from workers.actions.models import Ask, ModelAnswerUnusable, ask
from workers.outcomes import Snooze
from workers.planners.llm.protocol import ModelMisconfigured, ModelRateLimited, ModelTimeout, ModelUnavailable

QUESTION = {"action": "model.ask", "params": {"question": "How many?", "data": {"boxes": 3}}}


@pytest.fixture(params=["openai", "anthropic"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with model_server(request.param, Says("three")) as server:
        given = Settings(
            llm_provider=request.param,
            llm_model="m",
            llm_base_url=server.url,
            llm_api_key=KEY,  # type: ignore[arg-type]  # as the environment gives it
            llm_timeout_s=0.5,
        )
        monkeypatch.setattr(models, "settings", lambda: given)
        yield server


def asked(bench: Workbench) -> Run:
    bench.registry._actions["model.ask"] = ask
    return bench.planned(QUESTION)


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    return workbench(redis_server.url, namespace, tmp_path)


def test_a_step_s_answer_is_its_result(bench: Workbench, model: ModelServer) -> None:
    run = asked(bench)
    run.deliver()
    assert run.result() == {"text": "three", "model": "stub-1", "input_tokens": 11, "output_tokens": 7}
    headers, body = model.requests[0]
    assert headers["idempotency-key"] == f"idem:{run.ref.run_id}:s0:0"
    assert '{"boxes":3}' in str(body["messages"][-1]["content"])


def test_a_step_delivered_again_asks_nothing_again(bench: Workbench, model: ModelServer) -> None:
    run = asked(bench)
    run.deliver()
    run.deliver()
    assert len(model.requests) == 1


def test_another_attempt_shows_the_same_key(bench: Workbench, model: ModelServer) -> None:
    model.script[:] = [Says("three", cut=True), Says("four")]
    run = asked(bench)
    run.deliver()
    assert run.step().status == "backoff"
    run.wait_out_backoff()
    run.deliver()
    assert run.result()["text"] == "three"
    assert (len(model.requests), len(model.bills)) == (2, 1)


def outcome(turn: Turn, model: ModelServer) -> Any:
    model.script[:] = [turn]
    return ask(Ask(question="How many?"), testing.context())


@pytest.mark.parametrize(
    ("turn", "error"),
    [
        (Refuses(500), ModelUnavailable),
        (Refuses(429), ModelRateLimited),
        (Refuses(401), ModelMisconfigured),
        (Says("late", wait_s=1.5), ModelTimeout),
        (Says("thr", "length"), ModelAnswerUnusable),
        (Says("no", "refusal"), ModelAnswerUnusable),
    ],
)
def test_what_goes_wrong_is_an_error_of_its_kind(turn: Turn, error: type[Exception], model: ModelServer) -> None:
    with pytest.raises(error):
        outcome(turn, model)


def test_a_provider_s_wish_to_wait_does_not_cost_an_attempt(model: ModelServer) -> None:
    waits = outcome(Refuses(429, {"retry-after": "9"}), model)
    assert isinstance(waits, Snooze)
    assert waits.seconds == 9
