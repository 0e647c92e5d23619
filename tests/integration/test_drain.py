"""The ledger follows the state store: nothing twice, nothing lost, nothing older over something newer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import recalled
from orchestrator.errors import LedgerUnavailable, StoreUnavailable
from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.store.new import NewPlan, plan_as_text, plan_from_text
from orchestrator.store.replies import Settled
from orchestrator.store.stream import BEGINNING
from orchestrator.supervisors import drain_ledger
from orchestrator.supervisors.passes import Counts
from schemas.states import Fact, RunStatus
from tests.support.ledgers import fresh_ledger, run_named
from tests.support.servers import Server
from tests.support.stores import Scene, clocked_store, name_in, new_step, ref_of


class World(Scene):
    """A run, and the ledger that follows it."""

    ledger: Ledger
    settings: Settings

    def drain(self) -> Counts:
        self.clock.advance(2000)
        return drain_ledger.run_once(self.store, self.ledger, self.settings)

    def told(self) -> dict[str, tuple[str, int]]:
        """Status and fence of each step, as the ledger has them."""
        steps = self.ledger.history.steps(self.ref.run_id)
        return {name: (step.status, json.loads(step.record_text)["fence"]) for name, step in steps.items()}

    def waiting(self) -> int:
        return self.store.stream.length(0)


@pytest.fixture
def world(redis_server: Server, namespace: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """In one shard; a test's parameter may say of how many the run's is the last."""
    shards = getattr(request, "param", 1)
    store, clock = clocked_store(redis_server.url, namespace, shards)
    made = World(store, clock, ref_of(name_in(store, shards - 1)))
    made.ledger = fresh_ledger(tmp_path)
    made.settings = Settings(namespace=namespace, shards=1)
    yield made
    made.ledger.close()


def test_every_transition_and_where_it_led(world: World) -> None:
    world.accept().admit(new_step("a", 0), new_step("b", 1, "a"))
    world.claim("a")
    world.complete("a", '{"value":1}')
    assert world.drain().taken == world.version
    events = world.ledger.history.events(world.ref.run_id)
    assert [(one.version, one.event) for one in events] == [
        (one.version, one.event) for one in world.store.views.events(world.ref)
    ]
    assert events[-1].fields["steps"] == f"a=completed/1/{world.fences['a']},b=ready/0/0,b=dispatched/0/0"
    run = world.ledger.history.run(world.ref.run_id)
    assert run is not None
    assert (run.version, run.status, run.fields()["fence"]) == (world.version, "running", str(world.fences["a"]))
    assert "policy" not in run.fields()
    assert world.told() == {"a": ("completed", world.fences["a"]), "b": ("dispatched", 0)}
    assert world.ledger.history.steps(world.ref.run_id)["a"].result_text == '{"value":1}'


def test_what_is_drained_is_dropped_and_only_that(world: World) -> None:
    world.accept()
    world.drain()
    assert world.waiting() == 0
    world.plan()
    assert world.waiting() == 1
    world.store.stream.read(0, BEGINNING, 10)
    assert world.waiting() == 1
    assert world.drain() == Counts(taken=1, moved=1)
    assert world.drain() == Counts()


def test_the_stream_outlives_the_runs_that_it_tells_of(world: World) -> None:
    world.accept()
    world.store.runs.cancel(world.ref, 1)
    world.store.runs.confirm_end(world.ref, 1)
    names = world.store.keys
    assert world.store.scripts.ask("TTL", names.shard_part(0, "ledger")) == -1
    assert world.store.scripts.ask("TTL", names.state(world.ref)) > 0


def test_a_pass_that_died_before_its_transaction_is_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.accept().plan()

    def crash(_: Any) -> bool:
        raise LedgerUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(world.ledger.history, "take", crash)
        with pytest.raises(LedgerUnavailable):
            world.drain()
    assert world.waiting() == 2
    assert world.drain().taken == 2
    assert [one.version for one in world.ledger.history.events(world.ref.run_id)] == [1, 2]


def test_a_drainer_that_wakes_up_late_writes_nothing(world: World) -> None:
    world.accept().admit(new_step("a", 0))
    entries = world.store.stream.read(0, BEGINNING, 100)
    old = drain_ledger.batch_of(world.store, world.settings.namespace, 0, BEGINNING, entries)
    world.claim("a")
    world.complete("a")
    world.drain()
    before = (world.told(), len(world.ledger.history.events(world.ref.run_id)))
    assert not world.ledger.history.take(old)
    assert (world.told(), len(world.ledger.history.events(world.ref.run_id))) == before


def test_a_lower_version_never_replaces_a_higher(world: World) -> None:
    """The same rows once more, under a cursor that fits: what a server that came back with old data would offer."""
    world.accept().admit(new_step("a", 0))
    entries = world.store.stream.read(0, BEGINNING, 100)
    old = drain_ledger.batch_of(world.store, world.settings.namespace, 1, BEGINNING, entries)
    world.claim("a")
    world.complete("a")
    world.drain()
    assert world.ledger.history.take(old)
    assert world.told() == {"a": ("completed", world.fences["a"])}
    assert len(world.ledger.history.events(world.ref.run_id)) == world.version


def test_a_snapshot_is_of_one_version(world: World) -> None:
    world.accept().admit(*(new_step(f"s{i}", i) for i in range(3)))
    world.claim("s0")
    world.store.guard.fail_step(world.ref, "s0", world.fences["s0"], "claim-s0", Fact.NONE, '{"kind":"x"}', True)
    seen = world.store.stream.snapshot(world.ref, ["s0", "s2", "not there"])
    assert seen is not None
    assert seen.fields["version"] == str(world.version)
    assert {name: json.loads(text)["status"] for name, text in seen.steps.items()} == {
        "s0": "backoff",
        "s2": "dispatched",
    }
    assert (seen.errors, seen.results) == ({"s0": '{"kind":"x"}'}, {})
    assert world.store.stream.snapshot(ref_of("nobody"), ["s0"]) is None


def test_a_wide_plan_is_drained_whole(world: World) -> None:
    world.accept().admit(*(new_step(f"s{i}", i) for i in range(3000)), max_parallel=10)
    world.drain()
    statuses = [status for status, _ in world.told().values()]
    assert (statuses.count("dispatched"), statuses.count("ready")) == (10, 2990)


def test_the_store_away_ends_the_pass(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(world.store.stream, "read", away)
    assert world.drain() == Counts(failed=1)


@pytest.mark.parametrize("world", [2], indirect=True)
@pytest.mark.parametrize("key", ["server", "ledger"])
def test_a_shard_that_is_shut_or_spoilt_does_not_stop_the_others(world: World, redis_server: Server, key: str) -> None:
    world.accept()
    redis_server.client.set(world.store.keys.prefix(0) + key, "another")
    assert world.drain() == Counts(taken=1, moved=1, failed=1)
    assert len(world.ledger.history.events(world.ref.run_id)) == 1


def test_a_run_that_was_lost_before_its_last_moments_were_drained_has_completed_what_its_end_says(world: World) -> None:
    world.ledger.accept(run_named("r"))
    world.accept().admit(new_step("a", 0), new_step("b", 1, "a"))
    world.claim("a")
    world.complete("a")
    world.drain()
    world.claim("b")
    world.complete("b")
    end = world.store.runs.settle(world.ref, 1)
    assert isinstance(end, Settled)
    world.ledger.end_run(world.ref.run_id, 1, RunStatus.SUCCEEDED, None, end.version, end.ended_at)
    assert world.told()["b"][0] == "dispatched"
    row = world.ledger.run(world.ref.run_id)
    assert row is not None
    found = recalled.recall(world.ledger, row)
    assert found is not None
    assert (found.run.status, [step.status for step in found.steps]) == ("succeeded", ["completed", "completed"])


def test_an_admitted_plan_reads_back_as_it_was() -> None:
    plan = NewPlan("p", "e" * 64, 7, 9, (new_step("a", 0), new_step("b", 1, "a", refs=("a",), approval=True)))
    assert plan_from_text(plan_as_text(plan)) == plan
    newer = json.loads(plan_as_text(plan))
    newer["steps"][0]["unheard_of"] = newer["unheard_of"] = 1
    assert plan_from_text(json.dumps(newer)) == plan
