"""The throw-away installation as scenarios use it. Imported only once its settings are this process's own."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from orchestrator import app as celery_app
from orchestrator import dispatch, names
from orchestrator.client import Client
from orchestrator.errors import NotFound, StoreError
from orchestrator.ledger import Ledger
from orchestrator.local import EmbeddedServer
from orchestrator.lookup import Lookup
from orchestrator.policies import FROM_BROKER
from orchestrator.settings import Settings, settings
from orchestrator.store import Store
from orchestrator.store.views import StepState
from schemas.ids import run_id_for
from schemas.states import RUN_TERMINAL
from workers.faults.driven import Driven
from workers.faults.ground import Ground
from workers.faults.hands import Hands
from workers.faults.scene import SUCCEEDED, Scene, Wanted

SESSION: Final = "faults"  # of all runs: nothing may be keyed by it
ANSWER_S: Final = 30.0


class Floor(Ground):
    """An installation of Mandor: besides its processes, its runs, its store and its ledger."""

    def __init__(self, folder: Path, server: EmbeddedServer, hands: Hands, driven: Driven) -> None:
        super().__init__(folder, server, hands)
        self.driven = driven
        self.steps: list[StepState] = []  # of the plan, as the rehearsal had them
        self.most_at_once = 1  # of them
        self._client = Client()

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

    def letter(self, run_id: str, step_id: str) -> str:
        """The letter about a step of a run that has ended."""
        found = [letter.id for letter in self.ledger.letters(1000, run_id=run_id) if letter.step_id == step_id]
        if not found:
            raise NotFound(f"no letter tells of {step_id} of {run_id}")
        return found[0]

    # ---- runs

    def announce(self, scene: Scene, count: int, ends: frozenset[str] = SUCCEEDED, **policy: Any) -> list[Wanted]:
        """Runs that will be, so that orders for them can be given before they begin."""
        limits = {"lease_s": self.settings.lease_s, **policy.pop("limits", {})}
        callback = {"callback": scene.callback} if scene.callback else {}
        made = []
        for number in range(len(scene.runs), len(scene.runs) + count):
            request_id = "-".join(filter(None, (str(scene.seed), scene.name, str(number), scene.call))).lower()
            run_id = run_id_for(FROM_BROKER, SESSION, request_id)
            fields = {**self.driven.fields(request_id), "session_id": SESSION, "request_id": request_id, **callback}
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
        prefix = self.settings.prefix
        return not any(dispatch.queue_depth(self.app, names.queue(prefix, name)) for name in ("control", "steps"))

    def until_late_is_undone(self) -> None:
        """Until nothing is owed of what came late."""
        ledger, namespace = self.ledger, self.settings.namespace
        self.until(lambda: not ledger.late.owed(ledger.now_ms(), 1, namespace), "late effects are seen to")

    def until_over(self, scene: Scene, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Until every run of the scene has ended."""
        left = set(scene.run_ids())

        def all_over() -> bool:
            meanwhile()
            left.difference_update([run_id for run_id in left if self.is_over(run_id)])
            return not left

        self.until(all_over, "the end of all runs")
