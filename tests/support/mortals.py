"""An installation whose processes can die anywhere: messages are delivered and supervisors run one after the other, in
this process, until nothing is left to do. Store and ledger are real, and go by one clock that the test moves.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from celery import Celery

from orchestrator import dispatch, submission
from orchestrator.decisions import Desk
from orchestrator.ledger import Ledger, LedgerRun, open_ledger, sqlite
from orchestrator.settings import Settings, settings
from orchestrator.store import Store
from orchestrator.store.replies import DUTIES, Dispatch, Publish
from orchestrator.supervisors import (
    apply_decisions,
    drain_ledger,
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
from tests.support.outside import World, actions
from tests.support.plans import PLAN_ID
from tests.support.receiving import receive, write
from tests.support.servers import Server
from tests.support.stores import Clock, clocked_store
from workers.identity import worker_id
from workers.registry import Registry
from workers.services import Services
from workers.workspace import Workspaces

Loss = Literal["child", "parent", "host"]
CLAIMING = ("plan", "step", "undo")  # messages whose worker holds a claim
ONE_TRY = ("close", "late")  # messages that go with the child that has them in hand: a supervisor looks again
SWEEP_MS = 2000
NAP_MS = 6000  # passes that are further apart than half a lease take each other for the end of an outage
WAIT_MS = 25 * 3_600_000  # longer than any wait for a person
TURNS = 400


@dataclass
class Mortals:
    """loss: what the death of a worker takes along.

    child: its parent ends its claim, and the message comes back; parent: nobody ends it, and the message comes back all
    the same; host: the message is lost too, and only what is due remains. drained: whether the ledger is told of every
    transition meanwhile.
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
    drained: bool = False
    _runs: int = 0

    # ---- one run

    def submitted(
        self,
        *steps: dict[str, Any],
        fatal: Iterable[tuple[int, When]] = (),
        freezer: Freezer | None = None,
        planner: str | None = None,
        **fields: Any,
    ) -> RunRef:
        """Another run of these steps, whose n-th change is somebody's last. planner: who answers with them."""
        self.doors.begin(fatal, freezer)
        self.world.begin()
        self._runs += 1
        context: dict[str, Any] = {}
        plan = {
            "plan_id": PLAN_ID,
            "context_hash": Submission(planner="ready", context=context).context_hash(),
            "steps": list(steps),
        }
        self.world.plan = plan
        name = f"run-{self._runs}"
        planned = {"planner": planner, "goal": "do it"} if planner else {"plan": json.dumps(plan)}
        given = submission.read({**planned, "context": context, "request_id": name, **fields}, self.settings)
        policy = submission.resolve_policy(given, self.settings)[-1].policy
        row = submission.to_accept(given, policy, "celery", name, self.settings.namespace)
        self.insist(lambda: submission.submit(self.app, self.store, self.ledger, self.settings, given, name))
        return RunRef(row.run_id, row.session)

    def insist(self, ask: Callable[[], object]) -> None:
        """What a person or a client does, again until it is answered."""
        while not self.asked(ask):
            pass

    def asked(self, ask: Callable[[], object]) -> bool:
        """What a person or a client does once. False: no answer came."""
        return self._lives(lambda: self._as_itself(ask))

    def _lives(self, process: Callable[[], object], message: str = "") -> bool:
        """What one process does. Who forgets with each death, overrides this."""
        return self.doors.lives(process, message)

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
            self.turn(ms=WAIT_MS if turn % 100 == 99 else None)
        raise AssertionError(f"it does not come to rest: {self.due()}")

    def turn(self, until: Callable[[], bool] = lambda: False, ms: int | None = None) -> None:
        """Deliver what was sent, let the time pass, sweep."""
        self.deliver_all(until)
        if not until():
            self.clock.advance(ms or self.idle_ms())
            self.sweep()

    def idle_ms(self) -> int:
        """How long there is nothing to look at, within reason."""
        next_look = min((float(members[0][1]) for members in self.due().values()), default=0)
        return min(max(int(next_look) - self.clock.now, SWEEP_MS), NAP_MS)

    def is_quiet(self) -> bool:
        return not self.doors.sent and not self.due() and not self.ledger.pending_decisions(1) and not self.owed()

    def due(self) -> dict[str, list[Any]]:
        """What the store still wants to be looked at, and when, the first in front."""
        asked = [("ZRANGE", self.store.keys.due(0, duty), 0, -1, "WITHSCORES") for duty in DUTIES]
        found = zip(DUTIES, self.store.scripts.ask_all(asked), strict=True)
        return {duty: members for duty, members in found if members}

    def owed(self) -> list[Any]:
        return list(self.ledger.late.owed(self.clock.now + WAIT_MS, 10, self.settings.namespace))

    def sweep(self) -> None:
        """Every supervisor once, each a process of its own."""
        for run_once in self.passes():
            self._lives(partial(self._as_itself, run_once))

    def passes(self) -> tuple[Callable[[], object], ...]:
        """What the supervisors do."""
        app, store, ledger, given = self.app, self.store, self.ledger, self.settings
        drain = (lambda: drain_ledger.run_once(store, ledger, given),) if self.drained else ()
        return (
            lambda: reclaim_stale_leases.run_once(app, store, ledger, given),
            lambda: redispatch_lost_steps.run_once(app, store, given),
            lambda: retry_due_steps.run_once(app, store, given),
            lambda: enforce_deadlines.run_once(app, store, given),
            lambda: settle_runs.run_once(app, store, ledger, given),
            lambda: end_waits.run_once(app, store, ledger, given),
            lambda: apply_decisions.run_once(app, store, ledger),
            lambda: trigger_compensation.run_once(app, store, ledger, given),
            *drain,
        )

    def _as_itself(self, process: Callable[[], object]) -> None:
        with identity():
            process()

    def _deliver(self, message: Dispatch) -> None:
        delivery = partial(receive, message, self.services(), self.app)
        if self._lives(lambda: self._as_itself(delivery), message.kind) or self.loss == "host":
            return
        if self.loss == "child" and message.kind in ONE_TRY:
            return
        if self.loss == "child" and message.kind in CLAIMING:
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


connect = sqlite.connect


def connect_without_disk(path: Path, busy_s: float) -> sqlite3.Connection:
    """Processes die here, and no machine does: what the disk has is the same to all, and waiting for it takes long."""
    connection = connect(path, busy_s)
    connection.execute("PRAGMA synchronous=OFF").close()
    return connection


M = TypeVar("M", bound=Mortals)


@contextmanager
def mortals(
    server: Server, namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type[M]
) -> Iterator[M]:
    """An installation of its own, with actions of every class that act on its world."""
    store, clock = clocked_store(server.url, namespace)
    monkeypatch.setattr(sqlite, "connect", connect_without_disk)
    fresh_ledger(folder)
    ledger = open_ledger(url_of(folder / "ledger.db"), clock=lambda: clock.now)
    with celery_app(server.url, queue_prefix=f"{namespace}.", home=folder, namespace=namespace) as app:
        given = settings()
        made = doors(monkeypatch)
        world = World(made)
        yield kind(app, store, clock, ledger, given, actions(world, ledger), made, world, folder)
    store.close()
    ledger.close()
