"""The throw-away installation as scenarios use it. Imported only once its settings are this process's own."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from orchestrator import app as celery_app
from orchestrator import dispatch, names
from orchestrator.client import Client
from orchestrator.errors import MandorError, StoreError
from orchestrator.ledger import Ledger
from orchestrator.local import EmbeddedServer
from orchestrator.lookup import Lookup
from orchestrator.policies import FROM_BROKER
from orchestrator.settings import Settings, settings
from orchestrator.store import Store
from orchestrator.store.views import StepState
from schemas.ids import run_id_for
from schemas.states import RUN_TERMINAL
from workers.faults import orders, trouble
from workers.faults.driven import Driven
from workers.faults.hands import Hands
from workers.faults.log import Act, Log
from workers.faults.orders import Order
from workers.faults.scene import SUCCEEDED, Scene, Wanted

SESSION: Final = "faults"  # of all runs: nothing may be keyed by it
LOOK_S: Final = 0.05
ANSWER_S: Final = 30.0


class TooLate(MandorError):
    """What was bound to happen did not, in the time that it has."""

    kind = "too_late"


class Floor:
    """Processes, server, ledger and log of one installation, and what scenarios do with them."""

    def __init__(self, folder: Path, server: EmbeddedServer, hands: Hands, driven: Driven) -> None:
        self.folder = folder
        self.server = server
        self.hands = hands
        self.driven = driven
        self.log = Log(folder)
        self.steps: list[StepState] = []  # of the plan, as the rehearsal had them
        self.patience_s = 60.0  # how long anything may take
        self._client = Client()
        self._handled: set[int] = set()

    @property
    def settings(self) -> Settings:
        return settings()

    @property
    def app(self) -> Any:
        """The Celery app, whose broker and results are the server."""
        return celery_app.app

    @property
    def store(self) -> Store:
        return celery_app.store()

    @property
    def ledger(self) -> Ledger:
        return celery_app.ledger()

    @property
    def lookup(self) -> Lookup:
        return Lookup(self.ledger, self.store)

    # ---- runs

    def announce(self, scene: Scene, count: int, ends: frozenset[str] = SUCCEEDED, **policy: Any) -> list[Wanted]:
        """Runs that will be, so that orders for them can be given before they begin."""
        limits = {"lease_s": self.settings.lease_s, **policy.pop("limits", {})}
        made = []
        for number in range(len(scene.runs), len(scene.runs) + count):
            request_id = f"{scene.seed}-{scene.name}-{number}".lower()
            run_id = run_id_for(FROM_BROKER, SESSION, request_id)
            fields = {**self.driven.fields(request_id), "session_id": SESSION, "request_id": request_id}
            made.append(Wanted(run_id, {**fields, "policy": {"limits": limits, **policy}}, ends))
        scene.runs += made
        return made

    def submit(self, runs: Iterable[Wanted]) -> None:
        """Submit, each as soon as the one before is accepted."""
        for run in runs:
            self._client.submit(timeout_s=ANSWER_S, **run.fields)

    def send(self, runs: Iterable[Wanted]) -> None:
        """The same, without waiting for the answers."""
        for run in runs:
            self._client.send(**run.fields)

    def order(self, given: Iterable[Order]) -> None:
        """From here on this is ordered, and nothing else."""
        orders.put(self.folder, given)

    def is_over(self, run_id: str) -> bool:
        """Whether the run has ended; not yet, while nobody can say."""
        row = self.ledger.run(run_id)
        if row is None:
            return False
        try:
            state = self.lookup.state(row)
        except StoreError:
            return False
        return (state.status if state else row.status) in RUN_TERMINAL

    def is_idle(self) -> bool:
        """Whether no message waits for a worker."""
        prefix = self.settings.queue_prefix
        return not any(dispatch.queue_depth(self.app, names.queue(prefix, name)) for name in ("control", "steps"))

    def restart_server(self, away_s: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Stop the server, let time pass, start it where it was."""
        self.hands.forget(self.server.pid)
        self.server.stop()
        meanwhile()
        self.pause(away_s)
        self.server.start()
        self.hands.guard(self.server.pid)

    # ---- time

    def until(self, look: Callable[[], object], what: str, timeout_s: float | None = None) -> None:
        """Return as soon as it is so; whoever ends meanwhile is started again. TooLate names what was waited for."""
        timeout_s = self.patience_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while not look():
            if time.monotonic() > deadline:
                raise TooLate(f"{what}: not within {timeout_s:g} s", hint="see the processes' logs; --keep keeps them")
            self.hands.tend()
            time.sleep(LOOK_S)

    def until_over(self, scene: Scene, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Until every run of the scene has ended."""
        left = set(scene.run_ids())

        def all_over() -> bool:
            meanwhile()
            left.difference_update([run_id for run_id in left if self.is_over(run_id)])
            return not left

        self.until(all_over, "the end of all runs")

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        over = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > over, "time", seconds + self.patience_s)

    # ---- orders that were carried out

    def ordered(self, scene: Scene) -> list[Act]:
        """What orders of this scene have been carried out, or are."""
        return self.log.acts(run_ids=scene.run_ids(), what="ordered")

    def holding(self, scene: Scene) -> list[Act]:
        """Processes that hold by an order, and have not been dealt with."""
        held = [act for act in self.ordered(scene) if act.details["deed"] == "hold"]
        return [act for act in held if act.number not in self._handled]

    def kill_holding(self, scene: Scene) -> None:
        """SIGKILL to every process that holds."""
        for act in self.holding(scene):
            self._handled.add(act.number)
            scene.fault(f"child killed, {act.details['place']}", act.run_id, act.step_id)
            os.kill(act.pid, signal.SIGKILL)

    def let_go(self, held: Iterable[Act]) -> None:
        """They may go on."""
        for act in held:
            self._handled.add(act.number)
            orders.let_go(self.folder, act.details["order"])

    def worker_of(self, act: Act) -> str | None:
        """The process whose child did that."""
        return self.hands.name_of(trouble.group_of(act.pid))
