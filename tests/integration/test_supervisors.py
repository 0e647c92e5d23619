"""Each supervisor on a real store and a real ledger, with the store's clock in the test's hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery

from orchestrator import dead_letters, dispatch, progress
from orchestrator.errors import LedgerUnavailable, StoreMoved, StoreUnavailable
from orchestrator.ledger import Closed, Ledger
from orchestrator.settings import Settings, settings
from orchestrator.store.replies import Committed, Fenced, Settled
from orchestrator.supervisors import (
    enforce_deadlines,
    reclaim_stale_leases,
    redispatch_lost_steps,
    retry_due_steps,
    settle_runs,
    trigger_compensation,
)
from orchestrator.supervisors.passes import Counts, each_shard
from orchestrator.telemetry import events, facts, signals
from orchestrator.telemetry.logs import identity
from schemas.states import EffectClass, Fact, RunStatus
from tests.support.installation import celery_app
from tests.support.ledgers import fresh_ledger, run_named
from tests.support.servers import Server
from tests.support.stores import CHECK, LEASE, Scene, clocked_store, name_in, new_step, ref_of

SWEEP = 2000


class World(Scene):
    """A run, and the supervisors over it."""

    app: Celery
    ledger: Ledger
    settings: Settings
    server: Server
    queue: str

    def step(self, name: str, index: int, *needs: str, **changes: Any) -> Any:
        return new_step(name, index, *needs, queue=self.queue, **changes)

    def started(self, *steps: Any, **changes: Any) -> "World":
        """Accepted, admitted; nothing published."""
        self.accept(**changes).admit(*steps)
        return self

    def reclaim(self) -> Counts:
        return reclaim_stale_leases.run_once(self.app, self.store, self.ledger, self.settings)

    def redispatch(self) -> Counts:
        return redispatch_lost_steps.run_once(self.app, self.store, self.settings)

    def retry(self) -> Counts:
        return retry_due_steps.run_once(self.app, self.store, self.settings)

    def deadlines(self) -> Counts:
        return enforce_deadlines.run_once(self.app, self.store, self.settings)

    def settle(self) -> Counts:
        with identity():
            return settle_runs.run_once(self.app, self.store, self.ledger, self.settings)

    def compensate(self) -> Counts:
        with identity():
            return trigger_compensation.run_once(self.app, self.store, self.ledger, self.settings)

    def depth(self) -> int:
        return dispatch.queue_depth(self.app, self.queue)

    def lapse(self) -> None:
        """Passes go by, with nobody renewing, until a lease is over."""
        for _ in range(LEASE // SWEEP + 1):
            self.clock.advance(SWEEP)
            self.reclaim()

    def lapse_unseen(self) -> None:
        """A lease is over, and the pass that will see it has not been."""
        for _ in range(LEASE // SWEEP):
            self.clock.advance(SWEEP)
            self.reclaim()
        self.clock.advance(SWEEP)


@pytest.fixture
def world(redis_server: Server, namespace: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """In one shard; a test's parameter may say of how many the run's is the last."""
    shards = getattr(request, "param", 1)
    store, clock = clocked_store(redis_server.url, namespace, shards)
    with celery_app(redis_server.url, queue_prefix=f"{namespace}.", home=tmp_path) as app:
        name = name_in(store, shards - 1)
        made = World(store, clock, ref_of(name))
        made.app, made.server, made.settings = app, redis_server, settings()
        made.queue = f"{namespace}.steps"
        made.ledger = fresh_ledger(tmp_path)
        made.ledger.accept(run_named(name, namespace=namespace))
        made.reclaim()
        yield made
        store.close()


# ---- leases


@pytest.mark.parametrize("effect", ["pure", "idempotent", "keyed", "transactional"])
def test_a_lapsed_claim_is_closed_and_dispatched_again(world: World, effect: str) -> None:
    world.started(world.step("a", 0, effect=effect))
    first = world.claim("a")
    world.lapse()
    assert world.status("a") == "dispatched"
    assert world.depth() == 1
    assert isinstance(world.complete("a"), Fenced)
    if effect != "pure":
        late = world.ledger.effects.land(world.ref.run_id, "a", "do", first.fence, first.token, "{}")
        assert isinstance(late, Closed)


def test_a_claim_that_is_renewed_is_left_alone(world: World) -> None:
    world.started(world.step("a", 0, effect="keyed"))
    granted = world.claim("a")
    for _ in range(20):
        world.clock.advance(SWEEP)
        world.store.guard.renew_lease(world.ref, "a", granted.fence, "claim-a")
        world.reclaim()
    assert world.status("a") == "running"
    assert isinstance(world.complete("a"), Committed)


def test_an_effect_that_landed_completes_its_step(world: World) -> None:
    world.started(world.step("a", 0, effect="keyed"), world.step("b", 1, "a"))
    granted = world.claim("a")
    rows, names = world.ledger.effects, (world.ref.run_id, "a", "do", granted.fence, granted.token)
    rows.open(world.ref.run_id, "a", "do", granted.fence, granted.token, EffectClass.KEYED)
    rows.land(*names, '{"charge_id":"c1"}')  # type: ignore[arg-type]
    world.lapse()
    assert world.status("a") == "completed"
    assert world.store.views.result(world.ref, "a") == '{"charge_id":"c1"}'
    assert (world.status("b"), world.depth()) == ("dispatched", 1)


def test_a_once_effect_that_was_opened_stays_in_doubt(world: World) -> None:
    world.started(world.step("a", 0, effect="once"))
    granted = world.claim("a")
    world.ledger.effects.open(world.ref.run_id, "a", "do", granted.fence, granted.token, EffectClass.ONCE)
    world.lapse()
    assert world.status("a") == "in_doubt"
    assert world.depth() == 0


def test_a_step_that_kills_its_workers_fails(world: World) -> None:
    world.started(world.step("a", 0, effect="pure", max_attempts=2))
    for attempt in (1, 2):
        assert world.claim("a", f"claim-{attempt}").attempt == attempt
        world.lapse()
    assert world.status("a") == "failed"
    assert world.run_status == "failing"


EFFECTS = ["pure", "idempotent", "keyed", "once", "transactional"]


@pytest.mark.parametrize(("effect", "holder"), [("pure", "renews"), *((effect, "commits") for effect in EFFECTS)])
def test_a_holder_that_comes_back_behind_the_lapse_of_its_last_lease_leaves_no_letter(
    world: World, monkeypatch: pytest.MonkeyPatch, effect: str, holder: str
) -> None:
    world.started(world.step("a", 0, effect=effect, max_attempts=1))
    granted = world.claim("a")
    world.lapse_unseen()
    expire = world.store.guard.expire_lease

    def behind_it(*given: Any) -> Any:
        if holder == "commits":
            assert isinstance(world.complete("a"), Committed)
        else:
            world.store.guard.renew_lease(world.ref, "a", granted.fence, "claim-a")
        return expire(*given)

    monkeypatch.setattr(world.store.guard, "expire_lease", behind_it)
    assert world.reclaim().moved == 0
    if holder == "renews":
        assert isinstance(world.complete("a"), Committed)
    world.clock.advance(SWEEP)
    world.settle()
    assert (world.run_status, world.ledger.letters(10)) == ("succeeded", [])


def test_a_planner_that_comes_back_behind_the_lapse_of_its_last_lease_leaves_no_letter(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = world.accept(tries=1).plan().fence
    world.lapse_unseen()
    expire = world.store.runs.expire_plan

    def behind_it(ref: Any) -> Any:
        world.store.guard.renew_lease(world.ref, None, fence, "planner")
        return expire(ref)

    monkeypatch.setattr(world.store.runs, "expire_plan", behind_it)
    assert world.reclaim().moved == 0
    assert (world.run_status, world.ledger.letters(10)) == ("planning", [])


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("lost", ["its writer", "the ledger"])
def test_a_letter_about_a_step_that_was_not_written_is_owed_by_the_end_of_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch, effect: str, lost: str
) -> None:
    world.started(world.step("a", 0, effect=effect, max_attempts=1), on_failure="stop")
    granted = world.claim("a")
    if lost == "its writer":
        world.clock.advance(LEASE + 1)
        world.store.guard.expire_lease(world.ref, "a", granted.fence, Fact.NONE)
    else:
        with monkeypatch.context() as broken:
            broken.setattr(world.ledger, "write_letter", raising(LedgerUnavailable("gone")))
            world.lapse()
    assert (world.run_status, world.ledger.letters(10)) == ("failing", [])
    world.clock.advance(SWEEP)
    world.settle()
    assert world.run_status == "failed"
    (letter,) = world.ledger.letters(10)
    assert (letter.step_id, letter.reason, letter.content["action"]) == ("a", "retry_exhausted", "demo")


@pytest.mark.parametrize("lost", ["its writer", "the ledger"])
def test_a_letter_about_a_planner_that_was_not_written_is_owed_by_the_end_of_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    world.accept(tries=1).plan()
    if lost == "its writer":
        world.clock.advance(LEASE + 1)
        world.store.runs.expire_plan(world.ref)
    else:
        with monkeypatch.context() as broken:
            broken.setattr(world.ledger, "write_letter", raising(LedgerUnavailable("gone")))
            world.lapse()
    assert (world.run_status, world.ledger.letters(10)) == ("failed", [])
    world.settle()
    (letter,) = world.ledger.letters(10)
    assert (letter.kind, letter.reason, letter.content["workers_lost"]) == ("plan", "retry_exhausted", 1)


def test_a_planner_that_died_is_asked_again(world: World) -> None:
    world.accept().plan()
    world.lapse()
    assert world.run_status == "accepted"
    assert dispatch.queue_depth(world.app, "mandor.plan") >= 1
    world.server.client.delete("mandor.plan")


@pytest.mark.parametrize("error", [LedgerUnavailable("gone"), ValueError("a row that nobody thought of")])
def test_what_one_member_is_met_with_leaves_its_claim_and_the_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    world.started(world.step("a", 0, effect="keyed"), world.step("b", 1, effect="pure"))
    world.claim("a")
    world.claim("b")
    world.lapse_unseen()
    with monkeypatch.context() as broken:
        broken.setattr(world.ledger.effects, "close", raising(error))
        counts = world.reclaim()
    assert (counts.taken, counts.moved, counts.failed) == (2, 1, 1)
    assert (world.status("a"), world.status("b")) == ("running", "dispatched")
    for _ in range(5):
        world.clock.advance(SWEEP)
        world.reclaim()
    assert world.status("a") == "dispatched"


def test_a_ledger_that_is_away_is_told_of_once_a_pass(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.started(*(world.step(f"s{i}", i, effect="keyed") for i in range(5)))
    for i in range(5):
        world.claim(f"s{i}")
    world.lapse_unseen()
    monkeypatch.setattr(world.ledger.effects, "close", raising(LedgerUnavailable("gone")))
    with identity(), caplog.at_level("ERROR"):
        assert world.reclaim().failed == 5
    assert len(caplog.records) == 1


def test_the_store_away_ends_the_pass_and_nothing_is_reaped_on_old_suspicion(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.started(world.step("a", 0, effect="keyed"))
    granted = world.claim("a")
    for _ in range(2):
        world.lapse_unseen()
        with monkeypatch.context() as broken:
            broken.setattr(world.store.guard, "expire_lease", raising(StoreUnavailable("gone")))
            assert world.reclaim().failed == 1
        world.store.guard.renew_lease(world.ref, "a", granted.fence, "claim-a")
    for _ in range(4):
        world.clock.advance(SWEEP)
        assert world.reclaim().moved == 0
    assert world.status("a") == "running"


def test_a_shard_that_moves_meanwhile_is_left_as_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.started(world.step("a", 0), world.step("b", 1))
    world.claim("a")
    world.claim("b")
    world.lapse_unseen()
    monkeypatch.setattr(world.store.guard, "expire_lease", raising(StoreMoved("another server")))
    assert world.reclaim() == Counts(failed=1)
    assert (world.status("a"), world.status("b")) == ("running", "running")


def forget_shard(world: World) -> None:
    names = world.server.client.keys(world.store.keys.prefix(0) + "*")
    world.server.client.delete(*names)


def move_shard(world: World) -> None:
    world.server.client.set(world.store.keys.prefix(0) + "server", "the one before")


def spoil_shard(world: World) -> None:
    """What lies under the supervisors' keys is none of ours."""
    for duty in ("leases", "deadlines", "undos"):
        world.server.client.set(world.store.keys.due(0, duty), "spoilt")


@pytest.mark.parametrize("world", [2], indirect=True)
@pytest.mark.parametrize("shut", [forget_shard, move_shard, spoil_shard])
def test_a_shard_that_is_shut_is_nobody_elses_trouble(world: World, shut: Callable[[World], None]) -> None:
    """The run is in a shard behind it: its claim is ended, its deadline comes, it is closed."""
    world.started(world.step("a", 0))
    world.claim("a")
    world.lapse_unseen()
    shut(world)
    counts = world.reclaim()
    assert (counts.moved, counts.failed, world.status("a")) == (1, 1, "dispatched")
    world.clock.advance(3_600_000)
    assert (world.deadlines().failed, world.run_status) == (1, "failing")
    world.clock.advance(SWEEP)
    assert world.compensate().failed == 1
    row = world.ledger.run(world.ref.run_id)
    assert row is not None
    assert row.ended_at is not None


def test_many_shards_that_meet_the_same_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    def look(shard: int) -> Counts:
        if shard < 3:
            raise StoreMoved("another server")
        return Counts(taken=1)

    with identity(), caplog.at_level("ERROR"):
        counts = each_shard("somebody", range(5), look)
    assert counts == Counts(taken=2, failed=3)
    assert len(caplog.records) == 1


def test_after_an_outage_holders_renew_first(world: World) -> None:
    world.started(world.step("a", 0))
    granted = world.claim("a")
    world.clock.advance(10 * LEASE)  # nobody ran: neither holders nor passes
    assert world.reclaim().resting == 1
    world.store.guard.renew_lease(world.ref, "a", granted.fence, "claim-a")
    world.clock.advance(SWEEP)
    world.reclaim()
    assert world.status("a") == "running"


# ---- messages


def test_a_lost_message_is_sent_again(world: World) -> None:
    world.started(world.step("a", 0))
    world.clock.advance(CHECK)
    counts = world.redispatch()
    assert (counts.moved, counts.sent, world.depth()) == (1, 1, 1)
    assert world.claim("a").attempt == 1


def test_a_backlog_is_no_loss(world: World) -> None:
    """1,000 steps wait, nobody works, and supervisors sweep for eleven minutes."""
    steps = [world.step(f"s{i}", i) for i in range(1000)]
    world.accept()
    admitted = world.store.runs.admit_plan(world.ref, world.plan().fence, "planner", plan_of(steps))
    dispatch.publish(world.app, admitted.publish)  # type: ignore[union-attr]
    assert world.depth() == 1000
    for _ in range(330):
        world.clock.advance(SWEEP)
        world.redispatch()
    # five checks pass (10, 20, 40, 80, 160 s and their jitter); the sixth sends once more in any case
    assert 1000 <= world.depth() <= 2000


def test_a_queue_is_asked_once_a_pass(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.started(*(world.step(f"s{i}", i) for i in range(50)))
    asked: list[str] = []

    def depth(_: Celery, queue: str) -> int:
        asked.append(queue)
        return 0

    monkeypatch.setattr(dispatch, "queue_depth", depth)
    world.clock.advance(CHECK)
    assert world.redispatch().sent == 50
    assert asked == [world.queue]


def test_while_the_broker_is_away_nothing_is_called_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.started(world.step("a", 0))
    world.clock.advance(CHECK)
    monkeypatch.setattr(dispatch, "queue_depth", raising(ConnectionRefusedError()))
    counts = world.redispatch()
    assert (counts.moved, counts.sent) == (0, 0)
    monkeypatch.undo()
    world.clock.advance(2 * CHECK + CHECK)
    assert world.redispatch().sent == 1


def test_what_could_not_be_sent_stays_due(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.started(world.step("a", 0))
    world.clock.advance(CHECK)
    with monkeypatch.context() as broken:
        broken.setattr(dispatch, "_send_all", raising(ConnectionRefusedError()))
        counts = world.redispatch()
    assert (counts.moved, counts.sent) == (1, 0)
    world.clock.advance(4 * CHECK)
    assert world.redispatch().sent == 1


# ---- waits, deadlines, ends


def test_a_wait_that_is_over_is_sent(world: World) -> None:
    world.started(world.step("a", 0))
    granted = world.claim("a")
    world.store.guard.fail_step(world.ref, "a", granted.fence, "claim-a", Fact.NONE, "{}", True)
    assert world.retry().moved == 0
    world.clock.advance(2000)
    counts = world.retry()
    assert (counts.moved, counts.sent, world.status("a")) == (1, 1, "dispatched")


def test_two_beats_do_a_thing_once(world: World) -> None:
    world.started(*(world.step(f"s{i}", i) for i in range(10)))
    world.clock.advance(CHECK)
    first, second = world.redispatch(), world.redispatch()
    assert (first.sent, second.sent) == (10, 0)
    assert second.skipped == 1
    assert world.depth() == 10


def test_a_deadline_skips_what_waits_and_ends_the_run(world: World) -> None:
    world.started(world.step("a", 0), world.step("b", 1, "a"), deadline_ms=60_000)
    world.clock.advance(60_000)
    assert world.deadlines().moved == 1
    assert (world.run_status, world.status("b")) == ("failing", "skipped")
    world.clock.advance(SWEEP)
    assert (world.settle().taken, world.compensate().moved) == (0, 1)
    row = world.ledger.run(world.ref.run_id)
    assert row is not None
    assert (row.status, row.reason) == (RunStatus.FAILED, "deadline")


# ---- undoing


def failing(world: World, effect: str = "keyed", **changes: Any) -> None:
    """a has had its effect, b has failed; nobody has heard of it yet."""
    world.started(world.step("a", 0, effect=effect), world.step("b", 1, "a"), **changes)
    world.claim("a")
    world.complete("a")
    world.claim("b")
    world.store.guard.fail_step(world.ref, "b", world.fences["b"], "claim-b", Fact.NONE, "{}", retryable=False)
    world.clock.advance(SWEEP)


def test_a_failing_run_whose_settle_messages_were_lost_is_undone(world: World) -> None:
    failing(world)
    assert world.settle().taken == 0
    assert world.compensate().moved == 1
    assert (world.run_status, world.status("a"), world.depth()) == ("compensating", "compensating", 1)
    row = world.ledger.run(world.ref.run_id)
    assert row is not None
    assert (row.status, row.ended_at) == (RunStatus.COMPENSATING, None)
    assert world.store.admin.live_runs(0) == (world.ref,)  # a server that is accepted again must move its fences
    world.clock.advance(20_000)
    assert world.compensate().taken == 0
    world.undo("a")
    world.clock.advance(SWEEP)
    assert world.settle().moved == 1
    ended = world.ledger.run(world.ref.run_id)
    assert ended is not None
    assert (ended.status, ended.reason) == (RunStatus.COMPENSATED, "step_failed:b")


def test_nothing_is_undone_before_the_ledger_knows_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(world)
    with monkeypatch.context() as away:
        away.setattr(world.ledger, "start_undoing", raising(LedgerUnavailable("away")))
        assert world.compensate().failed == 1
    assert world.run_status == "failing"
    world.clock.advance(20_000)
    assert world.compensate().moved == 1


def test_a_failing_run_that_is_not_to_be_undone_is_closed(world: World) -> None:
    failing(world, on_failure="stop")
    assert world.compensate().taken == 0
    assert world.settle().moved == 1
    assert world.run_status == "failed"


def test_a_lost_message_of_an_undo_is_sent_again(world: World) -> None:
    failing(world)
    world.compensate()
    world.server.client.delete(world.queue)
    world.clock.advance(CHECK)
    assert world.redispatch().sent == 1
    assert world.depth() == 1


def begun_to_undo(world: World, effect: str = "keyed", **changes: Any) -> Any:
    failing(world, effect, **changes)
    world.compensate()
    return world.claim_undo("a").step


@pytest.mark.parametrize("effect", ["idempotent", "transactional", "keyed"])
def test_a_lapsed_undo_is_closed_and_sent_again(world: World, effect: str) -> None:
    first = begun_to_undo(world, effect)
    world.lapse()
    assert (world.status("a"), world.depth()) == ("compensating", 2)
    effects, run_id = world.ledger.effects, world.ref.run_id
    assert isinstance(effects.land(run_id, "a", "undo", first.fence, first.token, "null"), Closed)
    assert isinstance(world.store.guard.complete_undo(world.ref, "a", first.fence, "undo-a"), Fenced)
    assert world.claim_undo("a", "again").step.attempt == 2


def test_an_undo_that_is_kept_is_left_alone(world: World) -> None:
    granted = begun_to_undo(world)
    for _ in range(LEASE // SWEEP + 2):
        world.clock.advance(SWEEP)
        world.store.guard.renew_lease(world.ref, "a", granted.fence, "undo-a", "undo")
        world.reclaim()
    assert isinstance(world.store.guard.complete_undo(world.ref, "a", granted.fence, "undo-a"), Committed)


def test_an_undo_that_landed_before_its_worker_was_lost_is_done(world: World) -> None:
    granted = begun_to_undo(world)
    world.ledger.effects.land(world.ref.run_id, "a", "undo", granted.fence, granted.token, "null")
    world.lapse()
    assert world.status("a") == "compensated"
    assert world.ledger.letters(10) == []


def test_an_undo_lost_for_good_is_a_letter(world: World) -> None:
    granted = begun_to_undo(world, "once")
    effects = world.ledger.effects
    effects.open(world.ref.run_id, "a", "undo", granted.fence, granted.token, EffectClass.ONCE)
    world.lapse()
    assert world.status("a") == "compensation_failed"
    (letter,) = world.ledger.letters(10)
    assert (letter.kind, letter.step_id, letter.content["error"]["kind"]) == ("undo", "a", "worker_lost")
    world.clock.advance(SWEEP)
    world.settle()
    assert world.run_status == "compensation_failed"
    assert len(world.ledger.letters(10)) == 1


def test_a_letter_that_was_not_written_is_owed_by_the_end_of_the_run(world: World) -> None:
    """The worker that heard that the undo was given up died before it could write."""
    granted = begun_to_undo(world)
    claim = (world.ref, "a", granted.fence, "undo-a")
    world.store.guard.fail_undo(*claim, Fact.NONE, '{"kind":"permanent","message":"gone","path":null}', retryable=False)
    world.clock.advance(SWEEP)
    assert world.settle().moved == 1
    (letter,) = world.ledger.letters(10)
    assert letter.reason == "a (demo, keyed) could not be undone: gone"


def test_a_letter_that_is_written_again_is_told_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[events.Occurrence] = []
    monkeypatch.setattr(facts, "_listeners", [heard.append])
    ids = {
        dead_letters.about_step(world.app, world.ledger, world.ref, "a", 1, "retry_exhausted", {"try": number})
        for number in range(2)
    }
    (letter_id,) = ids
    assert [fact for fact in heard if isinstance(fact, events.LetterWritten)] == [
        events.LetterWritten("step", letter_id)
    ]


def finish(world: World) -> None:
    world.started(world.step("a", 0))
    world.claim("a")
    assert isinstance(world.complete("a"), Committed)
    world.clock.advance(SWEEP)


def test_a_run_whose_settle_messages_were_lost_is_settled(world: World) -> None:
    finish(world)
    assert world.settle().moved == 1
    row = world.ledger.run(world.ref.run_id)
    assert row is not None
    assert (row.status, world.run_status) == (RunStatus.SUCCEEDED, "succeeded")
    world.clock.advance(20_000)
    assert world.settle().taken == 0


@pytest.mark.parametrize("place", ["end_run", "confirm_end", "close_chord"])
def test_settling_ends_wherever_it_was_cut_off(world: World, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    finish(world)
    heard: list[events.Occurrence] = []
    monkeypatch.setattr(facts, "_listeners", [heard.append])
    pretend_a_second_commit(world)
    owner: Any = {"end_run": world.ledger, "confirm_end": world.store.runs, "close_chord": dispatch}[place]
    with monkeypatch.context() as broken, identity():
        broken.setattr(owner, place, raising(Crash()))
        with pytest.raises(Crash):
            progress.settle(world.app, world.store, world.ledger, world.ref, 1)
    world.clock.advance(20_000)
    world.settle()
    row = world.ledger.run(world.ref.run_id)
    assert row is not None
    assert row.status == RunStatus.SUCCEEDED
    state = world.store.keys.state(world.ref)
    assert world.server.client.pttl(state) <= 86_400_000
    world.clock.advance(20_000)
    assert world.settle().taken == 0
    with identity():
        assert isinstance(progress.settle(world.app, world.store, world.ledger, world.ref, 1), Settled)
    told = [fact for fact in heard if isinstance(fact, events.RunSettled | signals.CommittedTwice)]
    assert told == [events.RunSettled("succeeded", ""), signals.CommittedTwice("a", 1)]


def pretend_a_second_commit(world: World) -> None:
    """In the run's history."""
    store, state = world.store, world.store.views.run(world.ref)
    assert state is not None
    fields = ("event", "step.committed", "version", state.version + 1, "at", 1, "steps", "a=completed/1/9")
    store.scripts.tell("XADD", store.keys.part(world.ref, "events"), "*", *fields)
    store.scripts.tell("HSET", store.keys.state(world.ref), "version", state.version + 1)


def test_a_run_the_store_forgot_leaves_the_sweep(world: World) -> None:
    finish(world)
    world.server.client.delete(world.store.keys.state(world.ref))
    assert world.settle().taken == 1
    world.clock.advance(20_000)
    assert world.settle().taken == 0


class Crash(Exception):
    """The process ends here."""


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


def plan_of(steps: list[Any]) -> Any:
    from orchestrator.store.new import NewPlan

    return NewPlan(str(uuid4()), "e" * 64, 1000, 1_048_576, tuple(steps))
