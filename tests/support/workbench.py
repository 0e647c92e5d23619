"""A worker without Celery: real store, real ledger, actions of the test's own; messages are kept instead of sent."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator import startover
from orchestrator.ledger import Accepted, AcceptedRun, Ledger
from orchestrator.settings import Settings
from orchestrator.startover import Again
from orchestrator.store import Store, replies
from orchestrator.store.decided import Retried
from orchestrator.store.replies import Created, Publish
from orchestrator.store.views import RunState, StepState
from orchestrator.submission import to_create
from schemas.dead_letter import DeadLetter
from schemas.ids import RunRef, run_id_for, session_key
from schemas.messages import CloseMessage, LateMessage, PlanMessage, StepMessage, UndoMessage
from schemas.policy import Policy, PolicyRequest, meet, policy_hash, policy_text
from schemas.run import Submission, submission_hash, submission_text
from tests.support.ledgers import fresh_ledger
from tests.support.plans import PLAN_ID
from tests.support.stores import Clock, clocked_store
from workers import closing, execution, late, planning, undo
from workers.registry import Registry
from workers.reports import Report
from workers.services import Letter, Services
from workers.workspace import Workspaces


@dataclass
class Outbox:
    """What would have gone to the broker."""

    waves: list[Publish] = field(default_factory=list)
    chords: list[tuple[RunRef, int, int]] = field(default_factory=list)

    def publish(self, wave: Publish) -> None:
        if wave:
            self.waves.append(wave)

    def open_chord(self, ref: RunRef, generation: int, size: int) -> None:
        self.chords.append((ref, generation, size))

    def sent(self, kind: str = "step") -> list[str | None]:
        """The step ids (None for plan and settle) that were sent, in order."""
        return [member.step_id for wave in self.waves for member in wave if member.kind == kind]


@dataclass
class Workbench:
    """One installation, and short words for what is done in it."""

    settings: Settings
    store: Store
    clock: Clock
    ledger: Ledger
    registry: Registry = field(default_factory=Registry)
    outbox: Outbox = field(default_factory=Outbox)
    letters: list[Letter] = field(default_factory=list)

    @property
    def services(self) -> Services:
        return Services(
            self.settings,
            self.store,
            self.ledger,
            self.registry,
            Workspaces(self.settings.home),
            self.outbox,
            self._keep_letter,
        )

    def submit(self, name: str = "run", *, policy: Policy | None = None, **fields: Any) -> "Run":
        """Accept a run: `planner=…, context=…`, or `plan=<text>`."""
        submission = Submission(**fields)
        ref = RunRef(run_id_for("celery", submission.session_id, name), session_key(submission.session_id))
        chosen = policy or Policy()
        row = AcceptedRun(
            run_id=ref.run_id,
            session=ref.session,
            session_id=submission.session_id,
            request_id=name,
            principal="celery",
            submission_hash=submission_hash(submission),
            submission_text=submission_text(submission),
            policy_text=policy_text(chosen),
            policy_hash=policy_hash(chosen),
            context_hash=submission.context_hash(),
            deadline_ms=3_600_000,
            planner=submission.planner,
            namespace=self.settings.namespace,
            callback=submission.callback,
        )
        accepted = self.ledger.accept(row)
        assert isinstance(accepted, Accepted)
        assert isinstance(self.store.runs.create_run(ref, to_create(accepted.run, self.settings)), Created)
        return Run(self, ref)

    def planned(self, *steps: dict[str, Any], name: str = "run", policy: Policy | None = None, **fields: Any) -> "Run":
        """Accept a run with a ready plan of these steps, and have it planned."""
        context = fields.pop("context", {})
        context_hash = Submission(planner="ready", context=context).context_hash()
        plan = json.dumps({"plan_id": PLAN_ID, "context_hash": context_hash, "steps": steps})
        run = self.submit(name, policy=policy, plan=plan, context=context, **fields)
        run.plan()
        return run

    def _keep_letter(self, letter: Letter) -> str:
        self.letters.append(letter)
        kept = DeadLetter(
            id=f"letter-{len(self.letters)}",
            kind=letter.kind,
            run_id=letter.ref.run_id,
            step_id=letter.step_id,
            reason=letter.reason,
            created_at=1,
            content=letter.content,
        )
        return self.ledger.write_letter(kept, letter.dedup_key, self.settings.namespace)


@dataclass(frozen=True)
class Run:
    """One run on a workbench."""

    bench: Workbench
    ref: RunRef
    generation: int = 1

    def plan(self) -> Report:
        """Deliver the plan message once."""
        message = PlanMessage(run_id=self.ref.run_id, session=self.ref.session, generation=1)
        return planning.plan_run(message, self.bench.services)

    def message(self, step_id: str) -> StepMessage:
        return StepMessage(
            run_id=self.ref.run_id, session=self.ref.session, generation=self.generation, step_id=step_id
        )

    def deliver(self, step_id: str = "s0") -> Report:
        """Deliver a step's message once."""
        return execution.run_step(self.message(step_id), self.bench.services)

    def settle(self) -> Any:
        """Have the run closed, or undone; what is to be sent is in the outbox."""
        reply = self.bench.store.runs.settle(self.ref, self.generation)
        self.bench.outbox.publish(getattr(reply, "publish", ()))
        return reply

    def start_over(self, *from_steps: str) -> "Run":
        """The run in its next generation, begun as a retry from these steps does it."""
        store, again = self.bench.store, Again(from_steps)
        redone = startover.set_aside(self.bench.ledger, store, self.ref, self.generation, again)
        reply = store.runs.retry(self.ref, self.generation, "ann", 3_600_000, redone, [])
        assert isinstance(reply, Retried)
        self.bench.outbox.publish(reply.publish)
        return replace(self, generation=reply.generation)

    def undo(self, step_id: str = "s0") -> Report:
        """Deliver the message that undoes a step once."""
        return undo.run_undo(UndoMessage(**self.message(step_id).model_dump()), self.bench.services)

    def undo_late(self, fence: int, step_id: str = "s0") -> Report:
        """Deliver the message that undoes what came late."""
        message = LateMessage(**self.message(step_id).model_dump(), fence=fence)
        return late.undo_late(message, self.bench.services)

    def close(self, step_id: str = "s0") -> Report:
        """Deliver the message that asks a step's action what became of a lost attempt."""
        return closing.close_lost(CloseMessage(**self.message(step_id).model_dump()), self.bench.services)

    def undo_all(self) -> list[str]:
        """Begin to undo, deliver each message as it is sent, and close the run; the steps in that order."""
        self.settle()
        done: list[str] = []
        while len(sent := self.bench.outbox.sent("undo")) > len(done):
            done.append(str(sent[len(done)]))
            self.undo(done[-1])
        self.settle()
        return done

    def wait_out_backoff(self, step_id: str = "s0", ms: int = 3_600_000) -> None:
        """Let the step's time come, and have it sent again."""
        self.bench.clock.advance(ms)
        again = self.bench.store.runs.retry_due(self.ref, step_id)
        assert isinstance(again, replies.Again)
        self.bench.outbox.publish(again.publish)

    @property
    def state(self) -> RunState:
        found = self.bench.store.views.run(self.ref)
        assert found is not None
        return found

    def step(self, step_id: str = "s0") -> StepState:
        found = self.bench.store.views.step(self.ref, step_id)
        assert found is not None
        return found

    def result(self, step_id: str = "s0") -> Any:
        text = self.bench.store.views.result(self.ref, step_id)
        return json.loads(text) if text is not None else None

    def error(self, step_id: str = "s0") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.bench.store.views.errors(self.ref)[step_id])
        return found


def narrowed(**fields: Any) -> Policy:
    """The default policy with some fields narrowed; `limits` as a dict."""
    return meet(Policy(), PolicyRequest(**fields), "test")


def workbench(url: str, namespace: str, folder: Path, shards: int = 1, **settings: Any) -> Workbench:
    """A workbench on a server, in a namespace of so many shards, with its files in a folder."""
    given = Settings(redis_url=url, namespace=namespace, home=folder / "home", **settings)
    store, clock = clocked_store(url, namespace, shards)
    return Workbench(given, store, clock, fresh_ledger(folder))
