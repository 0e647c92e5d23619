"""A whole running system: server, ledger, planner, control, supervisors, beat and step workers, all real."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator import dispatch
from orchestrator.lookup import Lookup
from schemas.ids import RunRef, session_key
from schemas.run import RunView, Submission
from tests.support.business import effects
from tests.support.environment import clean_environment
from tests.support.installation import Installation, lasting_installation
from tests.support.processes import Processes
from tests.support.waiting import eventually

LEASE_S = 3.0
SWEEP_S = 0.5
ACTIONS = "tests.support.business"
SHORT = {"lease_s": LEASE_S, "sweep_s": SWEEP_S, "stop_grace_s": 1, "log_format": "json"}


@dataclass(frozen=True)
class System:
    """Everything that one test needs of a running system."""

    installed: Installation
    processes: Processes
    effect_log: Path
    step_workers: list[str] = field(default_factory=list)

    def submit(self, *steps: dict[str, Any], context: Any = None, plan_id: str | None = None, **fields: Any) -> str:
        """A ready plan of these steps; answers the run id once the run is accepted."""
        plan = plan_text(*steps, context=context, plan_id=plan_id)
        return self.send({"plan": plan, "context": context or {}, **fields})

    def send(self, fields: dict[str, Any]) -> str:
        """Any submission, as a Celery client sends it; answers the run id."""
        result = dispatch.send_submission(self.installed.app, fields, str(uuid4()))
        answer = dispatch.await_answer(result, 30)
        assert answer is not None, f"no answer to the submission\n{self.processes.tail()}"
        return str(answer["run_id"])

    def submit_together(self, plans: Sequence[Sequence[dict[str, Any]]], **fields: Any) -> list[str]:
        """Ready plans, all sent before the first is answered; answers their run ids once all are accepted."""
        wanted = [{"plan": plan_text(*steps), "context": {}, **fields} for steps in plans]
        sent = [dispatch.send_submission(self.installed.app, one, str(uuid4())) for one in wanted]
        answers = [dispatch.await_answer(result, 60) for result in sent]
        assert None not in answers, f"no answer to a submission\n{self.processes.tail()}"
        return [str(answer["run_id"]) for answer in answers if answer]

    def view(self, run_id: str) -> RunView:
        return Lookup(self.installed.ledger, self.installed.store).run(run_id)

    def wait(self, run_id: str, *, timeout_s: float = 30.0, every_s: float = 0.01) -> RunView:
        """The run once it has ended and the letters about it are written."""
        try:
            what = f"the end of {run_id}"
            eventually(lambda: self.has_ended(run_id), timeout_s=timeout_s, every_s=every_s, what=what)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.view(run_id)}\n{self.processes.tail()}") from None
        return self.view(run_id)

    def has_ended(self, run_id: str) -> bool:
        """The ledger, which is told last, knows of the end."""
        row = self.installed.ledger.run(run_id)
        return row is not None and row.ended_at is not None

    def effects(self, **wanted: Any) -> list[dict[str, Any]]:
        """Lines of the effect log with these fields."""
        return [line for line in effects(self.effect_log) if all(line[name] == value for name, value in wanted.items())]

    def events(self, run_id: str, session_id: str | None = None) -> Any:
        """The run's transitions, as the store has them."""
        return self.installed.store.views.events(RunRef(run_id, session_key(session_id)))

    def start_control(self) -> None:
        """All roles but step workers."""
        with self.processes.together():
            self.processes.worker("control", queues="control", concurrency=1)
            self.processes.worker("planner", queues="plan", concurrency=1)
            self.processes.worker("supervise", queues="supervise", concurrency=1)
            self.processes.beat()

    def start_steps(
        self, name: str = "steps", *, concurrency: int = 2, queues: str = "steps", env: Mapping[str, str] | None = None
    ) -> None:
        """A step worker; it ends with the test."""
        self.step_workers.append(name)
        self.processes.worker(name, queues=queues, concurrency=concurrency, env=env)

    def end_steps(self) -> None:
        """Kill the step workers and drop what they left in their queue."""
        while self.step_workers:
            self.processes.kill(self.step_workers.pop())
        self.installed.app.backend.client.delete(f"{self.installed.settings.prefix}steps")


def plan_text(*steps: dict[str, Any], context: Any = None, plan_id: str | None = None) -> str:
    """A plan for this context."""
    context_hash = Submission(planner="x", context=context or {}).context_hash()
    return json.dumps({"plan_id": plan_id or str(uuid4()), "context_hash": context_hash, "steps": list(steps)})


def step(action: str, name: str | None = None, needs: list[str] | None = None, **params: Any) -> dict[str, Any]:
    """One step of a plan."""
    extra = {key: value for key, value in (("id", name), ("needs", needs)) if value is not None}
    return {"action": action, "params": params, **extra}


def result_of(step_id: str) -> dict[str, str]:
    """The `value` of another step's result."""
    return {"$result": step_id, "path": "/value"}


@contextmanager
def running_system(redis_url: str, folder: Path, *, actions: str = ACTIONS, **settings: Any) -> Iterator[System]:
    """A system with short leases. Nothing runs yet but what the test starts."""
    given = {**SHORT, "actions": actions, **settings}
    log = folder / "effects.log"
    home = folder / "home"
    with lasting_installation(redis_url, home, **given) as installed:
        env = {**clean_environment(redis_url=redis_url, home=home, **given), "EFFECT_LOG": str(log)}
        with Processes(env, folder) as processes:
            system = System(installed, processes, log)
            try:
                yield system
            finally:
                system.end_steps()
