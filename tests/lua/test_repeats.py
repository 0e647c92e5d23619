"""A call whose reply was lost is sent again by our client; the store answers the same, and moves nothing twice."""

from collections.abc import Iterator

import pytest

from orchestrator.errors import StoreUnavailable
from orchestrator.store.replies import Failed, RetryAt
from orchestrator.store.scripts import load
from schemas.states import Fact
from tests.support.calls import CALLS, running
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.stores import LEASE, Scene, clocked_store, new_step, ref_of

# a lost reply of these costs a wait, never a wrong move: take_due gives its members again after ten seconds,
# begin_pass leaves the shard to the next pass, a republished message is sent again by the next check
# snapshot and look_whole read; drain_ledger reads on from where the ledger is; a run that was built again is there,
# and what it would send is due; to drop, to mend, to begin with a shard or to open it once more changes nothing; a
# fresh run that is gone is as good as one that goes
READS_ON = {"snapshot", "look_whole", "drain_ledger", "restore_run", "drop_run", "mend_due", "begin_restore"}
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


def test_what_the_next_attempt_of_a_planner_says_is_no_repeat(scene: Scene) -> None:
    scene.accept().plan()
    first = scene.store.runs.fail_plan(scene.ref, scene.fences["plan"], "planner", "{}", True)
    assert isinstance(first, RetryAt)
    scene.clock.advance(60_000)
    scene.plan()
    assert isinstance(scene.store.runs.fail_plan(scene.ref, scene.fences["plan"], "planner", "{}", True), Failed)
