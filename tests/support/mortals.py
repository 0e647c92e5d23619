"""An installation whose processes can die anywhere: messages are delivered and supervisors run one after the other, in
this process, until nothing is left to do. Store and ledger are real, and go by one clock that the test moves.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from celery import Celery
from pydantic import BaseModel

from orchestrator import dispatch, submission
from orchestrator.decisions import Desk
from orchestrator.ledger import Ledger, LedgerRun, open_ledger
from orchestrator.settings import Settings, settings
from orchestrator.store import Store
from orchestrator.store.replies import DUTIES, Dispatch, Publish
from orchestrator.supervisors import (
    apply_decisions,
    end_waits,
    enforce_deadlines,
    reclaim_stale_leases,
    redispatch_lost_steps,
    retry_due_steps,
    settle_runs,
    trigger_compensation,
)
from orchestrator.telemetry.logs import identity
from schemas.ids import RunRef
from schemas.run import Submission
from tests.support.deaths import Doors, Freezer, When, doors
from tests.support.installation import celery_app
from tests.support.ledgers import fresh_ledger, url_of
from tests.support.plans import PLAN_ID
from tests.support.receiving import receive, write
from tests.support.servers import Server
from tests.support.stores import Clock, clocked_store
from workers.context import Context, PermanentError
from workers.identity import worker_id
from workers.registry import Registry
from workers.services import Services
from workers.workspace import Workspaces

Loss = Literal["child", "host"]
SWEEP_MS = 2000
WAIT_MS = 25 * 3_600_000  # longer than any wait for a person
TURNS = 400


class Params(BaseModel):
    x: int = 1


class Done(BaseModel):
    x: int


@dataclass
class World:
    """Outside: what was done there and taken back, in order, as (what, step, key).

    What has no more effect there leaves no line: what is keyed, under a key that was seen; what is idempotent, where it
    is so already. meanwhile: what goes on while the first process that comes to it is frozen; woken: how many changes
    there were when that woke up.
    """

    doors: Doors
    acts: list[tuple[str, str, str]] = field(default_factory=list)
    told: bool = False
    meanwhile: Callable[[], None] | None = None
    woken: int = 0

    def freeze(self) -> None:
        """Be gone for a while, and act upon none of it."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
            self.woken = len(self.doors.passed)

    def act(self, what: str, ctx: Context, effect: str) -> None:
        """One change outside."""
        self.doors.through(f"world {what}", lambda: self._change(what, ctx.step_id, ctx.idempotency_key, effect))

    def _change(self, what: str, step_id: str, key: str, effect: str) -> None:
        seen = (what, step_id, key) in self.acts
        is_so = self.stands(step_id) == (what == "do")
        if not (effect == "keyed" and seen) and not (effect == "idempotent" and is_so):
            self.acts.append((what, step_id, key))

    def count(self, what: str, step_id: str) -> int:
        """How often a step's effect was had, or taken back."""
        return sum((kind, step) == (what, step_id) for kind, step, _ in self.acts)

    def stands(self, step_id: str) -> bool:
        """Whether a step's effect was had and not taken back."""
        return self.count("do", step_id) > self.count("undo", step_id)


@dataclass
class Mortals:
    """loss: what a death takes along. A child's parent ends its claim, and the message comes back; a host's message is
    lost with it, and only what is due remains.
    """

    app: Celery
    store: Store
    clock: Clock
    ledger: Ledger
    settings: Settings
    registry: Registry
    doors: Doors
    world: World
    home: Path
    loss: Loss = "child"
    _runs: int = 0

    # ---- one run

    def submitted(
        self,
        *steps: dict[str, Any],
        fatal: Iterable[tuple[int, When]] = (),
        freezer: Freezer | None = None,
        **fields: Any,
    ) -> RunRef:
        """Another run of these steps, whose n-th change is somebody's last."""
        self.doors.begin(fatal, freezer)
        self.world.acts.clear()
        self.world.told = False
        self._runs += 1
        context: dict[str, Any] = {}
        plan = {
            "plan_id": PLAN_ID,
            "context_hash": Submission(planner="ready", context=context).context_hash(),
            "steps": list(steps),
        }
        name = f"run-{self._runs}"
        given = submission.read(
            {"plan": json.dumps(plan), "context": context, "request_id": name, **fields}, self.settings
        )
        policy = submission.resolve_policy(given, self.settings)[-1].policy
        row = submission.to_accept(given, policy, "celery", name, self.settings.namespace)
        self.insist(lambda: submission.submit(self.app, self.store, self.ledger, self.settings, given, name))
        return RunRef(row.run_id, row.session)

    def insist(self, ask: Callable[[], object]) -> None:
        """What a person or a client does, again until it is answered."""
        while not self._lives(lambda: self._as_itself(ask)):
            pass

    def _lives(self, process: Callable[[], object]) -> bool:
        """What one process does. Who forgets with each death, overrides this."""
        return self.doors.lives(process)

    def row(self, ref: RunRef) -> LedgerRun:
        found = self.ledger.run(ref.run_id)
        assert found is not None
        return found

    @property
    def desk(self) -> Desk:
        return Desk(self.app, self.store, self.ledger)

    # ---- until nothing is left to do

    def deliver_all(self, until: Callable[[], bool] = lambda: False) -> None:
        """Deliver what was sent, in order, until there is no more."""
        while self.doors.sent and not until():
            self._deliver(self.doors.sent.pop(0))

    def rest(self) -> None:
        """Deliver and sweep until every run has ended and nothing is due; a wait for a person comes last."""
        for turn in range(TURNS):
            self.deliver_all()
            if self.is_quiet():
                return
            self.turn(ms=WAIT_MS if turn % 100 == 99 else SWEEP_MS)
        raise AssertionError(f"it does not come to rest: {self.due()}")

    def turn(self, until: Callable[[], bool] = lambda: False, ms: int = SWEEP_MS) -> None:
        """Deliver what was sent, let the time pass, sweep."""
        self.deliver_all(until)
        if not until():
            self.clock.advance(ms)
            self.sweep()

    def is_quiet(self) -> bool:
        return not self.doors.sent and not self.due() and not self.ledger.pending_decisions(1) and not self.owed()

    def due(self) -> dict[str, list[Any]]:
        """What the store still wants to be looked at."""
        scripts = self.store.scripts
        found = {duty: scripts.ask("ZRANGE", self.store.keys.due(0, duty), 0, -1, "WITHSCORES") for duty in DUTIES}
        return {duty: members for duty, members in found.items() if members}

    def owed(self) -> list[Any]:
        return list(self.ledger.late.owed(self.clock.now + WAIT_MS, 10, self.settings.namespace))

    def sweep(self) -> None:
        """Every supervisor once, each a process of its own."""
        for run_once in self.passes():
            self._lives(partial(self._as_itself, run_once))

    def passes(self) -> tuple[Callable[[], object], ...]:
        """What the supervisors do."""
        app, store, ledger, given = self.app, self.store, self.ledger, self.settings
        return (
            lambda: reclaim_stale_leases.run_once(app, store, ledger, given),
            lambda: redispatch_lost_steps.run_once(app, store, given),
            lambda: retry_due_steps.run_once(app, store, given),
            lambda: enforce_deadlines.run_once(app, store, given),
            lambda: settle_runs.run_once(app, store, ledger, given),
            lambda: end_waits.run_once(app, store, ledger, given),
            lambda: apply_decisions.run_once(app, store, ledger),
            lambda: trigger_compensation.run_once(app, store, ledger, given),
        )

    def _as_itself(self, process: Callable[[], object]) -> None:
        with identity():
            process()

    def _deliver(self, message: Dispatch) -> None:
        delivery = partial(receive, message, self.services(), self.app)
        if self._lives(lambda: self._as_itself(delivery)) or self.loss == "host":
            return
        if message.kind in ("plan", "step", "undo"):
            self.doors.lives(lambda: self.store.guard.end_claim(message.ref, message.step_id, worker_id()))
        self.doors.sent.append(message)

    def services(self) -> Services:
        workspaces = Workspaces(self.home)
        keep = partial(write, app=self.app, ledger=self.ledger)
        return Services(self.settings, self.store, self.ledger, self.registry, workspaces, _Publisher(self.app), keep)


@dataclass(frozen=True)
class _Publisher:
    app: Celery

    def publish(self, wave: Publish) -> None:
        dispatch.publish(self.app, wave)

    def open_chord(self, ref: RunRef, generation: int, size: int) -> None:
        dispatch.open_chord(self.app, ref, generation, size)


M = TypeVar("M", bound=Mortals)


@contextmanager
def mortals(
    server: Server, namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type[M]
) -> Iterator[M]:
    """An installation of its own, with actions of every class that act on its world."""
    store, clock = clocked_store(server.url, namespace)
    fresh_ledger(folder)
    ledger = open_ledger(url_of(folder / "ledger.db"), clock=lambda: clock.now)
    with celery_app(server.url, queue_prefix=f"{namespace}.", home=folder, namespace=namespace) as app:
        given = settings()
        made = doors(monkeypatch)
        world = World(made)
        yield kind(app, store, clock, ledger, given, actions(world, ledger), made, world, folder)
    store.close()
    ledger.close()


# ---- what steps do


def actions(world: World, ledger: Ledger) -> Registry:
    """One action of each class, named as it, that acts on the world and is taken back; and some that fail."""
    registry = Registry()
    _prepare_sales(ledger)
    for effect in ("pure", "idempotent", "keyed", "once"):
        _declare(registry, world, effect)
    _declare_sale(registry)
    _declare_failing(registry, world)
    _declare_flaky(registry, world)
    _declare_lasting(registry, world)
    _declare_frozen(registry, world)
    return registry


def _declare(registry: Registry, world: World, effect: Any) -> None:
    @registry.action(effect, effect=effect, attempts=4)
    def do(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, effect)
        return Done(x=params.x)

    if effect != "pure":
        do.compensation(_undo_in(world, effect))


def _undo_in(world: World, effect: str) -> Callable[[Params, Done | None, Context], None]:
    def take_back(params: Params, done: Done | None, ctx: Context) -> None:
        if done is not None or world.stands(ctx.step_id):  # where it is in doubt, the other side is asked
            world.act("undo", ctx, effect)

    return take_back


def _declare_failing(registry: Registry, world: World) -> None:
    @registry.action("fails", effect="pure")
    def fails(params: Params, ctx: Context) -> Done:
        raise PermanentError("it will never work")

    @registry.action("until_told", effect="pure", attempts=3)
    def until_told(params: Params, ctx: Context) -> Done:
        if not world.told:
            raise PermanentError("nobody has told me")
        return Done(x=params.x)


def _declare_flaky(registry: Registry, world: World) -> None:
    @registry.action("flaky", effect="keyed", attempts=4)
    def flaky(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, "keyed")
        if ctx.attempt == 1:
            raise RuntimeError("not yet")
        return Done(x=params.x)

    flaky.compensation(_undo_in(world, "keyed"))


def _declare_lasting(registry: Registry, world: World) -> None:
    @registry.action("stays", effect="keyed")
    def stays(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, "keyed")
        return Done(x=params.x)

    @stays.compensation
    def cannot(params: Params, done: Done | None, ctx: Context) -> None:
        raise PermanentError("it cannot be taken back")


def _declare_frozen(registry: Registry, world: World) -> None:
    """They act when they wake up, behind every guard; one of them has no answer then."""

    @registry.action("wakes", effect="keyed", attempts=1)
    def wakes(params: Params, ctx: Context) -> Done:
        world.freeze()
        world.act("do", ctx, "keyed")
        return Done(x=params.x)

    @registry.action("wakes_and_raises", effect="keyed", attempts=1)
    def wakes_and_raises(params: Params, ctx: Context) -> Done:
        wakes(params, ctx)
        raise TimeoutError("no answer")

    for action in (wakes, wakes_and_raises):
        action.compensation(_undo_in(world, "keyed"))


def _prepare_sales(ledger: Ledger) -> None:
    with ledger.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE sales (run TEXT, step TEXT, what TEXT)")


def _declare_sale(registry: Registry) -> None:
    def sell(ctx: Context, what: str, result: Any) -> None:
        with ctx.ledger().begin() as connection:
            ctx.effect(connection, result)
            values = (ctx.run_id, ctx.step_id, what)
            connection.exec_driver_sql("INSERT INTO sales VALUES (?, ?, ?)", values)

    @registry.action("transactional", effect="transactional", attempts=4)
    def sale(params: Params, ctx: Context) -> Done:
        done = Done(x=params.x)
        sell(ctx, "do", done)
        return done

    @sale.compensation
    def take_back(params: Params, done: Done | None, ctx: Context) -> None:
        sell(ctx, "undo", None)


def sales(ledger: Ledger, ref: RunRef, step_id: str, what: str) -> int:
    """How often a step's row stands in the users' own table."""
    with ledger.begin() as connection:
        rows = connection.exec_driver_sql(
            "SELECT count(*) FROM sales WHERE run = ? AND step = ? AND what = ?", (ref.run_id, step_id, what)
        )
        return int(rows.scalar_one())
