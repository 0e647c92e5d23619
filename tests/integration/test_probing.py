"""A lost attempt is asked about: what its action's probe says decides, as far as it can be believed."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator.store.replies import Ended, Granted
from orchestrator.supervisors.reclaim_stale_leases import reclaim_step
from schemas.states import EffectClass
from tests.support.installation import celery_app
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, narrowed, workbench
from workers import orphans
from workers.context import Context
from workers.reports import Done, GivenUp, Later, Nothing

PROBED = ("keyed", "once")


class Params(BaseModel):
    x: int = 1


class Charged(BaseModel):
    charge_id: str


FOUND = Charged(charge_id="c-1")
Ask = Callable[[Params, Context], Any]


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    made = workbench(redis_server.url, namespace, tmp_path)
    made.store.now_ms = lambda: made.clock.now  # type: ignore[method-assign]
    return made


def asked(bench: Workbench, effect: str, ask: Ask, act: Ask | None = None, **limits: Any) -> Run:
    """A run of one step whose action has a probe."""

    def charge(params: Params, ctx: Context) -> Charged:
        done: Charged = act(params, ctx) if act else Charged(charge_id=f"attempt-{ctx.attempt}")
        return done

    def find(params: Params, ctx: Context) -> Charged | None:
        found: Charged | None = ask(params, ctx)
        return found

    bench.registry.action("charge", effect=effect, **limits)(charge).probe(find)
    return bench.planned({"action": "charge", "params": {"x": 7}}, policy=narrowed(stop_grace_s=0.3))


def no_answer(*_: Any) -> Any:
    raise TimeoutError("no answer")


def lose(run: Run, *, dead: bool) -> Granted:
    """Claim and open, and be gone: seen dead by the parent, or only silent for longer than the lease."""
    guard, ledger = run.bench.store.guard, run.bench.ledger
    granted = guard.claim_step(run.ref, "s0", generation=1, claim_id="lost", worker="host:9:9")
    assert isinstance(granted, Granted)
    ledger.effects.open(run.ref.run_id, "s0", "do", granted.fence, granted.token, EffectClass(granted.effect))
    if dead:
        assert isinstance(guard.end_claim(run.ref, "s0", "host:9:9"), Ended)
    else:
        run.bench.clock.advance(60_000)
    return granted


Reclaim = Callable[[Run], list[str]]


@pytest.fixture
def reclaim(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[Reclaim]:
    """One look of the supervisor at the step; the kinds of messages it asks for."""
    with celery_app(redis_server.url, queue_prefix=f"{namespace}.", home=tmp_path) as app:

        def look(run: Run) -> list[str]:
            publish = reclaim_step(app, run.bench.store, run.bench.ledger, run.ref, "s0", 600_000) or ()
            run.bench.outbox.publish(publish)
            return [message.kind for message in publish]

        yield look


@pytest.mark.parametrize("effect", PROBED)
def test_an_attempt_that_raised_though_it_had_its_effect_is_completed(bench: Workbench, effect: str) -> None:
    seen: list[Context] = []

    def found(_: Params, ctx: Context) -> Charged:
        seen.append(ctx)
        return FOUND

    run = asked(bench, effect, found, no_answer)
    assert isinstance(run.deliver(), Done)
    assert (run.step().status, run.result()) == ("completed", {"charge_id": "c-1"})
    assert seen[0].idempotency_key == f"idem:{run.ref.run_id}:s0:0"


def test_where_what_a_child_has_started_may_live_on_nobody_says_that_it_had_no_effect(
    bench: Workbench, reclaim: Reclaim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other systems than Linux: a command of the dead child may be about to act."""
    monkeypatch.setattr(orphans, "END_WITH_CHILD", False)
    run = asked(bench, "once", lambda _params, _ctx: None)
    lose(run, dead=True)
    reclaim(run)
    run.close()
    assert run.step().status == "in_doubt"


def test_of_an_attempt_that_raised_nobody_says_that_it_had_no_effect(bench: Workbench) -> None:
    """Its process lives: what it has sent may still arrive."""
    run = asked(bench, "once", lambda _params, _ctx: None, no_answer)
    assert isinstance(run.deliver(), GivenUp)
    assert run.step().status == "in_doubt"


@pytest.mark.parametrize("effect", PROBED)
@pytest.mark.parametrize("dead", [True, False])
def test_a_lost_attempt_that_had_its_effect_is_completed(
    bench: Workbench, reclaim: Reclaim, effect: str, dead: bool
) -> None:
    run = asked(bench, effect, lambda params, _: Charged(charge_id=str(params.x)))
    lose(run, dead=dead)
    assert reclaim(run) == ["close"]
    assert run.step().status == "running"
    run.close()
    assert (run.step().status, run.result()) == ("completed", {"charge_id": "7"})
    assert run.step().attempt == 1
    assert isinstance(run.deliver(), Done)


@pytest.mark.parametrize("effect", PROBED)
def test_without_its_effect_and_proven_dead_it_is_run_again(bench: Workbench, effect: str) -> None:
    run = asked(bench, effect, lambda _params, _ctx: None, attempts=2)
    lose(run, dead=True)
    assert run.deliver() == Nothing("close_first")
    assert bench.outbox.sent("close") == ["s0"]
    run.close()
    assert run.step().status == "dispatched"
    assert isinstance(run.deliver(), Done)
    assert run.result() == {"charge_id": "attempt-2"}


def test_without_its_effect_but_perhaps_alive_it_stays_in_doubt(bench: Workbench, reclaim: Reclaim) -> None:
    run = asked(bench, "once", lambda _params, _ctx: None, attempts=2)
    lose(run, dead=False)
    reclaim(run)
    run.close()
    assert run.step().status == "in_doubt"


def test_what_an_earlier_attempt_has_under_way_is_not_answered_for(bench: Workbench) -> None:
    """Attempt 1 was on a host that is gone; attempt 2, with the same key, is proven dead: none is proven for both."""
    run = asked(bench, "keyed", lambda _params, _ctx: None, attempts=2)
    lose(run, dead=False)
    run.close()
    lose_again = bench.store.guard.claim_step(run.ref, "s0", generation=1, claim_id="2", worker="host:9:9")
    assert isinstance(lose_again, Granted)
    token = lose_again.token
    bench.ledger.effects.open(run.ref.run_id, "s0", "do", lose_again.fence, token, EffectClass.KEYED)
    bench.store.guard.end_claim(run.ref, "s0", "host:9:9")
    run.close()
    assert run.step().status == "in_doubt"


def raising(*_: Any) -> Any:
    raise LookupError("the bank is closed")


def no_result(*_: Any) -> Any:
    return {"something": "else"}


def reporting(_: Params, ctx: Context) -> Any:
    ctx.effect(None, 1)


@pytest.mark.parametrize("ask", [raising, no_result, reporting])
def test_a_probe_that_cannot_tell_leaves_the_doubt(bench: Workbench, ask: Ask) -> None:
    run = asked(bench, "once", ask)
    lose(run, dead=True)
    run.close()
    assert run.step().status == "in_doubt"


def test_a_probe_that_hangs_is_left_behind(bench: Workbench) -> None:
    let_go = threading.Event()
    run = asked(bench, "once", lambda _params, _ctx: let_go.wait(30), no_answer)
    assert isinstance(run.deliver(), GivenUp)
    let_go.set()
    assert run.step().status == "in_doubt"


def test_a_keyed_step_that_nobody_can_tell_of_is_tried_again(bench: Workbench) -> None:
    run = asked(bench, "keyed", raising, no_answer)
    assert isinstance(run.deliver(), Later)


def test_when_no_worker_answers_the_supervisor_decides(bench: Workbench, reclaim: Reclaim) -> None:
    run = asked(bench, "once", no_answer)
    lose(run, dead=False)
    assert reclaim(run) == ["close"]
    bench.clock.advance(600_000)
    assert "settle" in reclaim(run)
    assert run.step().status == "in_doubt"
    assert run.close() == Nothing("not_due")


def test_a_claim_that_is_kept_is_not_ended(bench: Workbench) -> None:
    run = asked(bench, "once", no_answer)
    granted = bench.store.guard.claim_step(run.ref, "s0", generation=1, claim_id="c", worker="host:9:9")
    assert isinstance(granted, Granted)
    assert run.close() == Nothing("not_due")
    assert run.step().holder == granted.fence


def test_a_worker_without_the_action_leaves_it_to_others(bench: Workbench) -> None:
    run = asked(bench, "once", lambda _params, _ctx: FOUND)
    lose(run, dead=True)
    actions, bench.registry._actions = bench.registry._actions, {}
    assert run.close() == Nothing("unknown_action")
    bench.registry._actions = actions
    run.close()
    assert run.step().status == "completed"


def test_what_has_not_begun_is_not_asked_about(bench: Workbench) -> None:
    """Dead between claim and open: nothing has happened, and nobody needs to ask."""
    run = asked(bench, "once", no_answer, attempts=2)
    guard = bench.store.guard
    granted = guard.claim_step(run.ref, "s0", generation=1, claim_id="lost", worker="host:9:9")
    assert isinstance(granted, Granted)
    guard.end_claim(run.ref, "s0", "host:9:9")
    assert isinstance(run.deliver(), Done)
    assert bench.outbox.sent("close") == []
