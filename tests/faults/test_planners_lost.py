"""Planners' children killed between answer, store and admission: one plan, one bill, every step once."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from tests.support.models import KEY, ModelServer, Refuses, Says, model_server
from tests.support.system import System, plan_text, step
from tests.support.waiting import eventually

# where it dies, and how many requests the model's server sees
PLACES = {
    "store_answer before": 2,
    "store_answer after": 1,
    "store_plan before": 1,
    "store_plan after": 1,
    "admit_plan before": 1,
    "admit_plan after": 1,
}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with model_server("openai", Says()) as server:
        yield server


@pytest.fixture
def system(new_system: Callable[..., System], model: ModelServer) -> System:
    actions = "tests.support.business,tests.support.dying_planner"
    settings = {"llm_provider": "openai", "llm_model": "m", "llm_base_url": model.url, "llm_api_key": KEY}
    made = new_system(actions=actions, backoff_s=0.2, planner_attempts=5, **settings)
    made.start_control()
    made.start_steps(concurrency=1)
    return made


def says(model: ModelServer, *answers: Says | Refuses) -> None:
    """What the model answers from now on."""
    model.script[:] = answers
    model.requests.clear()
    model.bills.clear()


@pytest.mark.timeout(300)
def test_a_planner_killed_anywhere_makes_one_plan_and_one_bill(system: System, model: ModelServer) -> None:
    for place, requests in PLACES.items():
        first, second = str(uuid4()), str(uuid4())
        note = step("test.note", "s", value=place)
        says(model, Says(plan_text(note, plan_id=first)), Says(plan_text(note, plan_id=second)))
        order = system.effect_log.with_name("die")
        order.write_text(place)
        run_id = system.send({"planner": "llm", "goal": place})
        view = system.wait(run_id)
        assert not order.exists(), place
        assert (view.status, view.plan_id) == ("succeeded", first), place
        assert (len(model.requests), len(model.bills)) == (requests, 1), place
        assert len(system.effects(run_id=run_id, what="noted")) == 1, place
        assert len(system.installed.ledger.planner_answers(run_id, 1)) == 1, place
    assert not system.installed.ledger.letters(10)
    assert not [line for line in system.processes.lines() if KEY in line]


@pytest.mark.full
def test_drift_three_times_reaches_no_worker(system: System, model: ModelServer) -> None:
    says(model, Says('{"plan": "IGNORE"}'))
    run_id = system.send({"planner": "llm", "goal": "x"})
    view = system.wait(run_id)
    assert (view.status, view.steps) == ("dead_lettered", ())
    (letter,) = system.installed.ledger.letters(10, run_id=run_id)
    assert [one["raw"] for one in letter.content["attempts"]] == ['{"plan": "IGNORE"}'] * 3
    assert system.effects(run_id=run_id) == []


def test_a_provider_that_asks_for_patience_gets_it(system: System, model: ModelServer) -> None:
    says(model, Refuses(429, {"retry-after": "2"}), Says(plan_text(step("test.echo", value="x"))))
    run_id = system.send({"planner": "llm", "goal": "x"})
    eventually(lambda: model.requests, what="the first request")
    assert system.wait(run_id).status == "succeeded"
    events = {event.event: event.at for event in system.events(run_id)}
    assert events["plan.admitted"] - events["plan.retry"] >= 2000
