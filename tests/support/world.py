"""A run on real servers, the ledger that accepted it and a broker: for decisions about it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery

from orchestrator import dispatch, progress
from orchestrator.decisions import Desk
from orchestrator.ledger import Ledger, LedgerRun
from orchestrator.store.views import RunState
from orchestrator.supervisors import apply_decisions
from orchestrator.supervisors.passes import Counts
from orchestrator.telemetry.logs import identity
from schemas.states import EffectClass, Fact
from tests.support.installation import celery_app
from tests.support.ledgers import fresh_ledger, run_named
from tests.support.servers import Server
from tests.support.stores import Scene, clocked_store, name_in, new_step, ref_of


class World(Scene):
    """One run, the ledger that accepted it, and a broker."""

    app: Celery
    ledger: Ledger
    server: Server
    queue: str

    @property
    def desk(self) -> Desk:
        return Desk(self.app, self.store, self.ledger)

    @property
    def run_id(self) -> str:
        return self.ref.run_id

    @property
    def run(self) -> RunState:
        found = self.store.views.run(self.ref)
        assert found is not None
        return found

    @property
    def row(self) -> LedgerRun:
        found = self.ledger.run(self.run_id)
        assert found is not None
        return found

    def step(self, name: str, index: int, *needs: str, **changes: Any) -> Any:
        return new_step(name, index, *needs, queue=self.queue, **changes)

    def repeat(self) -> Counts:
        return apply_decisions.run_once(self.app, self.store, self.ledger)

    def settle(self) -> None:
        with identity():
            progress.settle_due(self.app, self.store, self.ledger, self.ref)

    def fail(self, step_id: str, fact: Fact = Fact.NONE) -> None:
        """The step's attempt raises for good; what its row says is closed before, as a worker does it."""
        granted = self.claim(step_id)
        if fact is Fact.MAYBE:
            self.ledger.effects.open(
                self.run_id, step_id, "do", granted.fence, granted.token, EffectClass(granted.effect)
            )
        self.ledger.effects.close(self.run_id, step_id, "do", granted.fence)
        self.store.guard.fail_step(self.ref, step_id, granted.fence, f"claim-{step_id}", fact, "{}", False)

    def claim_again(self, step_id: str, generation: int) -> Any:
        return self.store.guard.claim_step(
            self.ref, step_id, generation=generation, claim_id=f"again-{step_id}", worker="host:2:2"
        )

    def depth(self) -> int:
        return dispatch.queue_depth(self.app, self.queue)


@contextmanager
def world_on(server: Server, namespace: str, folder: Path, shards: int = 1) -> Iterator[World]:
    """The run lies in the last of the shards."""
    store, clock = clocked_store(server.url, namespace, shards)
    name = name_in(store, shards - 1)
    with celery_app(server.url, queue_prefix=f"{namespace}.", home=folder) as app:
        made = World(store, clock, ref_of(name))
        made.app, made.server, made.queue = app, server, f"{namespace}.steps"
        made.ledger = fresh_ledger(folder)
        made.ledger.accept(run_named(name, namespace=namespace))
        yield made
        store.close()
