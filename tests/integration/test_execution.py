"""One delivery after another of real steps: what the store, the ledger and the chord are told."""

import threading
from asyncio import CancelledError
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import dead_letters
from orchestrator.admission import Referable
from orchestrator.errors import LedgerUnavailable
from orchestrator.ledger import open_ledger
from orchestrator.store.replies import Again, CloseFirst, Ended, Granted, NotLapsed
from orchestrator.telemetry import logs
from schemas.messages import ReceiptStatus
from schemas.policy import Quota
from schemas.states import EffectClass, Fact
from tests.support.servers import Server, sent_commands
from tests.support.workbench import Run, Workbench, narrowed, workbench
from workers import execution, stopping
from workers.context import AlreadyApplied, AttemptStopped, Context, NoEffect, PermanentError, Snooze
from workers.failures import SOFT_STOPS
from workers.reports import Done, GivenUp, Later, Nothing

Act = Callable[["Params", Context], Any]
ROWED = ("keyed", "once")
ALL = tuple(effect.value for effect in EffectClass)


class Params(BaseModel):
    x: Annotated[int, Referable] = 1


class Doubled(BaseModel):
    value: int


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    return workbench(redis_server.url, namespace, tmp_path)


def one_step(bench: Workbench, effect: str, act: Act, **limits: Any) -> Run:
    """A run of one step whose action is `act`."""
    bench.registry.action("act", effect=effect, **limits)(_function(act))
    return bench.planned({"action": "act", "params": {}})


def _function(act: Act) -> Any:
    def run(params: Params, ctx: Context) -> Any:
        return act(params, ctx)

    return run


def landing(act: Act) -> Act:
    """For transactional steps: `act`, its row in a transaction of the ledger."""

    def run(params: Params, ctx: Context) -> Any:
        with ctx.ledger().begin() as connection:
            result = act(params, ctx)
            ctx.effect(connection, result)
        return result

    return run


def lose_child(run: Run, step_id: str = "s0", worker: str = "host:9:9") -> Granted:
    """Claim the step as a child that then dies, and is seen dead by its parent."""
    guard = run.bench.store.guard
    granted = guard.claim_step(run.ref, step_id, generation=1, claim_id=f"lost-{worker}", worker=worker)
    assert isinstance(granted, Granted)
    assert isinstance(guard.end_claim(run.ref, step_id, worker), Ended)
    return granted


def row_of(run: Run, step_id: str = "s0") -> str:
    """The state of the step's effect row, looked at by a fence beyond all others."""
    token = run.step(step_id).token
    answer = run.bench.ledger.effects.open(run.ref.run_id, step_id, "do", 10**6, token, EffectClass.ONCE)
    return type(answer).__name__


def landed_and_started_over(bench: Workbench, effect: str) -> tuple[Run, list[int]]:
    """s1, built on what s0 answers, has landed; then s2 failed, and all begins anew with s0, which answers {} now."""
    answers, calls = [{"value": 21}, {}], list[int]()

    @bench.registry.action("look", effect="pure")
    def look(params: Params, ctx: Context) -> dict[str, int]:
        return answers.pop(0)

    def act(params: Params, ctx: Context) -> int:
        calls.append(params.x)
        return 2 * params.x

    def fail(params: Params, ctx: Context) -> None:
        raise PermanentError("no")

    bench.registry.action("act", effect=effect)(_function(landing(act) if effect == "transactional" else act))
    bench.registry.action("fail", effect="pure")(_function(fail))
    run = bench.planned(
        {"action": "look", "params": {}},
        {"action": "act", "params": {"x": {"$result": "s0", "path": "/value"}}},
        {"action": "fail", "params": {}},
        policy=narrowed(on_failure="stop"),
    )
    for step_id in ("s0", "s1", "s2"):
        run.deliver(step_id)
    run.settle()
    again = run.start_over("s0")
    assert isinstance(again.deliver("s0"), Done)
    return again, calls


# ---- it works


@pytest.mark.parametrize("effect", ALL)
def test_a_step_runs_once_and_a_copy_of_its_message_reports_it_again(bench: Workbench, effect: str) -> None:
    calls: list[int] = []

    def act(params: Params, ctx: Context) -> int:
        calls.append(ctx.attempt)
        return params.x + 1

    run = one_step(bench, effect, landing(act) if effect == "transactional" else act)
    first = run.deliver()
    assert isinstance(first, Done)
    assert first.receipt.status is ReceiptStatus.EXECUTED
    second = run.deliver()
    assert isinstance(second, Done)
    assert (second.receipt.status, second.receipt.fence) == (ReceiptStatus.CACHED, first.receipt.fence)
    assert calls == [1]
    assert run.result() == 2
    assert bench.outbox.sent("settle") == [None]
    if effect != "pure":
        assert row_of(run) == "AlreadyLanded"


def test_results_flow_along_the_plan(bench: Workbench) -> None:
    @bench.registry.action("double", effect="pure")
    def double(params: Params, ctx: Context) -> Doubled:
        return Doubled(value=2 * params.x)

    run = bench.planned(
        {"action": "double", "params": {"x": 21}},
        {"action": "double", "params": {"x": {"$result": "s0", "path": "/value"}}},
    )
    run.deliver("s0")
    assert bench.outbox.sent() == ["s0", "s1"]
    run.deliver("s1")
    assert run.result("s1") == {"value": 84}


@pytest.mark.parametrize("effect", ["transactional", *ROWED])
def test_what_landed_answers_for_itself_when_its_inputs_are_others(bench: Workbench, effect: str) -> None:
    run, calls = landed_and_started_over(bench, effect)
    assert isinstance(run.deliver("s1"), Done)
    assert (run.result("s1"), calls, run.state.status) == (42, [21], "running")


@pytest.mark.parametrize("effect", ["transactional", *ROWED])
def test_what_landed_answers_for_itself_where_no_worker_has_its_action(bench: Workbench, effect: str) -> None:
    run, calls = landed_and_started_over(bench, effect)
    bench.registry = type(bench.registry)()
    assert isinstance(run.deliver("s1"), Done)
    assert (run.result("s1"), calls, run.state.status) == (42, [21], "running")


def test_what_may_be_had_again_takes_its_inputs_as_they_are(bench: Workbench) -> None:
    run, calls = landed_and_started_over(bench, "idempotent")
    assert isinstance(run.deliver("s1"), GivenUp)
    assert (run.error("s1")["kind"], run.step("s1").status, calls) == ("step_input_invalid", "in_doubt", [21])


def test_a_result_that_is_not_there_fails_the_step_for_good_by_its_path(bench: Workbench) -> None:
    @bench.registry.action("double", effect="pure")
    def double(params: Params, ctx: Context) -> Doubled:
        return Doubled(value=2 * params.x)

    reference = {"$result": "s0", "path": "/nothing"}
    run = bench.planned({"action": "double", "params": {}}, {"action": "double", "params": {"x": reference}})
    run.deliver("s0")
    assert isinstance(run.deliver("s1"), GivenUp)
    assert run.error("s1")["path"] == "steps.1.params.x"
    assert run.step("s1").attempt == 1


def test_an_action_reads_results_of_what_it_waited_for_and_no_others(bench: Workbench) -> None:
    seen: dict[str, Any] = {}

    def act(params: Params, ctx: Context) -> int:
        for name in ("a", "b", "stranger"):
            try:
                seen[name] = ctx.result(name)
            except KeyError as unknown:
                seen[name] = str(unknown)
        return params.x

    bench.registry.action("act", effect="pure")(_function(act))
    bench.registry.action("one", effect="pure")(_function(lambda params, ctx: params.x))
    run = bench.planned(
        {"id": "a", "action": "one", "params": {"x": 10}, "needs": []},
        {"id": "stranger", "action": "one", "params": {"x": 5}, "needs": []},
        {"id": "b", "action": "one", "params": {"x": 20}, "needs": ["a"]},
        {"id": "c", "action": "act", "params": {}, "needs": ["b"]},
    )
    for name in ("a", "stranger", "b", "c"):
        run.deliver(name)
    assert (seen["a"], seen["b"]) == (10, 20)
    assert "does not need stranger" in seen["stranger"]


def test_an_action_is_told_who_it_is(bench: Workbench) -> None:
    seen: list[Context] = []
    run = one_step(bench, "keyed", lambda params, ctx: seen.append(ctx))
    run.deliver()
    (ctx,) = seen
    assert (ctx.run_id, ctx.step_id, ctx.attempt) == (run.ref.run_id, "s0", 1)
    assert ctx.fencing_token == run.step().fence
    assert ctx.idempotency_key == f"idem:{run.ref.run_id}:s0:0"
    assert ctx.session_id is None
    assert ctx.policy.max_steps == 1000


def test_a_step_costs_two_round_trips_to_the_store(bench: Workbench, redis_server: Server) -> None:
    run = one_step(bench, "pure", lambda params, ctx: None)
    with sent_commands(redis_server) as commands:
        run.deliver()
    assert commands == ["EVALSHA", "EVALSHA"]


def test_nothing_of_a_step_is_left_in_the_log_context(bench: Workbench) -> None:
    inside: list[Any] = []
    run = one_step(bench, "pure", lambda params, ctx: inside.append(logs.snapshot()))
    run.deliver()
    assert inside[0]["run_id"] == run.ref.run_id
    assert all(inside[0][name] is not None for name in logs.IDENTITY if name != "session_id")
    assert logs.snapshot() == {}


def test_fifty_copies_of_a_message_run_the_step_once(bench: Workbench) -> None:
    calls: list[int] = []
    run = one_step(bench, "once", lambda params, ctx: calls.append(ctx.attempt))
    with ThreadPoolExecutor(10) as pool:
        reports = list(pool.map(lambda _: run.deliver(), range(50)))
    assert calls == [1]
    executed = [one for one in reports if isinstance(one, Done) and one.receipt.status is ReceiptStatus.EXECUTED]
    assert len(executed) == 1
    assert all(isinstance(one, Done | Nothing) for one in reports)


# ---- it fails


@pytest.mark.parametrize("effect", ["pure", "idempotent", "keyed", "transactional"])
def test_a_failure_is_tried_again_as_often_as_policy_says(bench: Workbench, effect: str) -> None:
    keys: list[tuple[int, str]] = []

    def act(params: Params, ctx: Context) -> None:
        keys.append((ctx.attempt, ctx.idempotency_key))
        raise ValueError("no such card")

    run = one_step(bench, effect, landing(act) if effect == "transactional" else act, attempts=2)
    report = run.deliver()
    assert report == Later("ValueError: no such card")
    assert run.step().status == "backoff"
    run.wait_out_backoff()
    assert isinstance(run.deliver(), GivenUp)
    assert [attempt for attempt, _ in keys] == [1, 2]
    assert len({key for _, key in keys}) == 1
    # what may have been done is never called a plain failure
    assert run.step().status == ("in_doubt" if effect in ("idempotent", "keyed") else "failed")
    assert run.error() == {"kind": "step_error", "message": "ValueError: no such card", "path": None}
    assert run.state.status == "failing"
    assert bench.outbox.sent("settle") == [None]


def test_a_permanent_failure_is_final(bench: Workbench) -> None:
    def act(params: Params, ctx: Context) -> None:
        raise PermanentError("the card is closed")

    run = one_step(bench, "pure", act)
    assert run.deliver() == GivenUp("the card is closed")
    assert (run.step().status, run.error()["kind"]) == ("failed", "permanent")


def test_an_exception_of_a_once_step_is_never_proof_that_nothing_happened(bench: Workbench) -> None:
    def act(params: Params, ctx: Context) -> None:
        raise TimeoutError("no answer")

    run = one_step(bench, "once", act)
    assert isinstance(run.deliver(), GivenUp)
    assert run.step().status == "in_doubt"
    assert row_of(run) == "AlreadyOpen"


def test_no_effect_lets_even_a_once_step_be_tried_again(bench: Workbench) -> None:
    def act(params: Params, ctx: Context) -> str:
        if ctx.attempt == 1:
            raise NoEffect("the shop was closed")
        return "done"

    run = one_step(bench, "once", act)
    assert isinstance(run.deliver(), Later)
    run.wait_out_backoff()
    assert isinstance(run.deliver(), Done)
    assert run.result() == "done"


def test_no_effect_of_an_idempotent_step_is_a_plain_failure(bench: Workbench) -> None:
    def act(params: Params, ctx: Context) -> None:
        raise NoEffect("the shop was closed")

    run = one_step(bench, "idempotent", act, attempts=1)
    run.deliver()
    assert run.step().status == "failed"


@pytest.mark.parametrize("raised", [True, False])
def test_a_snooze_does_not_count(bench: Workbench, raised: bool) -> None:
    def act(params: Params, ctx: Context) -> Any:
        if raised:
            raise Snooze(30)
        return Snooze(30)

    run = one_step(bench, "pure", act, attempts=1)
    for _ in range(3):
        assert isinstance(run.deliver(), Later)
        assert (run.step().status, run.step().attempt) == ("backoff", 0)
        assert run.step().not_before - bench.clock.now == 30_000
        run.wait_out_backoff(ms=30_000)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), CancelledError()])
def test_what_would_end_the_process_is_a_failure_like_any_other(bench: Workbench, error: BaseException) -> None:
    def act(params: Params, ctx: Context) -> None:
        raise error

    run = one_step(bench, "pure", act)
    assert isinstance(run.deliver(), Later)
    assert type(error).__name__ in run.error()["message"]


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
def test_a_result_over_the_cap_fails_for_good_and_names_the_setting(bench: Workbench, effect: str) -> None:
    bench.registry.action("act", effect=effect)(_function(lambda params, ctx: "x" * 100))
    run = bench.planned({"action": "act", "params": {}}, policy=narrowed(result_bytes=50))
    assert isinstance(run.deliver(), GivenUp)
    assert "102 bytes" in run.error()["message"]
    assert "MANDOR_RESULT_BYTES" in run.error()["message"]
    assert run.result() is None


def test_a_result_over_its_actions_own_cap_fails_for_good(bench: Workbench) -> None:
    for name in ("act", "other"):
        bench.registry.action(name, effect="pure")(_function(lambda params, ctx: "x" * 100))
    steps: list[dict[str, Any]] = [{"action": name, "params": {}, "id": name, "needs": []} for name in ("act", "other")]
    run = bench.planned(*steps, policy=narrowed(quotas={"act": Quota(result_bytes=50)}))
    run.deliver("other")
    assert run.result("other") == "x" * 100
    assert isinstance(run.deliver("act"), GivenUp)
    assert "the limit is 50" in run.error("act")["message"]


def test_inputs_over_the_cap_fail_the_step(bench: Workbench) -> None:
    class Text(BaseModel):
        text: Annotated[str, Referable] = "x" * 200

    @bench.registry.action("copy", effect="pure")
    def copy(params: Text, ctx: Context) -> str:
        return params.text

    run = bench.planned(
        {"action": "copy", "params": {}},
        {"action": "copy", "params": {"text": {"$result": "s0", "path": ""}}},
        policy=narrowed(inputs_bytes=100),
    )
    run.deliver("s0")
    assert isinstance(run.deliver("s1"), GivenUp)
    assert run.error("s1")["kind"] == "inputs_too_large"
    assert bench.outbox.sent("settle") == [None]


def test_an_action_this_worker_lacks_is_left_to_others_and_then_given_up(bench: Workbench) -> None:
    run = one_step(bench, "pure", lambda params, ctx: None)
    bench.registry = type(bench.registry)()
    for _ in range(4):
        assert isinstance(run.deliver(), Later)
        assert run.step().attempt == 0
        run.wait_out_backoff(ms=3_000)
    assert bench.letters == []
    bench.clock.advance(600_000)
    assert isinstance(run.deliver(), GivenUp)
    (letter,) = bench.letters
    assert letter.reason == "no worker supports act"
    assert run.error()["kind"] == "unknown_action"
    assert (run.state.status, bench.outbox.sent("settle")) == ("failing", [None])


@pytest.mark.parametrize("on_doubt", ["end", "wait"])
def test_a_step_in_doubt_that_no_worker_has_is_a_letter_too(bench: Workbench, on_doubt: str) -> None:
    def act(params: Params, ctx: Context) -> None:
        raise ValueError("no answer")

    bench.registry.action("act", effect="keyed", attempts=3)(_function(act))
    run = bench.planned({"action": "act", "params": {}}, policy=narrowed(on_doubt=on_doubt))
    assert isinstance(run.deliver(), Later)
    bench.registry = type(bench.registry)()
    for expected in (Later, Later, Later, GivenUp):
        run.wait_out_backoff(ms=600_000)
        assert bench.letters == []
        assert isinstance(run.deliver(), expected)
    assert run.step().status == "in_doubt"
    assert [letter.reason for letter in bench.letters] == ["no worker supports act"]


def test_a_doubt_that_is_cut_off_where_a_worker_lacked_its_action_is_no_such_letter(bench: Workbench) -> None:
    def act(params: Params, ctx: Context) -> None:
        raise ValueError("no answer")

    run = one_step(bench, "keyed", act, attempts=3)
    run.deliver()
    run.wait_out_backoff()
    find_action = bench.registry.find_action

    def cancelled_meanwhile(name: str) -> Any:
        bench.store.runs.cancel(run.ref, 1)
        return type(bench.registry)().find_action(name)

    bench.registry.find_action = cancelled_meanwhile  # type: ignore[method-assign]
    run.deliver()
    bench.registry.find_action = find_action  # type: ignore[method-assign]
    assert (run.step().status, run.error()["kind"]) == ("in_doubt", "unknown_action")
    assert bench.letters == []


# ---- transactions


def test_what_was_committed_before_a_failure_stands(bench: Workbench) -> None:
    def act(params: Params, ctx: Context) -> str:
        with ctx.ledger().begin() as connection:
            ctx.effect(connection, "first")
        raise ConnectionError("the answer was lost")

    run = one_step(bench, "transactional", act)
    report = run.deliver()
    assert isinstance(report, Done)
    assert (run.step().status, run.result()) == ("completed", "first")


def test_a_second_attempt_finds_the_first_ones_result(bench: Workbench) -> None:
    calls: list[int] = []

    def act(params: Params, ctx: Context) -> str:
        calls.append(ctx.attempt)
        return "second"

    run = one_step(bench, "transactional", landing(act))
    lost = lose_child(run)
    bench.ledger.effects.land(run.ref.run_id, "s0", "do", lost.fence, lost.token, '"first"')
    report = run.deliver()
    assert isinstance(report, Done)
    assert (run.result(), calls) == ("first", [])


def test_two_transactions_of_one_step_cannot_both_commit(bench: Workbench) -> None:
    raised: list[BaseException] = []

    def act(params: Params, ctx: Context) -> str:
        with ctx.ledger().begin() as connection:
            ctx.effect(connection, "first")
        try:
            with ctx.ledger().begin() as connection:
                ctx.effect(connection, "again")
        except AlreadyApplied as applied:
            raised.append(applied)
            raise
        return "never"

    run = one_step(bench, "transactional", act)
    assert isinstance(run.deliver(), Done)
    assert run.result() == "first"
    assert len(raised) == 1


def test_a_transactional_action_must_report_its_effect(bench: Workbench) -> None:
    run = one_step(bench, "transactional", lambda params, ctx: "done")
    assert isinstance(run.deliver(), GivenUp)
    assert run.error()["kind"] == "effect_not_reported"


def test_only_transactional_actions_have_a_transaction(bench: Workbench) -> None:
    run = one_step(bench, "pure", lambda params, ctx: ctx.effect(None, 1))
    assert isinstance(run.deliver(), GivenUp)
    assert "transactional" in run.error()["message"]


# ---- somebody else took over


def take_over(run: Run) -> None:
    """What a supervisor does to a claim that lapsed, and another worker then: the step is completed by other hands."""
    bench, step = run.bench, run.step()
    bench.clock.advance(step.lease_end - bench.clock.now + 1)
    bench.ledger.effects.close(run.ref.run_id, step.id, "do", step.fence)
    verdict = bench.store.guard.expire_lease(run.ref, step.id, step.fence, Fact.NONE)
    assert not isinstance(verdict, NotLapsed)


@pytest.mark.parametrize("effect", ALL)
def test_a_holder_that_was_replaced_commits_nothing(bench: Workbench, effect: str) -> None:
    run_of: list[Run] = []

    def act(params: Params, ctx: Context) -> str:
        take_over(run_of[0])
        return "old"

    run = one_step(bench, effect, landing_after(act) if effect == "transactional" else act)
    run_of.append(run)
    assert isinstance(run.deliver(), Nothing)
    assert run.result() is None
    assert run.step().status in ("ready", "dispatched")
    late = [letter.reason for letter in bench.letters]
    assert late == (["late_effect"] if effect in ROWED else [])


def landing_after(act: Act) -> Act:
    def run(params: Params, ctx: Context) -> Any:
        result = act(params, ctx)
        with ctx.ledger().begin() as connection:
            ctx.effect(connection, result)
        return result

    return run


@pytest.mark.parametrize("effect", ["keyed", "once"])
def test_a_holder_that_was_replaced_before_it_began_does_nothing(bench: Workbench, effect: str) -> None:
    """Frozen between claim and open: the row is closed to it."""
    calls: list[int] = []
    run = one_step(bench, effect, lambda params, ctx: calls.append(1))
    find = bench.registry.find_action

    def frozen(name: str) -> Any:
        take_over(run)
        return find(name)

    bench.registry.find_action = frozen  # type: ignore[method-assign]
    assert isinstance(run.deliver(), Nothing)
    assert calls == []


# ---- a child that died


def test_a_lost_childs_step_runs_again_at_once(bench: Workbench) -> None:
    for effect in ("pure", "idempotent", "keyed", "transactional"):
        act: Act = lambda params, ctx: ctx.attempt  # noqa: E731
        bench.registry.action(effect, effect=effect)(_function(landing(act) if effect == "transactional" else act))
        run = bench.planned({"action": effect, "params": {}}, name=effect)
        lose_child(run)
        assert isinstance(run.deliver(), Done), effect
        assert run.result() == 2


def test_a_once_step_whose_child_died_after_open_is_in_doubt(bench: Workbench) -> None:
    run = one_step(bench, "once", lambda params, ctx: None)
    lost = lose_child(run)
    bench.ledger.effects.open(run.ref.run_id, "s0", "do", lost.fence, lost.token, EffectClass.ONCE)
    assert isinstance(run.deliver(), GivenUp)
    assert (run.step().status, run.state.status) == ("in_doubt", "failing")
    assert bench.outbox.sent("settle") == [None]


def test_a_once_step_whose_child_died_before_open_runs(bench: Workbench) -> None:
    run = one_step(bench, "once", lambda params, ctx: "done")
    lose_child(run)
    assert isinstance(run.deliver(), Done)


@pytest.mark.parametrize("effect", ["pure", "keyed"])
def test_a_step_that_kills_every_worker_ends_with_a_letter(bench: Workbench, effect: str) -> None:
    run = one_step(bench, effect, lambda params, ctx: None, attempts=2)
    lose_child(run, worker="host:1:1")
    guard = bench.store.guard
    answer = guard.claim_step(run.ref, "s0", generation=1, claim_id="second", worker="host:2:2")
    if isinstance(answer, CloseFirst):
        bench.ledger.effects.close(run.ref.run_id, "s0", "do", answer.fence)
        assert isinstance(guard.expire_lease(run.ref, "s0", answer.fence, Fact.NONE), Again)
        answer = guard.claim_step(run.ref, "s0", generation=1, claim_id="second", worker="host:2:2")
    assert isinstance(answer, Granted)
    assert isinstance(guard.end_claim(run.ref, "s0", "host:2:2"), Ended)
    assert isinstance(run.deliver(), GivenUp | Nothing)
    assert run.step().status == "failed"
    (letter,) = bench.letters
    assert letter.reason == "retry_exhausted"
    assert bench.outbox.sent("settle") == [None]


@pytest.mark.parametrize("effect", ["pure", "keyed"])
def test_the_last_lost_claim_ends_also_where_its_letter_does_not_come_through(bench: Workbench, effect: str) -> None:
    """The end of the run, which the ledger is told, waits for it."""

    def no_letter(_: Any) -> str:
        raise LedgerUnavailable("the ledger does not take it")

    run = one_step(bench, effect, lambda params, ctx: None, attempts=1)
    lose_child(run)
    report = execution.run_step(run.message("s0"), replace(bench.services, write_letter=no_letter))
    assert (run.step().status, run.state.status, bench.letters) == ("failed", "failing", [])
    assert isinstance(report, GivenUp)
    (owed,) = dead_letters.exhaustions(bench.store.views, run.ref, run.step())
    assert (owed.generation, owed.reason) == (1, "retry_exhausted")


# ---- stopping


def test_a_cancelled_run_stops_its_actions(bench: Workbench) -> None:
    def act(params: Params, ctx: Context) -> None:
        bench.store.runs.cancel(run.ref, 1)
        until_stopped(ctx)

    run = one_step(bench, "pure", act, lease_s=0.3)
    assert isinstance(run.deliver(), Nothing)
    assert run.step().status == "skipped"


def until_stopped(ctx: Context) -> None:
    """Work that asks whether it should go on."""
    for _ in range(2000):
        ctx.check()
        threading.Event().wait(0.01)
    raise AssertionError("nobody stopped it")


def test_an_attempt_over_its_time_is_stopped_and_tried_again(bench: Workbench) -> None:
    run = one_step(bench, "pure", lambda params, ctx: until_stopped(ctx), timeout_s=0.2)
    assert isinstance(run.deliver(), Later)
    assert run.error()["kind"] == "step_timeout"


def test_an_action_that_swallows_the_stop_still_commits(bench: Workbench) -> None:
    def act(params: Params, ctx: Context) -> str:
        try:
            until_stopped(ctx)
        except AttemptStopped:
            return "made it"
        return "never"

    run = one_step(bench, "keyed", act, timeout_s=0.2)
    assert isinstance(run.deliver(), Done)
    assert run.result() == "made it"


def test_a_step_is_handed_back_at_five_stops_and_not_at_the_sixth(bench: Workbench) -> None:
    """Whatever it does, it outlasts no worker: that is its own fault then, and not counted it would go on for ever."""

    def act(params: Params, ctx: Context) -> None:
        stopping.announce()
        until_stopped(ctx)

    run = one_step(bench, "pure", act)
    try:
        for _ in range(SOFT_STOPS):
            assert isinstance(run.deliver(), Later)
            assert (run.step().status, run.step().attempt) == ("backoff", 0)
            stopping.take_back()
            run.wait_out_backoff(ms=1_000)
        assert isinstance(run.deliver(), GivenUp)
    finally:
        stopping.take_back()
    assert (run.step().status, run.error()["kind"]) == ("failed", "worker_stopping")


# ---- the ledger is away


def deliver_without_ledger(run: Run) -> Any:
    away = open_ledger("sqlite:////nowhere/ledger.db")
    return execution.run_step(run.message("s0"), replace(run.bench.services, ledger=away))


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
def test_without_the_ledger_harmless_steps_go_on(bench: Workbench, effect: str) -> None:
    run = one_step(bench, effect, lambda params, ctx: "done")
    assert isinstance(deliver_without_ledger(run), Done)
    assert run.result() == "done"


@pytest.mark.parametrize("effect", ["transactional", "keyed", "once"])
def test_without_the_ledger_other_steps_wait_uncounted(bench: Workbench, effect: str) -> None:
    calls: list[int] = []

    def act(params: Params, ctx: Context) -> str:
        calls.append(ctx.attempt)
        return "done"

    run = one_step(bench, effect, landing(act) if effect == "transactional" else act)
    assert isinstance(deliver_without_ledger(run), Later)
    assert (calls, run.step().attempt, run.step().status) == ([], 0, "backoff")
    run.wait_out_backoff(ms=6_000)
    assert isinstance(run.deliver(), Done)
    assert calls == [1]


def test_without_the_ledger_a_dead_claim_stays_for_the_supervisors(bench: Workbench) -> None:
    run = one_step(bench, "keyed", lambda params, ctx: None)
    lose_child(run)
    assert isinstance(deliver_without_ledger(run), Nothing)
    assert run.step().dead
