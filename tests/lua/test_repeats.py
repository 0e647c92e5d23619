"""A call whose reply was lost is sent again by our client; the store answers the same, and moves nothing twice."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.errors import StoreUnavailable
from orchestrator.ledger.losses import STRIDE
from orchestrator.store.new import NewPlan
from orchestrator.store.restoring import Place
from orchestrator.store.scripts import load
from schemas.states import Fact
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.stores import LEASE, Scene, clocked_store, new_run, new_step, ref_of

PLAN = NewPlan("plan", "e" * 64, 1, 1000, (new_step("x", 0), new_step("y", 1), new_step("z", 2, "x")))

Act = Callable[[Scene], Any]


def nothing(scene: Scene) -> None:
    """No preparation."""


def accepted(scene: Scene) -> None:
    scene.accept()


def planning(scene: Scene) -> None:
    scene.accept().plan()


def dispatched(scene: Scene) -> None:
    steps = (new_step("x", 0), new_step("y", 1, "x"), new_step("z", 2, "x"))
    scene.accept().admit(*steps, max_parallel=1)


def referring(scene: Scene) -> None:
    """A step that refers to more than a claim may carry."""
    scene.accept().admit(new_step("w", 0), new_step("x", 1, "w", refs=("w",)), inputs_bytes=1)
    scene.claim("w")
    scene.complete("w")


def running(scene: Scene) -> None:
    dispatched(scene)
    scene.claim("x")


def lapsed(scene: Scene) -> None:
    running(scene)
    scene.clock.advance(LEASE + 1)


def backing_off(scene: Scene) -> None:
    running(scene)
    scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.NONE, "{}", True)
    scene.clock.advance(60_000)


def completed(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0))
    scene.claim("x")
    scene.complete("x")


def settled(scene: Scene) -> None:
    completed(scene)
    scene.store.runs.settle(scene.ref, 1)


def overdue(scene: Scene) -> None:
    dispatched(scene)
    scene.clock.advance(3_600_001)


def owing(scene: Scene) -> None:
    """x has had an effect, y has failed for good, nothing runs."""
    scene.accept().admit(new_step("w", 0, effect="keyed"), new_step("x", 1, "w", effect="keyed"), new_step("y", 2, "x"))
    for step_id in ("w", "x"):
        scene.claim(step_id)
        scene.complete(step_id)
    scene.claim("y")
    scene.store.guard.fail_step(scene.ref, "y", scene.fences["y"], "claim-y", Fact.NONE, "{}", False)


def undoing(scene: Scene) -> None:
    owing(scene)
    scene.store.runs.settle(scene.ref, 1)


def undo_claimed(scene: Scene) -> None:
    undoing(scene)
    scene.claim_undo("x")


def fail_undo(scene: Scene, retryable: bool) -> Any:
    claim = (scene.ref, "x", scene.fences["x"], "undo-x")
    return scene.store.guard.fail_undo(*claim, Fact.NONE, "{}", retryable=retryable)


def ended(scene: Scene, name: str, *args: Any) -> Any:
    return getattr(scene.store.guard, name)(scene.ref, "x", scene.fences["x"], "claim-x", *args)


def needs_approval(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0, approval=True), new_step("y", 1, "x"))


def doubtful(scene: Scene) -> None:
    """x is in doubt, and its run waits for a person."""
    scene.accept(on_doubt="wait").admit(new_step("x", 0, effect="once"), new_step("y", 1, "x"))
    scene.claim("x")
    scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.MAYBE, "{}", True)


def nobody_answered(scene: Scene) -> None:
    doubtful(scene)
    scene.clock.advance(86_400_000)


def paused(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0), new_step("y", 1), max_parallel=1)
    scene.store.runs.pause(scene.ref, 1, "ann")
    scene.claim("x")


def failed(scene: Scene) -> None:
    scene.accept(on_failure="stop").admit(new_step("x", 0), new_step("y", 1, "x"))
    scene.claim("x")
    ended(scene, "fail_step", Fact.NONE, "{}", False)
    scene.store.runs.settle(scene.ref, 1)


def accept_run(scene: Scene) -> bool:
    return scene.store.restoring.accept_run(scene.ref, Place(scene.store.scripts.server(), ""), STRIDE, 0)


CALLS: dict[str, tuple[Act, Act]] = {
    "create_run": (nothing, lambda s: s.store.runs.create_run(s.ref, new_run())),
    "claim_plan": (accepted, lambda s: s.store.runs.claim_plan(s.ref, 1, "planner", "host:1:1")),
    "admit_plan": (planning, lambda s: s.store.runs.admit_plan(s.ref, s.fences["plan"], "planner", PLAN)),
    "reject_plan": (planning, lambda s: s.store.runs.reject_plan(s.ref, s.fences["plan"], "planner", "drift")),
    "fail_plan": (planning, lambda s: s.store.runs.fail_plan(s.ref, s.fences["plan"], "planner", "{}", True)),
    "fail_plan for good": (planning, lambda s: s.store.runs.fail_plan(s.ref, s.fences["plan"], "planner", "{}", False)),
    "claim_step": (dispatched, lambda s: s.claim("x")),
    "claim_step inputs too large": (referring, lambda s: s.claim("x")),
    "renew_lease": (running, lambda s: s.store.guard.renew_lease(s.ref, "x", s.fences["x"], "claim-x")),
    "complete_step": (running, lambda s: s.complete("x")),
    "fail_step": (running, lambda s: ended(s, "fail_step", Fact.NONE, "{}", True)),
    "fail_step for good": (running, lambda s: ended(s, "fail_step", Fact.NONE, "{}", False)),
    "fail_step landed": (running, lambda s: ended(s, "fail_step", Fact.LANDED, "{}", True, '{"was":"landed"}')),
    "hand_back": (running, lambda s: ended(s, "hand_back", Fact.NONE, "snooze", 1000, 5, 0, "{}")),
    "end_claim": (running, lambda s: s.store.guard.end_claim(s.ref, "x", "host:2:2")),
    "expire_lease": (lapsed, lambda s: s.store.guard.expire_lease(s.ref, "x", s.fences["x"], Fact.NONE)),
    "settle, and undo": (owing, lambda s: s.store.runs.settle(s.ref, 1)),
    "claim_undo": (undoing, lambda s: s.claim_undo("x")),
    "complete_undo": (undo_claimed, lambda s: s.store.guard.complete_undo(s.ref, "x", s.fences["x"], "undo-x")),
    "fail_undo": (undo_claimed, lambda s: fail_undo(s, retryable=True)),
    "fail_undo for good": (undo_claimed, lambda s: fail_undo(s, retryable=False)),
    "expire_undo": (undo_claimed, lambda s: s.store.guard.expire_undo(s.ref, "x", s.fences["x"], Fact.NONE)),
    "settle": (completed, lambda s: s.store.runs.settle(s.ref, 1)),
    "confirm_end": (settled, lambda s: s.store.runs.confirm_end(s.ref, 1)),
    "cancel": (running, lambda s: s.store.runs.cancel(s.ref, 1)),
    "cancel early": (accepted, lambda s: s.store.runs.cancel(s.ref, 1)),
    "deadline": (overdue, lambda s: s.store.runs.deadline(s.ref)),
    "pause": (dispatched, lambda s: s.store.runs.pause(s.ref, 1, "ann")),
    "resume": (paused, lambda s: s.store.runs.resume(s.ref, 1, "ann")),
    "approve": (needs_approval, lambda s: s.store.runs.approve(s.ref, "x", 1, "ann", allowed=True)),
    "approve, refused": (needs_approval, lambda s: s.store.runs.approve(s.ref, "x", 1, "ann", allowed=False)),
    "resolve": (doubtful, lambda s: s.store.runs.resolve(s.ref, "x", s.fences["x"], 1, "ann", landed=True)),
    "resolve, not landed": (
        doubtful,
        lambda s: s.store.runs.resolve(s.ref, "x", s.fences["x"], 1, "ann", landed=False),
    ),
    "wait_over": (nobody_answered, lambda s: s.store.runs.wait_over(s.ref, "x")),
    "retry": (failed, lambda s: s.store.runs.retry(s.ref, 1, "ann", 3_600_000)),
    "retry_due": (backing_off, lambda s: s.store.runs.retry_due(s.ref, "x")),
    "accept_run": (running, accept_run),
}
# a lost reply of these costs a wait, never a wrong move: take_due gives its members again after ten seconds,
# begin_pass leaves the shard to the next pass, a republished message is sent again by the next check
# snapshot reads; drain_ledger reads on from where the ledger is; a run that was built again is there, and what it would
# send is due; to drop, to mend, to begin with a shard or to open it once more changes nothing; a fresh run that
# is gone is as good as one that goes
READS_ON = {"snapshot", "drain_ledger", "restore_run", "drop_run", "mend_due", "begin_restore"}
READS_ON |= {"open_shard", "forget_fresh"}
BY_DESIGN = {"take_due", "begin_pass", "check_dispatch", "expire_plan", *READS_ON}


def fence_of(scene: Scene) -> int:
    state = scene.store.views.run(scene.ref)
    return state.fence if state else 0


@pytest.fixture
def proxy(redis_server: Server) -> Iterator[Proxy]:
    with Proxy(redis_server.url) as proxy:
        yield proxy


def test_no_script_is_left_out() -> None:
    assert {name.split()[0].rstrip(",") for name in CALLS} | BY_DESIGN == set(load())


@pytest.mark.parametrize("name", CALLS)
def test_a_repeat_answers_what_was_answered(name: str, redis_server: Server, namespace: str, proxy: Proxy) -> None:
    prepare, call = CALLS[name]
    direct, clock = clocked_store(redis_server.url, namespace)
    first = Scene(direct, clock, ref_of("repeat", "first"))
    prepare(first)
    expected = call(first)

    through, clock = clocked_store(proxy.url, namespace)
    second = Scene(through, clock, ref_of("repeat", "second"))
    prepare(second)
    proxy.swallow()
    answer = call(second)
    assert proxy.swallowed == 1
    assert repr(answer).replace(second.ref.run_id, first.ref.run_id).replace(
        second.ref.session, first.ref.session
    ) == repr(expected)
    assert second.version == first.version
    assert fence_of(second) == fence_of(first)
    assert [e.event for e in through.views.events(second.ref)] == [e.event for e in direct.views.events(first.ref)]


def test_a_server_that_never_answers_is_named(proxy: Proxy, redis_server: Server, namespace: str) -> None:
    store, clock = clocked_store(proxy.url, namespace)
    scene = Scene(store, clock, ref_of("away")).accept()
    proxy.swallow(100)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        scene.plan()


def test_a_first_reply_lost_for_good_leaves_one_grant(proxy: Proxy, redis_server: Server, namespace: str) -> None:
    """The claim was granted to somebody who never heard of it: nobody else gets it until its lease has been ended."""
    store, clock = clocked_store(proxy.url, namespace)
    running(Scene(store, clock, ref_of("before")))  # the server has the script: what it refuses to know is not run
    scene = Scene(store, clock, ref_of("lost")).accept().admit(new_step("x", 0))
    proxy.swallow(100)
    with pytest.raises(StoreUnavailable):
        scene.claim("x")
    proxy.swallow(0)
    assert type(scene.claim("x", "another")).__name__ == "Busy"
    clock.advance(LEASE + 1)
    fence = store.views.step(scene.ref, "x").fence  # type: ignore[union-attr]
    assert type(store.guard.expire_lease(scene.ref, "x", fence, Fact.NONE)).__name__ == "Again"
    assert scene.claim("x", "another").attempt == 2
