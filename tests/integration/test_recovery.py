"""The store forgets, at every place of a step of every class, heard of or not: each run ends as its effects say."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import delete, select, update

from orchestrator import decisions, late_effects, progress, submission
from orchestrator.cli import command
from orchestrator.decisions import Desk
from orchestrator.errors import ConfigError, StoreAmnesia, StoreMoved, StoreRefused, Superseded
from orchestrator.ledger import AcceptedRun, Closed, RunFilter, open_ledger, upgrade_effects
from orchestrator.ledger.drained import admitted_plans
from orchestrator.ledger.history import Batch
from orchestrator.ledger.losses import HOLD_MS, Loss
from orchestrator.ledger.tables import effects, runs
from orchestrator.lookup import limits_views
from orchestrator.recovery import adoption, remembered, restore, verdicts
from orchestrator.recovery.restore import Site
from orchestrator.startover import Again
from orchestrator.store.keys import member
from orchestrator.store.replies import Exists, Granted, Waiting
from orchestrator.store.restoring import Place
from orchestrator.supervisors import apply_decisions, audit_runs, drain_ledger
from orchestrator.supervisors.passes import Counts
from orchestrator.telemetry import events, facts
from orchestrator.telemetry.logs import identity
from schemas.ids import RunRef, run_id_for
from schemas.policy import Quota, SomeLimits, policy_hash, policy_text
from schemas.run import Submission
from schemas.states import EffectClass, Fact, RunStatus
from tests.support import forgetting
from tests.support.forgetting import Copy
from tests.support.installation import celery_app, installation
from tests.support.ledgers import url_of
from tests.support.servers import Server, keys_of
from tests.support.workbench import Run, Workbench, narrowed, workbench
from workers import execution
from workers.cli import mandor
from workers.context import Context, PermanentError

CLASSES = [effect.value for effect in EffectClass]
ROWED = ["keyed", "once", "transactional"]
PARTS = ["steps", "plan", "results", "needs", "dependants"]  # keys of a run, one of which is gone


class Params(BaseModel):
    x: int = 1


class Crash(BaseException):
    """The process ends here: nothing behind it happens."""


@dataclass
class World:
    """A workbench whose server can forget, and whose actions note what they did."""

    bench: Workbench
    server: Server
    site: Site
    noted: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    ahead_ms: int = 0

    def declare(self, effect: str) -> None:
        def act(params: Params, ctx: Context) -> Params:
            if effect == "transactional":
                with ctx.ledger().begin() as connection:
                    ctx.effect(connection, params)
            if effect != "pure":
                self.noted.append(ctx.step_id)
            return params

        def take_back(params: Params, done: Params | None, ctx: Context) -> None:
            if effect == "transactional":
                with ctx.ledger().begin() as connection:
                    ctx.effect(connection, None)
            if self.noted.count(ctx.step_id) > self.undone.count(ctx.step_id):
                self.undone.append(ctx.step_id)

        declared = self.bench.registry.action(effect, effect=effect)(act)
        if effect != "pure":
            declared.compensation(take_back)

    def drain(self) -> None:
        self.bench.clock.advance(2000)
        drain_ledger.run_once(self.bench.store, self.bench.ledger, self.bench.settings)

    def forget(self) -> None:
        forgetting.forget(self.server.client, self.bench.settings.namespace)

    def another_server(self) -> None:
        forgetting.restart(self.server.client, self.bench.store.keys)

    def rows(self) -> list[tuple[Any, ...]]:
        """All effect rows as they are."""
        with self.bench.ledger.begin() as connection:
            return [tuple(row) for row in connection.execute(select(effects).order_by(effects.c.step_id))]

    def judged(self) -> dict[int, str]:
        return verdicts.judged(self.bench.ledger, self.bench.store, self.bench.settings.namespace)

    def without_admitted_plans(self) -> None:
        """What a ledger knows of runs that an older release has accepted."""
        with self.bench.ledger.begin() as connection:
            connection.execute(delete(admitted_plans))

    def wait(self, ms: int = 60_000) -> None:
        """The time that holders of claims are given goes by."""
        self.ahead_ms += ms

    def recover(self) -> list[Loss]:
        """See the loss, wait, make it good."""
        restore.recover(self.site)
        self.wait()
        return restore.recover(self.site)

    def finish(self, run: Run) -> str:
        """Deliver what the store wants done until the run has ended."""
        for _ in range(50):
            state = run.state
            if state.ended_at:
                return state.status
            for step in self.bench.store.views.steps(run.ref):
                if step.status == "dispatched":
                    run.deliver(step.id)
                elif step.status == "compensating" and step.undo and step.undo.state == "dispatched":
                    run.undo(step.id)
                elif step.status == "backoff":
                    run.wait_out_backoff(step.id)
            run.settle()
        raise AssertionError(f"it does not end: {run.state} {self.bench.store.views.steps(run.ref)}")

    def assert_accounted_for(self, run: Run) -> None:
        """Each effect belongs to a completed step that was not undone, or was undone, once."""
        for step in self.bench.store.views.steps(run.ref):
            stands = self.noted.count(step.id) - self.undone.count(step.id)
            expected = 1 if step.status == "completed" and step.effect != "pure" else 0
            assert stands == expected, (step.id, step.status)


@pytest.fixture
def world(redis_server: Server, namespace: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """Of one shard; a test's parameter may ask for more."""
    prefix = f"{namespace}."
    bench = workbench(redis_server.url, namespace, tmp_path, getattr(request, "param", 1), queue_prefix=prefix)
    with celery_app(redis_server.url, queue_prefix=prefix, home=tmp_path) as app:
        site = Site(app, bench.store, bench.ledger, bench.settings, "me")
        made = World(bench, redis_server, site)
        clock = bench.ledger.now_ms
        bench.ledger.losses._clock = lambda: clock() + made.ahead_ms
        for effect in CLASSES:
            made.declare(effect)

        def failing(params: Params, ctx: Context) -> None:
            raise PermanentError("no")

        bench.registry.action("fail", effect="pure")(failing)
        yield made


def cancelled(world: World, run: Run) -> None:
    """A person's word in the first generation, and that it has ended so, also in the ledger."""
    world.bench.store.runs.cancel(run.ref, 1)
    run.settle()
    state = run.state
    world.bench.ledger.end_run(run.ref.run_id, 1, RunStatus(state.status), "cancelled", state.version, 1)


def steps(*actions: str) -> list[dict[str, Any]]:
    return [{"action": action, "params": {"x": i}} for i, action in enumerate(actions)]


# ---- one step, interrupted everywhere


def claimed(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before `begin`: nothing has happened."""
    world.bench.store.guard.claim_step(run.ref, "s1", generation=1, claim_id="lost", worker="host:9:9")


def dies_before(name: str, module: str) -> Callable[[World, Run, pytest.MonkeyPatch], None]:
    def crash(*_: Any, **__: Any) -> Any:
        raise Crash

    def interrupt(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        target = world.bench.ledger.effects if module == "effects" else world.bench.store.guard
        with monkeypatch.context() as patched:
            patched.setattr(target, name, crash)
            for ending in ("close", "leave"):  # what would be next, were it only an error
                patched.setattr(world.bench.ledger.effects, ending, crash)
            with pytest.raises(Crash):
                run.deliver("s1")

    return interrupt


def done(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.deliver("s1")


INTERRUPTIONS = {
    "sent": lambda *_: None,
    "claimed": claimed,
    "before land": dies_before("land", "effects"),
    "before commit": dies_before("complete_step", "guard"),
    "committed": done,
}


@pytest.mark.parametrize("drained", [True, False], ids=["drained", "not drained"])
@pytest.mark.parametrize("moment", INTERRUPTIONS)
@pytest.mark.parametrize("effect", CLASSES)
def test_a_run_ends_wherever_the_store_forgot_it(
    world: World, effect: str, moment: str, drained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (effect, moment) == ("pure", "before land"):
        return
    run = world.bench.planned(*steps("pure", effect, "keyed"))
    run.deliver("s0")
    INTERRUPTIONS[moment](world, run, monkeypatch)
    if drained:
        world.drain()
    before = run.state
    world.forget()
    with pytest.raises(StoreAmnesia):
        run.deliver("s1")
    assert world.recover() == []
    assert run.state.fence >= (before.fence if drained else 0) + 1_000_000 > before.fence
    status = world.finish(run)
    doubtful = effect == "once" and moment == "before land"
    assert status == ("compensated" if doubtful else "succeeded")
    assert letters_of(world, run) == (["in_doubt"] if doubtful else [])
    # what was under way is done again where that is harmless: the same path, or the same key
    again = moment == "before land" and effect in ("idempotent", "keyed")
    again |= moment == "before commit" and effect == "pure"
    assert world.noted.count("s1") == (0 if effect == "pure" else 2 if again else 1)
    if not again:
        world.assert_accounted_for(run)


def tell_the_ledger(world: World, run: Run) -> None:
    with identity(run_id=run.ref.run_id):
        progress.settle_due(world.site.app, world.bench.store, world.bench.ledger, run.ref)


def letters_of(world: World, run: Run) -> list[str]:
    """The reasons of those that the ledger has once it knows of the end."""
    tell_the_ledger(world, run)
    return [letter.reason for letter in world.bench.ledger.letters(9, run_id=run.ref.run_id)]


def test_the_letters_of_an_end_that_was_heard_of_are_written_with_it(world: World) -> None:
    """Its process ended before it told the ledger of the end, and then the store forgot the run."""
    run = world.bench.planned(*steps("once"), policy=narrowed(on_failure="stop"))
    guard, ledger = world.bench.store.guard, world.bench.ledger
    granted = guard.claim_step(run.ref, "s0", generation=1, claim_id="lost", worker="host:9:9")
    assert isinstance(granted, Granted)
    guard.expire_lease(run.ref, "s0", granted.fence, Fact.MAYBE)
    run.settle()
    world.drain()
    world.forget()
    assert world.recover() == []
    row, (letter,) = ledger.run(run.ref.run_id), ledger.letters(9, run_id=run.ref.run_id)
    assert row is not None
    assert (row.status, row.reason) == ("failed", "in_doubt:s0")
    assert (letter.step_id, letter.reason) == ("s0", "in_doubt")
    assert [one["event"] for one in letter.content["attempts"]] == ["step.claimed", "step.expired"]


def test_a_doubt_about_a_step_that_was_started_over_has_its_letter_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.bench.planned(*steps("pure", "once"))
    ledger, store = world.bench.ledger, world.bench.store
    cancelled(world, run)
    world.drain()
    store.runs.retry(run.ref, 1, "ann", 3_600_000)
    ledger.reopen_run(run.ref.run_id, 2, "running")  # type: ignore[arg-type]
    again = replace(run, generation=2)
    again.deliver("s0")
    INTERRUPTIONS["before land"](world, again, monkeypatch)
    world.forget()
    assert world.recover() == []
    assert world.finish(again) == "compensated"
    assert letters_of(world, again) == ["in_doubt"]


@pytest.mark.parametrize("part", PARTS)
def test_an_ended_run_of_which_a_key_is_gone_is_started_over_from_the_ledger(world: World, part: str) -> None:
    run = world.bench.planned(*steps("keyed", "keyed"), policy=narrowed(on_failure="stop"))
    ledger, store = world.bench.ledger, world.bench.store
    run.deliver("s0")
    cancelled(world, run)
    world.drain()
    world.server.client.delete(store.keys.part(run.ref, part))
    ledger.decide(run.ref.run_id, 1, "retry", "ann", None)
    apply_decisions.run_once(world.site.app, store, ledger)
    world.drain()
    assert audited(world).failed == 1
    assert world.recover() == []
    assert world.finish(replace(run, generation=2)) == "succeeded"
    assert world.noted == ["s0", "s1"]


@pytest.mark.parametrize("effect", ROWED)
def test_a_holder_that_wakes_up_afterwards_is_refused(world: World, effect: str) -> None:
    run = world.bench.planned(*steps(effect))
    granted = world.bench.store.guard.claim_step(run.ref, "s0", generation=1, claim_id="old", worker="host:9:9")
    assert isinstance(granted, Granted)
    world.forget()
    world.recover()
    rows, name = world.bench.ledger.effects, (run.ref.run_id, "s0", "do", granted.fence, granted.token)
    assert isinstance(rows.open(*name, EffectClass(effect)), Closed)  # type: ignore[arg-type]
    assert isinstance(rows.land(*name, "{}"), Closed)  # type: ignore[arg-type]
    assert world.finish(run) == "succeeded"


def test_nobody_acts_before_holders_have_ended(world: World) -> None:
    run = world.bench.planned(*steps("once"))
    world.drain()
    world.forget()
    (loss,) = restore.recover(world.site)
    lease_ms, grace_ms = 15_000, 10_000
    assert loss.lease_until - loss.found_at == 2 * lease_ms + grace_ms + restore.MARGIN_MS
    assert restore.recover(world.site) == [loss]
    with pytest.raises(StoreAmnesia):
        run.deliver("s0")


def test_one_restorer_wins_and_one_that_wakes_up_late_closes_nothing(world: World) -> None:
    run = world.bench.planned(*steps("once"))
    world.drain()
    world.forget()
    (loss,) = restore.recover(world.site)
    world.wait()
    late = world.bench.ledger.losses.claim(loss, "me")
    assert late is not None
    assert restore.make_good(world.site, loss) is None
    world.wait()
    assert restore.make_good(world.site, loss) is not None
    before = world.rows()
    with pytest.raises(Superseded):
        restore._restore_runs(world.site, late, Place(loss.server, ""))
    with pytest.raises(Superseded, match="another process"):
        world.bench.ledger.losses.close_rows(late, run.ref.run_id, [("s0", "do")], 1)
    assert world.rows() == before


def test_what_was_built_is_not_built_over(world: World) -> None:
    run = world.bench.planned(*steps("once"))
    world.forget()
    world.recover()
    before, whole = run.state, Place(world.bench.store.scripts.server(), "")
    heard, fields = (before.generation, before.version), {"deadline_at": "0"}
    reply = world.bench.store.restoring.restore_run(run.ref, whole, "running", 10**9, heard, fields, ())
    assert isinstance(reply, Exists)
    assert run.state == before


def test_a_restorer_that_dies_between_any_two_runs_is_followed_by_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [world.bench.planned(*steps("keyed", "once"), name=f"r{i}") for i in range(3)]
    world.drain()
    world.forget()
    restore.recover(world.site)
    world.wait()
    real, calls = restore._restore_run, list[int]()

    def dies_at_the_third(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise Crash
        return real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(restore, "_restore_run", dies_at_the_third)
        with pytest.raises(Crash):
            restore.recover(world.site)
    with pytest.raises(StoreAmnesia):
        runs[0].deliver("s0")
    world.wait()
    assert restore.recover(Site(world.site.app, *services(world), "next")) == []
    assert [world.finish(run) for run in runs] == ["succeeded"] * 3


def services(world: World) -> tuple[Any, Any, Any]:
    return world.bench.store, world.bench.ledger, world.bench.settings


# ---- the verdict and the write


def copied_back(world: World, copy: Copy) -> None:
    """The server that had been there all the time answers again."""
    forgetting.put_back(world.server.client, world.bench.settings.namespace, copy)


def test_a_shard_that_is_whole_again_is_left_alone(world: World) -> None:
    run = world.bench.planned(*steps("once", "keyed"))
    run.deliver("s0")
    copy, before, rows = old_copy(world), run.state, world.rows()
    world.forget()
    assert len(restore.recover(world.site)) == 1
    copied_back(world, copy)
    world.wait()
    assert restore.recover(world.site) == []
    assert (run.state, world.rows()) == (before, rows)
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s0", "s1"]


def test_fences_go_beyond_rows_that_were_closed_for_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old server answers again when the restorer has closed the rows of a run, and not built it yet. Twice."""
    run = world.bench.planned(*steps("once", "keyed"))
    copy = old_copy(world)
    real = world.bench.ledger.losses.close_rows

    def too_late(*given: Any) -> Any:
        closed = real(*given)
        copied_back(world, copy)
        return closed

    world.bench.ledger.losses.close_rows = too_late  # type: ignore[method-assign, assignment]
    for _ in range(2):
        world.forget()
        assert len(restore.recover(world.site)) == 1
        world.wait()
        restore.recover(world.site)
    assert restore.recover(world.site) == []
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s0", "s1"]


def test_what_is_flushed_while_it_is_built_is_built_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [world.bench.planned(*steps("keyed", "once"), name=f"r{i}") for i in range(3)]
    world.drain()
    world.forget()
    restore.recover(world.site)
    world.wait()
    real, calls = restore._restore_run, list[int]()

    def flushed_behind_the_second(*given: Any) -> Any:
        done = real(*given)
        calls.append(1)
        if len(calls) == 2:
            world.forget()
        return done

    with monkeypatch.context() as patched:
        patched.setattr(restore, "_restore_run", flushed_behind_the_second)
        restore.recover(world.site)
    with pytest.raises(StoreAmnesia):
        runs[0].deliver("s0")
    assert world.recover() == []
    assert [world.finish(run) for run in runs] == ["succeeded"] * 3


def test_a_shard_that_forgot_once_more_is_not_opened_by_who_built_it_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.bench.planned(*steps("once"))
    world.drain()
    world.forget()
    restore.recover(world.site)
    world.wait()
    real = world.bench.ledger.losses.done

    def forgets_behind(*given: Any) -> Any:
        done = real(*given)
        world.forget()
        return done

    with monkeypatch.context() as patched:
        patched.setattr(world.bench.ledger.losses, "done", forgets_behind)
        restore.recover(world.site)
    assert world.judged() == {0: "amnesia"}
    assert world.recover() == []
    assert world.finish(run) == "succeeded"


def test_what_was_exchanged_since_it_was_judged_is_not_accepted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = world.bench.planned(*steps("once", "keyed"))
    copy = old_copy(world)
    run.deliver("s0")
    world.drain()
    world.another_server()
    real = verdicts.behind

    def exchanged_behind(*given: Any) -> Any:
        found = real(*given)
        put_back(world, copy)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(verdicts, "behind", exchanged_behind)
        restore.recover(world.site)
    assert world.judged() == {0: "behind"}
    assert world.recover() == []
    assert run.step("s0").status == "completed"
    assert world.finish(run) == "succeeded"
    assert world.noted.count("s0") == 1


def test_a_shard_is_opened_only_on_the_server_that_was_judged(world: World) -> None:
    run = world.bench.planned(*steps("once"))
    world.forget()
    restoring = world.bench.store.restoring
    with pytest.raises(Superseded):
        restoring.begin(0, Place("another", "token"), "amnesia", "0-0")
    place = Place(world.bench.store.scripts.server(), "token")
    restoring.begin(0, place, "amnesia", "0-0")
    for wrong in (Place("another", "token"), Place(place.judged, "older"), Place(place.judged, "")):
        with pytest.raises(Superseded):
            restoring.open_shard(0, wrong)
        with pytest.raises(Superseded):
            restoring.accept_run(run.ref, wrong, 1, 1)
        with pytest.raises(Superseded):
            restoring.drop_run(run.ref, wrong)
    restoring.open_shard(0, place)
    restoring.open_shard(0, place)  # once more, after a reply that was lost
    with pytest.raises(Superseded):
        restoring.begin(0, place, "amnesia", "0-0")


def test_two_processes_of_one_name_are_two(world: World) -> None:
    world.bench.planned(*steps("once"))
    world.forget()
    (loss,) = restore.recover(world.site)
    world.wait()
    losses = world.bench.ledger.losses
    held = losses.claim(loss, "a" * 300)
    assert held is not None
    assert held.holder == "a" * 300
    assert losses.claim(loss, "a" * 300) is None
    losses.release(held)
    again = losses.claim(loss, "a" * 300)
    assert again is not None
    assert (again.era, losses.done(held, "{}")) == (held.era + 1, False)


def test_numbers_that_nobody_heard_of_are_not_given_twice(world: World) -> None:
    """A server is accepted, grants, and forgets, before anything was drained."""
    run = world.bench.planned(*steps("once", "keyed"))
    world.drain()
    seen: list[Granted] = []
    for _ in range(3):
        world.another_server()
        assert restore.recover(world.site) == []
        granted = world.bench.store.guard.claim_step(run.ref, "s0", generation=1, claim_id="c", worker="host:9:9")
        assert isinstance(granted, Granted)
        seen.append(granted)
        version = run.state.version
        world.forget()
        assert world.recover() == []
        assert run.state.version > version
        row = (run.ref.run_id, "s0", "do", granted.fence, granted.token)
        assert isinstance(world.bench.ledger.effects.land(*row, "{}"), Closed)  # type: ignore[arg-type]
    assert len({one.fence for one in seen}) == 3
    assert world.finish(run) == "succeeded"


def test_nobody_walks_the_ledger_while_a_loss_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = world.bench.planned(*steps("once", "keyed"))
    copy = old_copy(world)
    run.deliver("s0")
    world.drain()
    for lose in (world.forget, lambda: put_back(world, copy)):
        lose()
        restore.recover(world.site)

        def walked(*_: Any) -> Any:
            raise AssertionError("somebody walks")

        with monkeypatch.context() as patched:
            for name in ("open_runs", "open_refs", "run"):
                patched.setattr(world.bench.ledger, name, walked)
            assert len(restore.recover(world.site)) == 1


# ---- whose runs


def accepted_also(world: World, run: Run, namespace: str) -> RunRef:
    """A run like it, which another installation has accepted."""
    row = world.bench.ledger.run(run.ref.run_id)
    assert row is not None
    fields = {name: getattr(row, name) for name in AcceptedRun.__slots__}
    other = RunRef(run_id_for("celery", None, "elsewhere"), row.session)
    world.bench.ledger.accept(AcceptedRun(**{**fields, "run_id": other.run_id, "namespace": namespace}))
    return other


def test_each_namespace_builds_its_own_runs(world: World) -> None:
    run = world.bench.planned(*steps("once"))
    other = accepted_also(world, run, "another")
    world.forget()
    assert world.recover() == []
    assert world.bench.store.views.run(other) is None
    assert world.finish(run) == "succeeded"


def test_a_run_that_is_built_again_has_the_policy_it_was_accepted_with(world: World) -> None:
    policy = narrowed(limits=SomeLimits(attempts=2), quotas={"once": Quota(steps=1)}, approvals=frozenset({"nobody.s"}))
    run = world.bench.planned(*steps("once", "keyed"), policy=policy)
    before = limits_views(world.bench.store.views.steps(run.ref))
    assert {one.attempts for one in before.values()} <= {1, 2}
    world.drain()
    world.forget()
    assert world.recover() == []
    state = run.state
    assert (state.policy_text, state.policy_hash) == (policy_text(policy), policy_hash(policy))
    assert limits_views(world.bench.store.views.steps(run.ref)) == before
    granted = world.bench.store.guard.claim_step(run.ref, "s0", generation=1, claim_id="new", worker="host:9:9")
    assert isinstance(granted, Granted)
    assert (granted.policy_text, granted.policy_hash) == (policy_text(policy), policy_hash(policy))


def test_runs_of_an_older_release_belong_to_who_has_them(world: World) -> None:
    run = world.bench.planned(*steps("once", "keyed"), policy=narrowed(limits={"attempts": 2}))
    ledger, run_id = world.bench.ledger, run.ref.run_id
    before = ledger.history.admitted_plan(run_id, 1)
    world.without_admitted_plans()
    accepted_also(world, run, "")
    with ledger.begin() as connection:
        connection.execute(update(runs).values(namespace=""))
    assert ledger.open_runs(None, 10, world.bench.settings.namespace) == []
    for _ in range(2):
        adoption.adopt(ledger, world.bench.store, world.bench.settings.namespace)
        assert [one.run_id for one in ledger.open_runs(None, 10, world.bench.settings.namespace)] == [run_id]
    assert before is not None
    as_the_store_knows = before.replace('"compensation": true', '"compensation": false')
    assert ledger.history.admitted_plan(run_id, 1) == as_the_store_knows


def test_a_run_without_its_admitted_steps_goes_by_its_plan_from_the_beginning(world: World) -> None:
    run = world.bench.planned(*steps("once", "transactional", "idempotent"))
    run.deliver("s0")
    granted = world.bench.store.guard.claim_step(run.ref, "s1", generation=1, claim_id="old", worker="host:9:9")
    assert isinstance(granted, Granted)
    world.without_admitted_plans()
    world.forget()
    assert world.recover() == []
    assert run.state.status == "accepted"
    row = (run.ref.run_id, "s1", "do", granted.fence, granted.token)
    assert isinstance(world.bench.ledger.effects.open(*row, EffectClass.ONCE), Closed)  # type: ignore[arg-type]
    run.plan()
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s0", "s1", "s2"]


def test_a_run_that_is_not_known_well_enough_is_told_of_and_not_built(world: World) -> None:
    run, other = (world.bench.planned(*steps("keyed", "fail"), name=name) for name in ("undone", "other"))
    run.deliver("s0")
    run.deliver("s1")
    world.bench.ledger.start_undoing(run.ref.run_id, 1)
    world.without_admitted_plans()
    world.forget()
    assert world.recover() == []
    (loss,) = world.bench.ledger.losses.all(world.bench.settings.namespace, 10)
    assert json.loads(loss.report_text or "")["refused"] == 1
    assert world.bench.store.views.run(run.ref) is None
    assert other.state.status == "accepted"
    assert audited(world).failed == 1
    assert world.bench.ledger.losses.open(world.bench.settings.namespace) == []


# ---- stages


def test_undoing_stays_undoing_and_nothing_is_undone_twice(world: World) -> None:
    run = world.bench.planned(*steps("keyed", "transactional", "idempotent", "once", "fail"))
    for i in range(5):
        run.deliver(f"s{i}")
    world.drain()
    world.bench.ledger.start_undoing(run.ref.run_id, 1)
    run.settle()
    run.undo("s3")
    world.forget()
    assert world.recover() == []
    assert run.state.status == "compensating"
    assert world.finish(run) == "compensated"
    assert world.undone == ["s3", "s2", "s1", "s0"]


def test_a_failing_run_starts_nothing(world: World) -> None:
    run = world.bench.planned(*steps("keyed", "fail", "once"))
    run.deliver("s0")
    run.deliver("s1")
    world.drain()
    world.forget()
    world.recover()
    assert world.finish(run) == "compensated"
    assert (world.noted, world.undone) == (["s0"], ["s0"])


def test_a_run_that_was_heard_to_end_has_its_end(world: World) -> None:
    run = world.bench.planned(*steps("keyed"))
    run.deliver("s0")
    run.settle()
    world.drain()
    world.forget()
    world.recover()
    row = world.bench.ledger.run(run.ref.run_id)
    assert row is not None
    assert (row.status, row.ended_at is None) == ("succeeded", False)
    assert world.bench.store.views.run(run.ref) is None


def test_a_failure_that_was_heard_of_is_told_once_and_found_by_its_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[events.Occurrence] = []
    monkeypatch.setattr(facts, "_listeners", [heard.append])
    run = world.bench.planned(*steps("fail"))
    run.deliver("s0")
    run.settle()
    kind = run.error("s0")["kind"]
    world.drain()
    world.forget()
    world.recover()
    world.recover()
    told = [fact for fact in heard if isinstance(fact, events.RunSettled)]
    assert told == [events.RunSettled("failed", "step_failed:s0")]
    (found,) = world.bench.ledger.listed(9, None, RunFilter(error=kind))
    assert found.run_id == run.ref.run_id


def test_a_run_without_a_plan_is_planned(world: World) -> None:
    run = world.bench.submit(planner="nobody", context={})
    world.forget()
    world.recover()
    assert run.state.status == "accepted"
    assert run.state.fence >= 1_000_000


def test_a_run_that_was_started_over_goes_on_in_its_generation(world: World) -> None:
    run = world.bench.planned(*steps("keyed", "pure"), policy=narrowed(on_failure="stop"))
    run.deliver("s0")
    store, ledger = world.bench.store, world.bench.ledger
    cancelled(world, run)
    world.drain()
    store.runs.retry(run.ref, 1, "ann", 3_600_000)
    ledger.reopen_run(run.ref.run_id, 2, "running")  # type: ignore[arg-type]
    world.forget()
    world.recover()
    state = run.state
    assert (state.generation, state.status, state.counts) == (2, "running", {"completed": 1, "dispatched": 1})


def test_what_a_person_wanted_done_again_is_done_again(world: World) -> None:
    """The store forgot the retry before anybody heard of it: with a new key, without, and one that is kept."""
    run = world.bench.planned(*steps("keyed", "keyed", "pure", "keyed"), policy=narrowed(on_failure="stop"))
    desk = Desk(world.site.app, world.bench.store, world.bench.ledger)
    for name in ("s0", "s1", "s2"):
        run.deliver(name)
    cancelled(world, run)
    world.drain()
    again = Again(("s1", "s2"), ("s1",))
    assert decisions.retry(desk, run.ref.run_id, "ann", again=again).outcome == "retried:2"
    before = {step.id: (step.status, step.group) for step in world.bench.store.views.steps(run.ref)}
    world.forget()
    assert world.recover() == []
    assert {step.id: (step.status, step.group) for step in world.bench.store.views.steps(run.ref)} == before
    assert run.state.generation == 2
    for name in ("s1", "s2", "s3"):
        message = run.message(name).model_copy(update={"generation": 2})
        execution.run_step(message, world.bench.services)
    assert world.noted == ["s0", "s1", "s1", "s3"]


def test_what_a_person_decided_a_moment_before_is_asked_again(world: World) -> None:
    run = world.bench.planned(*steps("pure"))
    world.drain()
    ledger = world.bench.ledger
    made = ledger.decide(run.ref.run_id, 1, "pause", "ann", None)
    world.bench.store.runs.pause(run.ref, 1, "ann", call_id=made)
    ledger.decision_done(made, "paused")
    world.forget()
    world.recover()
    assert [one.id for one in ledger.pending_decisions(10)] == [made]


def test_what_a_person_decided_a_moment_before_a_lagging_server_is_asked_again(world: World) -> None:
    run = world.bench.planned(*steps("pure"))
    world.drain()
    copy, ledger = old_copy(world), world.bench.ledger
    made = ledger.decide(run.ref.run_id, 1, "pause", "ann", None)
    world.bench.store.runs.pause(run.ref, 1, "ann", call_id=made)
    ledger.decision_done(made, "paused")
    put_back(world, copy)
    assert world.judged() == {0: "moved"}
    assert restore.recover(world.site) == []
    assert [one.id for one in ledger.pending_decisions(10)] == [made]


def test_late_effects_stay_owed(world: World) -> None:
    run = world.bench.planned(*steps("keyed"))
    rows, name = world.bench.ledger.effects, (run.ref.run_id, "s0", "do", 1, run.step().token)
    rows.open(*name, EffectClass.KEYED)  # type: ignore[arg-type]
    rows.close(*name[:4])  # type: ignore[arg-type]
    rows.land(*name, "{}")  # type: ignore[arg-type]
    world.drain()
    world.forget()
    restore.recover(world.site)
    world.wait()
    far = world.bench.ledger.now_ms() + 10**9
    for late in world.bench.ledger.late.owed(far, 10, world.bench.settings.namespace):
        assert late_effects.attend(world.site.app, world.bench.store, world.bench.ledger, late) == 0
    assert restore.recover(world.site) == []
    assert [one.step_id for one in world.bench.ledger.late.owed(far, 10, world.bench.settings.namespace)] == ["s0"]


def test_steps_that_were_claimed_too_often_are_not_tried_for_ever(world: World) -> None:
    run = world.bench.planned(*steps("pure"), policy=narrowed(limits={"attempts": 1}))
    for _ in range(3):
        world.bench.store.guard.claim_step(run.ref, "s0", generation=1, claim_id="lost", worker="host:9:9")
        world.drain()
        world.forget()
        world.recover()
    assert run.step().attempt == 0
    assert world.finish(run) == "succeeded"


# ---- another server


def test_a_server_that_has_everything_is_accepted(world: World) -> None:
    run = world.bench.planned(*steps("keyed"))
    world.drain()
    before = run.state
    world.another_server()
    assert world.judged() == {0: "moved"}
    assert restore.recover(world.site) == []
    assert (run.state.fence, run.state.version) == (before.fence + 1_000_000, before.version)
    assert world.finish(run) == "succeeded"


def test_what_may_have_begun_in_its_last_moments_is_not_skipped(world: World) -> None:
    """It had no row yet, and the claim was lost with the server's last second."""
    run = world.bench.planned(*steps("idempotent"))
    world.drain()
    world.noted.append("s0")
    world.another_server()
    restore.recover(world.site)
    world.bench.store.runs.cancel(run.ref, 1)
    assert world.finish(run) == "compensated"
    assert world.undone == ["s0"]


def test_a_server_without_the_run_or_its_place_in_due_is_no_obstacle(world: World) -> None:
    unplanned = world.bench.submit(planner="nobody", context={})
    planned = world.bench.planned(*steps("keyed"), name="planned")
    world.drain()
    before, client, keys = planned.state.fence, world.server.client, world.bench.store.keys
    client.delete(keys.state(unplanned.ref), keys.part(unplanned.ref, "events"))
    client.zrem(keys.due(0, "deadlines"), member(planned.ref))
    world.another_server()
    # the run without a plan was heard of: the shard is behind
    assert world.recover() == []
    assert unplanned.state.status == "accepted"
    assert planned.state.fence >= before + 1_000_000
    assert "deadlines" in world.bench.store.views.due(planned.ref)
    assert world.finish(planned) == "succeeded"


def old_copy(world: World) -> Copy:
    return forgetting.copy_of(world.server.client, world.bench.settings.namespace)


def put_back(world: World, copy: Copy) -> None:
    copied_back(world, copy)
    world.another_server()


def test_an_old_copy_is_brought_up_to_what_is_known(world: World) -> None:
    run = world.bench.planned(*steps("once", "keyed"))
    ended = world.bench.planned(*steps("pure", "keyed"), name="ended")
    copy = old_copy(world)
    run.deliver("s0")
    assert world.finish(ended) == "succeeded"
    state = ended.state
    world.bench.ledger.end_run(ended.ref.run_id, 1, state.status, None, state.version, 1)  # type: ignore[arg-type]
    world.drain()
    put_back(world, copy)
    assert world.judged() == {0: "behind"}
    assert world.recover() == []
    assert world.bench.store.views.run(ended.ref) is None
    assert run.step("s0").status == "completed"
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s0", "s1", "s1"]
    world.bench.clock.advance(1)
    world.drain()
    assert world.bench.store.stream.length(0) == 0


def test_a_copy_from_before_a_retry_is_behind(world: World) -> None:
    run = world.bench.planned(*steps("keyed", "pure"), policy=narrowed(on_failure="stop"))
    store, ledger = world.bench.store, world.bench.ledger
    cancelled(world, run)
    world.drain()
    copy = old_copy(world)
    store.runs.retry(run.ref, 1, "ann", 3_600_000)
    ledger.reopen_run(run.ref.run_id, 2, "running")  # type: ignore[arg-type]
    put_back(world, copy)
    assert world.judged() == {0: "behind"}
    assert world.recover() == []
    assert (run.state.generation, run.state.status) == (2, "running")


@pytest.mark.parametrize("heard", [False, True], ids=["a lagging server", "an old copy"])
def test_what_a_retry_began_is_behind_all_that_it_begins_again(world: World, heard: bool) -> None:
    """The retry is in the store and not yet in the ledger: whoever claimed then may be frozen, and holds a fence."""
    run = world.bench.planned(*steps("once"), policy=narrowed(on_failure="stop"))
    store, ledger = world.bench.store, world.bench.ledger
    cancelled(world, run)
    world.drain()
    copy = old_copy(world)
    ledger.decide(run.ref.run_id, 1, "retry", "ann", None)
    store.runs.retry(run.ref, 1, "ann", 3_600_000)
    frozen = store.guard.claim_step(run.ref, "s0", generation=2, claim_id="frozen", worker="host:9:9")
    assert isinstance(frozen, Granted)
    if heard:
        world.drain()
    put_back(world, copy)
    assert world.judged() == {0: "behind" if heard else "moved"}
    assert world.recover() == []
    apply_decisions.run_once(world.site.app, store, ledger)
    granted = store.guard.claim_step(run.ref, "s0", generation=2, claim_id="new", worker="host:8:8")
    assert isinstance(granted, Granted)
    assert granted.fence > frozen.fence + 1_000


def test_an_effect_the_store_does_not_know_of_is_no_small_matter(world: World) -> None:
    """Nothing of it was drained: the copy is not behind the cursor, but an effect row is beyond it."""
    run = world.bench.planned(*steps("once"))
    world.drain()
    copy = old_copy(world)
    run.deliver("s0")
    put_back(world, copy)
    assert world.judged() == {0: "behind"}
    world.recover()
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s0"]


def test_ids_of_transitions_go_on_behind_the_cursor(world: World) -> None:
    run = world.bench.planned(*steps("pure"))
    world.drain()
    namespace = world.bench.settings.namespace
    far = "99999999999999-0"
    now = world.bench.ledger.history.cursors(namespace)[0]
    empty = Batch(namespace, 0, now, far, (), (), ())
    assert world.bench.ledger.history.take(empty)
    world.forget()
    world.recover()
    world.drain()
    assert world.bench.ledger.history.events(run.ref.run_id)[-1].event == "run.restored"


# ---- the audit


def audited(world: World) -> Counts:
    world.bench.clock.advance(2_000_000)
    return audit_runs.audit(world.site, [0])


def test_a_run_whose_keys_are_gone_is_built_again(world: World) -> None:
    run, other = (world.bench.planned(*steps("once", "keyed"), name=name) for name in ("gone", "there"))
    run.deliver("s0")
    world.drain()
    before = other.state
    client = world.server.client
    client.delete(*client.keys(world.bench.store.keys.state(run.ref) + "*"))
    assert audited(world).failed == 1
    world.wait()
    assert restore.recover(world.site) == []
    assert other.state == before
    assert (run.step("s0").status, run.step("s1").status) == ("completed", "dispatched")
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s0", "s1"]


def test_a_run_that_was_begun_anew_is_built_again(world: World) -> None:
    """A submission that was read before the loss arrives after it."""
    run = world.bench.planned(*steps("once", "keyed"))
    run.deliver("s0")
    world.drain()
    client, row = world.server.client, world.bench.ledger.run(run.ref.run_id)
    client.delete(*client.keys(world.bench.store.keys.state(run.ref) + "*"))
    assert row is not None
    world.bench.store.runs.create_run(run.ref, submission.to_create(row, world.bench.settings))
    run.plan()
    assert audited(world).failed == 1
    world.wait()
    assert restore.recover(world.site) == []
    assert (run.step("s0").status, run.step("s1").status) == ("completed", "dispatched")
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s0", "s1"]


@pytest.mark.parametrize("moment", ["dispatched", "running", "backoff", "accepted", "planning", "undoing"])
def test_what_nobody_looks_at_is_looked_at_again(world: World, moment: str) -> None:
    run = world.bench.submit(planner="p", context={}) if moment in ("accepted", "planning") else None
    run = run or world.bench.planned(*steps("keyed", "fail"))
    guard = world.bench.store.guard
    if moment == "planning":
        world.bench.store.runs.claim_plan(run.ref, 1, "p", "host:1:1")
    if moment in ("running", "backoff"):
        granted = guard.claim_step(run.ref, "s0", generation=1, claim_id="c", worker="host:1:1")
        if moment == "backoff":
            guard.fail_step(run.ref, "s0", granted.fence, "c", Fact.MAYBE, "{}", True)  # type: ignore[union-attr]
    if moment == "undoing":
        run.deliver("s0")
        run.deliver("s1")
        run.settle()
    views, step_id = world.bench.store.views, None if moment in ("accepted", "planning") else "s0"
    due = (views.due(run.ref), views.due(run.ref, step_id))
    world.server.client.delete(*(world.bench.store.keys.due(0, duty) for duty in ("leases", "dispatches", "retries")))
    world.server.client.delete(*(world.bench.store.keys.due(0, duty) for duty in ("deadlines", "settles", "undos")))
    assert audit_runs.audit(world.site, [0]).moved == 1
    assert [set(one) for one in (views.due(run.ref), views.due(run.ref, step_id))] == [set(one) for one in due]
    assert audit_runs.audit(world.site, [0]).moved == 0


@pytest.mark.parametrize("told", [True, False])
def test_only_an_end_that_the_ledger_lacks_is_said_to_have_been_mended(
    world: World, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit has read its page; before it comes to the run, that ends."""
    run, ledger, store = world.bench.planned(*steps("pure")), world.bench.ledger, world.bench.store
    read = ledger.run(run.ref.run_id)
    assert read is not None
    run.deliver("s0")
    run.settle()
    if told:
        tell_the_ledger(world, run)
    world.server.client.delete(store.keys.due(0, "settles"))
    heard: list[Any] = []
    monkeypatch.setattr(facts, "_listeners", [heard.append])
    assert audit_runs.mend(world.site, read, 0) is not told
    assert [type(fact).__name__ for fact in heard] == ([] if told else ["RunMended"])
    tell_the_ledger(world, run)
    assert store.views.due(run.ref) == {}


# ---- runs in pieces, and runs that come back


def keys_of_run(world: World, run: Run) -> list[Any]:
    return list(world.server.client.keys(world.bench.store.keys.state(run.ref) + "*"))


def taken_away(world: World, run: Run) -> Callable[[], None]:
    """The keys of one run go. Answers what brings them back."""
    client, names = world.server.client, keys_of_run(world, run)
    copy: dict[Any, tuple[Any, int]] = {name: (client.dump(name), max(client.pttl(name), 0)) for name in names}
    client.delete(*names)

    def bring_back() -> None:
        for name, (value, ttl_ms) in copy.items():
            client.restore(name, ttl_ms, value, replace=True)

    return bring_back


@pytest.mark.parametrize("part", PARTS)
def test_no_attempt_is_made_of_a_run_of_which_a_key_is_gone(world: World, part: str) -> None:
    """It would find no step, or null where a result was, and be used up before the run is built again."""
    run = world.bench.planned(*steps("once", "once"))
    run.deliver("s0")
    world.server.client.delete(world.bench.store.keys.part(run.ref, part))
    before = world.rows()
    run.deliver("s1")
    assert (world.noted, world.rows()) == (["s0"], before)
    assert part == "steps" or run.step("s1").attempt == 0


@pytest.mark.parametrize("server", ["the same", "another"])
@pytest.mark.parametrize("part", PARTS)
def test_a_run_of_which_a_key_is_gone_is_built_again(world: World, part: str, server: str) -> None:
    run = world.bench.planned(*steps("pure", "once", "keyed"))
    run.deliver("s0")
    run.deliver("s1")
    world.drain()
    world.server.client.delete(world.bench.store.keys.part(run.ref, part))
    if server == "another":
        world.another_server()
        assert world.judged() == {0: "behind"}
    else:
        assert audited(world).failed == 1
    assert world.recover() == []
    statuses = [run.step(f"s{i}").status for i in range(3)]
    assert statuses == ["completed", "completed", "dispatched"]
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s1", "s2"]


def test_a_run_whose_waiting_steps_are_forgotten_is_built_again(world: World) -> None:
    """Nobody would ever send them, and all that its record says of it would be right."""
    run = world.bench.planned(
        *(one | {"needs": []} for one in steps("keyed", "keyed")), policy=narrowed(max_parallel=1)
    )
    world.drain()
    assert world.server.client.delete(world.bench.store.keys.part(run.ref, "ready")) == 1
    assert audited(world).failed == 1
    assert world.recover() == []
    assert world.finish(run) == "succeeded"
    assert sorted(world.noted) == ["s0", "s1"]


def test_nothing_is_undone_of_a_run_whose_order_is_forgotten(world: World) -> None:
    """A step would be undone before the one that needed it."""
    run = world.bench.planned(*steps("keyed", "keyed", "fail"))
    for step in ("s0", "s1", "s2"):
        run.deliver(step)
    world.drain()
    world.server.client.delete(world.bench.store.keys.part(run.ref, "dependants"))
    assert run.settle() == Waiting("failing")
    assert audited(world).failed == 1
    assert world.recover() == []
    assert world.finish(run) == "compensated"
    assert world.undone == ["s1", "s0"]


def test_a_run_that_comes_back_when_its_rows_are_closed_goes_on_beyond_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.bench.planned(*steps("once", "keyed"))
    run.deliver("s0")
    world.drain()
    bring_back = taken_away(world, run)
    assert audited(world).failed == 1
    world.wait()
    real = world.bench.ledger.losses.close_rows

    def too_late(*given: Any) -> Any:
        closed = real(*given)
        bring_back()
        return closed

    monkeypatch.setattr(world.bench.ledger.losses, "close_rows", too_late)
    assert restore.recover(world.site) == []
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s0", "s1"]


def test_a_run_that_came_back_in_time_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is missed with another, and there again when its turn comes."""
    first, second = sorted(
        (world.bench.planned(*steps("once"), name=f"r{i}") for i in range(2)), key=lambda r: r.ref.run_id
    )
    before = second.state
    world.drain()
    taken_away(world, first)
    bring_back = taken_away(world, second)
    assert audited(world).failed == 2
    world.wait()
    real = world.bench.ledger.losses.close_rows

    def meanwhile(*given: Any) -> Any:
        bring_back()
        return real(*given)

    monkeypatch.setattr(world.bench.ledger.losses, "close_rows", meanwhile)
    assert restore.recover(world.site) == []
    assert second.state == before
    assert [row for row in world.rows() if second.ref.run_id in row] == []
    assert [world.finish(run) for run in (first, second)] == ["succeeded"] * 2


def test_the_audit_moves_fences_beyond_rows_that_were_closed_for_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restorer dies between the rows and the run, which then comes back."""
    run = world.bench.planned(*steps("once", "keyed"))
    world.drain()
    bring_back = taken_away(world, run)
    assert audited(world).failed == 1
    world.wait()

    def crash(*_: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(world.bench.store.restoring, "restore_run", crash)
        with pytest.raises(Crash):
            restore.recover(world.site)
    bring_back()
    world.wait()
    assert restore.recover(world.site) == []
    assert audited(world).moved == 1
    assert audited(world).moved == 0
    assert world.finish(run) == "succeeded"
    assert world.noted == ["s0", "s1"]


def test_of_two_that_know_as_much_the_store_is_believed(world: World) -> None:
    """Taking a server over moves fences, and no version."""
    run = world.bench.planned(*steps("keyed"))
    world.drain()
    world.another_server()
    restore.recover(world.site)
    row = world.bench.ledger.run(run.ref.run_id)
    assert row is not None
    found = remembered.known(*services(world), row)
    assert found is not None
    assert found.fence == run.state.fence >= 1_000_000


# ---- one is not the others' trouble


def run_in(world: World, shard: int, *actions: str, name: str = "run") -> Run:
    """A planned run that lies in this shard."""
    names = (f"{name}-{i}" for i in range(100))
    where = world.bench.store.keys.shard_of
    found = next(name for name in names if where(run_id_for("celery", None, name)) == shard)
    return world.bench.planned(*steps(*actions), name=found)


def raising_for(run: Run) -> Callable[..., Any]:
    """What a row of this run meets that nobody can read any more."""
    real = submission.to_create

    def to_create(row: Any, settings: Any) -> Any:
        if row.run_id == run.ref.run_id:
            raise ValueError("a policy of another release")
        return real(row, settings)

    return to_create


@pytest.mark.parametrize("world", [2], indirect=True)
@pytest.mark.parametrize("lose", ["forget", "behind"])
def test_a_run_that_cannot_be_built_keeps_its_own_shard_shut(
    world: World, lose: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, beside, other = run_in(world, 0, "keyed"), run_in(world, 0, "once", name="b"), run_in(world, 1, "once")
    world.drain()
    if lose == "forget":
        world.forget()
    else:
        for run in (bad, other):
            taken_away(world, run)
        for shard in range(2):
            world.server.client.set(world.bench.store.keys.prefix(shard) + "server", "the one before")
    with monkeypatch.context() as patched, caplog.at_level("ERROR"):
        patched.setattr(submission, "to_create", raising_for(bad))
        (loss,) = world.recover()
        assert (loss.shard, restore.has_failed(loss), loss.token) == (0, True, None)
        assert world.finish(other) == "succeeded"
        with pytest.raises((StoreAmnesia, StoreMoved)):
            beside.deliver("s0")
        assert restore.recover(world.site) == [loss]  # not at once again
    told = [record for record in caplog.records if "run.not_built" in record.getMessage()]
    assert len(told) == 1
    assert bad.ref.run_id in told[0].getMessage()
    world.wait(restore.AGAIN_MS)
    assert restore.recover(world.site) == []
    assert [world.finish(run) for run in (bad, beside)] == ["succeeded"] * 2


def test_a_run_that_cannot_be_built_in_a_whole_shard_is_missed_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, other = (world.bench.planned(*steps("keyed"), name=name) for name in ("bad", "other"))
    world.drain()
    for run in (bad, other):
        taken_away(world, run)
    assert audited(world).failed == 2
    with monkeypatch.context() as patched:
        patched.setattr(submission, "to_create", raising_for(bad))
        assert world.recover() == []
        assert world.bench.store.views.run(bad.ref) is None
        assert world.finish(other) == "succeeded"
        assert audited(world).failed == 1
        assert world.bench.ledger.losses.open(world.bench.settings.namespace) == []
    assert audited(world).failed == 1
    assert world.recover() == []
    assert world.finish(bad) == "succeeded"


@pytest.mark.parametrize("lose", ["forget", "another server"])
def test_what_all_runs_of_a_shard_meet_is_told_of_a_few(
    world: World, lose: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [world.bench.planned(*steps("pure"), name=f"r{i}") for i in range(5)]
    world.drain()
    monkeypatch.setattr(restore, "MOST_FAILED", 2)

    def full(*_: Any, **__: Any) -> Any:
        raise StoreRefused("out of memory")

    with monkeypatch.context() as patched, caplog.at_level("ERROR"):
        for name in ("restore_run", "accept_run"):
            patched.setattr(world.bench.store.restoring, name, full)
        (world.forget if lose == "forget" else world.another_server)()
        assert len(world.recover() if lose == "forget" else restore.recover(world.site)) == 1
    assert sum("run.not_built" in record.getMessage() for record in caplog.records) == 2
    world.wait()
    assert restore.recover(world.site) == []
    assert [world.finish(run) for run in runs] == ["succeeded"] * 5


def test_a_shard_that_is_shut_while_it_is_looked_through_is_no_fault_of_its_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        world.bench.planned(*steps("pure"), name=f"r{i}")
    world.drain()
    real = world.bench.ledger.losses.fences

    def moves(*given: Any) -> Any:
        world.another_server()
        return real(*given)

    monkeypatch.setattr(world.bench.ledger.losses, "fences", moves)
    assert audited(world) == Counts(taken=3)


@pytest.mark.parametrize("world", [2], indirect=True)
def test_a_users_database_that_is_away_keeps_no_other_shard_shut(world: World, tmp_path: Path) -> None:
    there = url_of(tmp_path / "shop.db")
    run, other = run_in(world, 0, "transactional"), run_in(world, 1, "once")
    world.drain()
    world.forget()
    with closing(open_ledger(url_of(tmp_path / "ledger.db"), effects_urls=[there])) as ledger:
        site = Site(world.site.app, world.bench.store, ledger, world.bench.settings, "me")
        ledger.losses._clock = world.bench.ledger.losses._clock
        assert len(restore.recover(site)) == 2
        world.wait()
        (loss,) = restore.recover(site)
        assert (loss.shard, restore.has_failed(loss)) == (0, True)
        assert world.finish(other) == "succeeded"
        upgrade_effects(there)
        world.wait()
        assert restore.recover(site) == []
    assert world.finish(run) == "succeeded"


@pytest.mark.parametrize("world", [3], indirect=True)
def test_somebody_elses_shard_is_left_alone_and_the_others_are_seen_to(world: World) -> None:
    """One shard is another installation's, one has forgotten, and in one a run is not where supervisors look."""
    lost, there = run_in(world, 1, "once"), run_in(world, 2, "keyed")
    world.drain()
    client, keys = world.server.client, world.bench.store.keys
    client.set(keys.prefix(0) + "epoch", "another")
    client.delete(*client.keys(keys.prefix(1) + "*"), keys.due(2, "deadlines"))
    counts = audit_runs.run_once(*world_services(world))
    assert (counts.resting, counts.moved) == (1, 1)
    assert "deadlines" in world.bench.store.views.due(there.ref)
    world.wait()
    with pytest.raises(ConfigError, match="another installation"):
        restore.recover(world.site)
    assert [world.finish(run) for run in (lost, there)] == ["succeeded"] * 2
    assert client.get(keys.prefix(0) + "epoch") in ("another", b"another")


def world_services(world: World) -> tuple[Any, Any, Any, Any]:
    return (world.site.app, *services(world))


def test_what_lies_under_the_keys_of_one_run_stops_no_audit(world: World) -> None:
    spoilt, there = (world.bench.planned(*steps("keyed"), name=name) for name in ("spoilt", "there"))
    world.drain()
    client, keys = world.server.client, world.bench.store.keys
    taken_away(world, spoilt)
    client.set(keys.state(spoilt.ref), "nothing of ours", px=60_000)
    client.delete(keys.due(0, "deadlines"))
    assert audited(world).moved == 1
    assert "deadlines" in world.bench.store.views.due(there.ref)


@pytest.mark.parametrize("loss", ["another server", "behind"])
def test_what_lies_under_the_keys_of_a_run_that_has_ended_keeps_no_shard_shut(world: World, loss: str) -> None:
    spoilt, there = (world.bench.planned(*steps("keyed"), name=name) for name in ("spoilt", "there"))
    world.drain()
    client, ledger = world.server.client, world.bench.ledger
    ledger.end_run(spoilt.ref.run_id, 1, "cancelled", None, 9, 1)  # type: ignore[arg-type]
    client.set(world.bench.store.keys.state(spoilt.ref), "nothing of ours", px=60_000)
    if loss == "behind":
        taken_away(world, there)
    world.another_server()
    assert world.recover() == []
    assert world.finish(there) == "succeeded"


def test_a_loss_is_kept_while_there_is_much_to_look_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times as long as a restorer that says nothing is believed to live, and another waits for its chance."""
    runs = [world.bench.planned(*steps("keyed"), name=f"r{i}") for i in range(4)]
    world.drain()
    world.another_server()
    rivals: list[Loss | None] = []
    real = verdicts.runs_behind

    def slowly(*given: Any) -> Any:
        (loss,) = world.bench.ledger.losses.open(world.bench.settings.namespace)
        world.wait(HOLD_MS * 3 // 4)
        rivals.append(world.bench.ledger.losses.claim(loss, "rival"))
        return real(*given)

    monkeypatch.setattr(verdicts, "PAGE", 1)
    monkeypatch.setattr(verdicts, "runs_behind", slowly)
    assert restore.recover(world.site) == []
    assert rivals == [None] * 4
    assert [world.finish(run) for run in runs] == ["succeeded"] * 4


# ---- a retry that nobody heard of


@pytest.mark.parametrize("again", [Again(), Again(("s0",), ("s0",))], ids=["plain", "with a new key"])
@pytest.mark.parametrize("moment", ["before the store", "before the ledger", "behind the ledger", "twice"])
def test_a_retry_that_broke_off_is_not_forgotten_with_the_store(
    world: World, again: Again, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.bench.planned(*steps("keyed", "keyed"), policy=narrowed(on_failure="stop"))
    ledger, store = world.bench.ledger, world.bench.store
    run.deliver("s0")
    cancelled(world, run)
    world.drain()

    def crash(*_: Any, **__: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patched:
        if moment == "behind the ledger":
            patched.setattr(ledger, "decision_done", crash)
        elif moment != "before the ledger":
            patched.setattr(store.runs, "retry", crash)
            patched.setattr(ledger.effects, "set_aside", lambda *_: None)  # it has not come to that either
        else:
            patched.setattr(ledger, "reopen_run", crash)
        with pytest.raises(Crash):
            decisions.retry(Desk(world.site.app, store, ledger), run.ref.run_id, "ann", again=again)
    world.forget()
    assert world.recover() == []
    if moment == "twice":
        with monkeypatch.context() as patched:
            patched.setattr(ledger, "decision_done", crash)
            with pytest.raises(Crash):
                apply_decisions.run_once(world.site.app, store, ledger)
        world.forget()
        assert world.recover() == []
    apply_decisions.run_once(world.site.app, store, ledger)
    assert [one.outcome for one in ledger.decisions_of(run.ref.run_id)] == ["retried:2"]
    audited(world)
    assert world.recover() == []
    assert world.finish(replace(run, generation=2)) == "succeeded"
    assert world.noted == (["s0", "s0", "s1"] if again else ["s0", "s1"])


def test_a_retry_of_which_too_little_is_known_is_not_carried_out(world: World) -> None:
    run = world.bench.planned(*steps("keyed", "once"), policy=narrowed(on_failure="stop"))
    ledger, store = world.bench.ledger, world.bench.store
    run.deliver("s0")
    cancelled(world, run)
    details = json.dumps({"from_steps": ["s0"], "new_keys": [{"step_id": "s0"}]})
    ledger.decide(run.ref.run_id, 1, "retry", "ann", None, details_text=details)
    world.forget()  # and nobody had heard how far it had come
    assert world.recover() == []
    apply_decisions.run_once(world.site.app, store, ledger)
    assert [one.outcome for one in ledger.decisions_of(run.ref.run_id)] == ["unknown"]
    row = ledger.run(run.ref.run_id)
    assert row is not None
    assert (row.generation, row.ended_at is None) == (1, False)


def test_a_run_in_pieces_is_not_closed_before_it_was_built_again(world: World) -> None:
    """Of steps that are not there nothing would be undone."""
    run = world.bench.planned(*steps("keyed", "fail"))
    run.deliver("s0")
    run.deliver("s1")
    world.drain()
    world.server.client.delete(world.bench.store.keys.part(run.ref, "steps"))
    assert run.settle() == Waiting("failing")
    assert audited(world).failed == 1
    assert world.recover() == []
    assert world.finish(run) == "compensated"
    assert world.undone == ["s0"]


# ---- by hand


def test_whoever_restores_by_hand_is_told_of_what_met_errors(
    redis_server: Server,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "AGAIN_MS", 300)
    with installation(redis_server.url, tmp_path, namespace=namespace, queue_prefix=f"{namespace}.", shards=2) as ours:
        sent = Submission(planner="p", context={})
        with identity(job_id="request"):
            answer = submission.submit(ours.app, ours.store, ours.ledger, ours.settings, sent, "request")
        shard, server = ours.store.keys.shard_of(answer.run_id), ours.store.scripts.server()
        with ours.ledger.begin() as connection:
            connection.execute(update(runs).values(policy_text='{"of": "another release"}'))
        redis_server.client.delete(*keys_of(redis_server.client, namespace))
        for one in range(2):
            ours.ledger.losses.found(namespace, one, "amnesia", server, 0)
        assert command.run(mandor, ["ledger", "restore"]) == 3
        said = capsys.readouterr()
        assert f"shard {1 - shard} (amnesia): nothing was missing" in said.out
        assert "1 shards of the state store stay shut: 1 of their runs met errors" in said.err
        assert command.run(mandor, ["ledger", "restore", "--json"]) == 3
        assert json.loads(capsys.readouterr().out)["error"]["kind"] == "store_amnesia"
