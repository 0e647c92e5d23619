"""One delivery after another of plan messages: what becomes of a planner's answer, whatever it is."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator.admission import validate_handoff
from schemas.dead_letter import DeadLetterKind
from schemas.plan import ExecutionPlan
from schemas.policy import Policy
from tests.support.plans import PLAN_ID
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, workbench
from workers.context import Context, PermanentError
from workers.plan_context import PlanContext, step
from workers.reports import GivenUp, Later, Nothing, Planned


class Order(BaseModel):
    order_id: str
    items: int


class Params(BaseModel):
    x: int = 1


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    made = workbench(redis_server.url, namespace, tmp_path, planner_attempts=2)

    @made.registry.action("act", effect="pure", attempts=7, timeout_s=12)
    def act(params: Params, ctx: Context) -> int:
        return params.x

    return made


def fulfilling(bench: Workbench) -> list[PlanContext]:
    """Declare a planner that makes one step an item; answers the contexts it was called with."""
    calls: list[PlanContext] = []

    @bench.registry.planner("orders.fulfil")
    def fulfil(order: Order, ctx: PlanContext) -> ExecutionPlan:
        calls.append(ctx)
        return ctx.plan(*(step("act", x=number, needs=[]) for number in range(order.items)))

    return calls


def plan_text(context_hash: str) -> str:
    """A plan of one step."""
    steps = [{"action": "act", "params": {"x": 9}}]
    return json.dumps({"plan_id": PLAN_ID, "context_hash": context_hash, "steps": steps})


def end_lease(run: Run) -> None:
    """The claim's time passes."""
    run.bench.clock.advance(16_000)


def test_a_planner_s_plan_becomes_steps_on_their_way(bench: Workbench) -> None:
    calls = fulfilling(bench)
    context = {"order_id": "o1", "items": 3}
    run = bench.submit(planner="orders.fulfil", context=context, goal="fulfil it", session_id="shop")
    assert run.plan() == Planned()
    (ctx,) = calls
    assert (ctx.goal, ctx.context, ctx.session_id, ctx.run_id) == ("fulfil it", context, "shop", run.ref.run_id)
    assert bench.outbox.chords == [(run.ref, 1, 3)]
    assert bench.outbox.sent() == ["s0", "s1", "s2"]
    stored = bench.ledger.plan(run.ref.run_id, 1)
    assert stored is not None
    assert (stored.plan_hash, stored.planner) == (run.state.plan_hash, "orders.fulfil")


def test_a_step_s_limits_are_fixed_when_it_is_admitted(bench: Workbench) -> None:
    run = bench.planned({"action": "act", "params": {}})
    assert run.step().max_attempts == 7
    assert run.step().queue == f"{bench.settings.namespace}.steps"
    (wave,) = bench.outbox.waves
    assert wave[0].limit_ms == 12_000


def test_a_message_delivered_again_plans_nothing_again(bench: Workbench) -> None:
    calls = fulfilling(bench)
    run = bench.submit(planner="orders.fulfil", context={"order_id": "o1", "items": 1})
    run.plan()
    assert run.plan() == Nothing("stored")
    assert len(calls) == 1
    assert bench.outbox.sent() == ["s0"]


def test_a_plan_the_ledger_has_is_not_asked_for_again(bench: Workbench) -> None:
    """The worker died between ledger and store: no second bill."""
    calls = fulfilling(bench)
    run = bench.submit(planner="orders.fulfil", context={"order_id": "o1", "items": 1})
    made = validate_handoff(
        plan_text(run.state.context_hash),
        catalogue=bench.registry.catalogue(),
        policy=Policy(),
        context_hash=run.state.context_hash,
    )
    bench.ledger.store_plan(run.ref.run_id, 1, made.plan_hash, made.plan_text, "orders.fulfil")
    run.plan()
    assert calls == []
    assert (run.state.status, run.state.plan_hash) == ("running", made.plan_hash)


def test_an_answer_the_door_refuses_ends_the_run_and_is_kept_whole(bench: Workbench) -> None:
    @bench.registry.planner("careless")
    def careless(ctx: PlanContext) -> str:
        return '{"plan": "do things"}'

    run = bench.submit(planner="careless")
    assert isinstance(run.plan(), GivenUp)
    assert run.state.status == "dead_lettered"
    assert bench.outbox.sent("settle") == [None]
    (letter,) = bench.letters
    assert letter.kind is DeadLetterKind.PLAN
    (attempt,) = letter.content["attempts"]
    assert attempt["raw"] == '{"plan": "do things"}'
    faults = attempt["errors"]
    assert {error["path"] for error in faults} >= {"plan_id", "steps"}
    told = {"kind": "payload_drift", "path": faults[0]["path"]}
    told["message"] = f"{faults[0]['message']} (and {len(faults) - 1} more faults)"
    assert (run.state.reason, json.loads(run.state.error_text or "{}")) == ("payload_drift", told)


def test_a_ready_plan_goes_through_the_same_door(bench: Workbench) -> None:
    run = bench.submit(plan='{"plan_id": 7}')
    assert isinstance(run.plan(), GivenUp)
    assert run.state.status == "dead_lettered"


def test_a_plan_for_another_context_is_refused(bench: Workbench) -> None:
    run = bench.submit(plan=plan_text("0" * 64))
    run.plan()
    assert [error["path"] for error in bench.letters[0].content["attempts"][0]["errors"]] == ["context_hash"]


def test_a_planner_that_raises_is_asked_again_and_then_given_up(bench: Workbench) -> None:
    @bench.registry.planner("broken")
    def broken(ctx: PlanContext) -> str:
        raise ConnectionError("the model does not answer")

    run = bench.submit(planner="broken")
    assert run.plan() == Later("ConnectionError: the model does not answer")
    assert run.state.status == "accepted"
    assert isinstance(run.plan(), Nothing)  # not due yet
    bench.clock.advance(60_000)
    assert isinstance(run.plan(), GivenUp)
    assert run.state.status == "failed"
    assert bench.letters == []
    assert bench.outbox.sent("settle") == [None]


def test_a_planner_may_refuse_a_goal_for_good(bench: Workbench) -> None:
    @bench.registry.planner("picky")
    def picky(ctx: PlanContext) -> str:
        raise PermanentError("nothing to do")

    run = bench.submit(planner="picky")
    assert run.plan() == GivenUp("nothing to do")
    assert run.state.status == "failed"


def test_a_context_that_does_not_fit_the_planner_is_named(bench: Workbench) -> None:
    fulfilling(bench)
    run = bench.submit(planner="orders.fulfil", context={"order_id": "o1", "items": "three"})
    assert isinstance(run.plan(), GivenUp)
    assert '"context.items"' in (run.state.error_text or "")


def test_an_unknown_planner_says_how_to_bring_it_in(bench: Workbench) -> None:
    run = bench.submit(planner="nobody")
    report = run.plan()
    assert isinstance(report, Later)
    assert "MANDOR_ACTIONS" in report.error


def test_a_planner_that_is_at_work_is_not_disturbed(bench: Workbench) -> None:
    inner: list[Any] = []

    @bench.registry.planner("slow")
    def slow(ctx: PlanContext) -> ExecutionPlan:
        inner.append(run.plan())
        return ctx.plan(step("act"))

    run = bench.submit(planner="slow")
    run.plan()
    assert inner == [Nothing("busy")]
    assert run.state.status == "running"


def test_a_planner_that_was_given_up_on_admits_nothing(bench: Workbench) -> None:
    """Frozen past its lease: another delivery takes over, and the plan that comes first stands."""
    calls: list[int] = []

    @bench.registry.planner("frozen")
    def frozen(ctx: PlanContext) -> ExecutionPlan:
        calls.append(len(calls))
        if len(calls) == 1:
            end_lease(run)
            run.plan()
        return ctx.plan(step("act", x=len(calls)))

    run = bench.submit(planner="frozen")
    report = run.plan()
    assert isinstance(report, Nothing)
    assert len(calls) == 2
    stored = bench.ledger.plan(run.ref.run_id, 1)
    assert stored is not None
    assert stored.plan_hash == run.state.plan_hash
    assert bench.outbox.sent() == ["s0"]
