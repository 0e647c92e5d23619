"""Celery's shells around the data plane: how a delivery's outcome is told to Celery.

Done      the receipt, which is the step's part of the chord
Planned   the task has succeeded
Nothing   Ignore: acknowledged, no part
Later     Retry, without publishing anything: no part, and Flower shows a retry
GivenUp   StepFailed, with the chord taken out of the request first: a failed part would spoil it for good
"""

import os
from collections.abc import Callable
from typing import Any, Final

from celery import bootsteps, signals
from celery.exceptions import Ignore, Reject, Retry

from orchestrator import dead_letters, dispatch, names, policies, startup
from orchestrator.admission.catalogue import policy_refusal
from orchestrator.app import PerProcess, app, ledger, or_refuse, store
from orchestrator.errors import LedgerUnavailable, MandorError, StoreAmnesia, StoreMoved
from orchestrator.healing import worker as watched
from orchestrator.healing.checks import Fault, fault_of
from orchestrator.settings import PREFIX, Settings, settings
from orchestrator.store.replies import Publish
from orchestrator.tasks import AnyFields, read_message, wait_for_memory
from orchestrator.telemetry import facts
from orchestrator.telemetry.metrics import Metrics
from orchestrator.telemetry.text import without_secrets
from schemas.ids import RunRef
from schemas.messages import CloseMessage, LateMessage, PlanMessage, StepMessage, UndoMessage
from schemas.policy import Policy
from workers import closing, execution, late, letting_go, orphans, planning, privacy, stopping
from workers import undo as undoing
from workers.loading import load_actions
from workers.newplan import limits_of
from workers.planners.llm.configured import configured_model
from workers.registry import registry
from workers.reports import Done, GivenUp, Later, Nothing, Planned, Report
from workers.sandbox import ladder
from workers.services import Letter, Services
from workers.workspace import Workspaces

_REAP_S: Final = 0.5
_REACH_S: Final = 10.0  # for the model's provider to answer whether it is there
_REACH_ROUNDS: Final = 6  # looked at less often than our own services: it is somebody else's server


class StepFailed(MandorError):
    """A step has failed for good, or is in doubt; its run ends."""

    kind = "step_failed"


class UndoFailed(MandorError):
    """A step could not be undone; a dead letter says why."""

    kind = "undo_failed"


class PlanFailed(MandorError):
    """No plan was made or admitted; the run has ended."""

    kind = "plan_failed"


class ClaimTask(AnyFields):
    """A task that holds a claim while it runs. One killed at its time limit comes back, as one whose child died."""

    Request = "workers.request:ClaimRequest"
    acks_late = True
    reject_on_worker_lost = True
    acks_on_timeout = False
    ignore_result = True
    typing = False


@app.task(name=names.PLAN, bind=True, base=ClaimTask, throws=(PlanFailed,))
def plan(self: Any, /, **fields: Any) -> None:
    """Make a run's plan, have it admitted, and send its first steps."""
    _tell(self, PlanFailed, lambda: planning.plan_run(read_message(self, PlanMessage, fields), services()))


@app.task(name=names.STEP, bind=True, base=ClaimTask, throws=(StepFailed,))
def step(self: Any, /, **fields: Any) -> Any:
    """Run one step, if it is due."""
    return _tell(self, StepFailed, lambda: execution.run_step(read_message(self, StepMessage, fields), services()))


@app.task(name=names.UNDO, bind=True, base=ClaimTask, throws=(UndoFailed,))
def undo(self: Any, /, **fields: Any) -> None:
    """Undo one step, if it is its turn."""
    _tell(self, UndoFailed, lambda: undoing.run_undo(read_message(self, UndoMessage, fields), services()))


@app.task(name=names.UNDO_LATE, bind=True, base=ClaimTask, reject_on_worker_lost=False, acks_on_timeout=True)
def undo_late(self: Any, /, **fields: Any) -> None:
    """Undo what came after its step had been undone. One try: a supervisor sees whether it came back."""
    _tell(self, UndoFailed, lambda: late.undo_late(read_message(self, LateMessage, fields), services()))


@app.task(name=names.CLOSE, bind=True, base=ClaimTask, reject_on_worker_lost=False, acks_on_timeout=True)
def close(self: Any, /, **fields: Any) -> None:
    """Ask an action what became of a lost attempt. A probe that kills its process is asked again by a supervisor."""
    _tell(self, StepFailed, lambda: closing.close_lost(read_message(self, CloseMessage, fields), services()))


def _tell(task: Any, failed: type[MandorError], deliver: Callable[[], Report]) -> dict[str, Any] | None:
    """Deliver, and end the task as the report says."""
    if stopping.announced():
        raise Reject("this worker is shutting down", requeue=True)
    try:
        report = deliver()
    except (StoreMoved, StoreAmnesia) as error:
        wait_for_memory(error)
        raise Reject(error.kind, requeue=True) from None
    except LedgerUnavailable as away:
        raise Ignore(away.kind) from None
    if isinstance(report, Done):
        return report.receipt.model_dump(mode="json")
    if isinstance(report, Planned):
        return None
    raise _other_end(task, failed, report)


def _other_end(task: Any, failed: type[MandorError], report: Nothing | Later | GivenUp) -> Exception:
    if isinstance(report, Nothing):
        return Ignore(report.why)  # type: ignore[no-any-return]
    if isinstance(report, Later):
        return Retry(report.error)  # type: ignore[no-any-return]
    task.request.chord = None
    return failed(report.error)


# ---- what a process works with


class Broker:
    """The way out, through our Celery app."""

    def publish(self, wave: Publish) -> None:
        """Send what the store asked for; what cannot be sent stays due."""
        dispatch.publish(app, wave)

    def open_chord(self, ref: RunRef, generation: int, size: int) -> None:
        """Size the run's chord."""
        dispatch.open_chord(app, ref, generation, size)


def _write_letter(letter: Letter) -> str:
    return dead_letters.write(
        app,
        ledger(),
        letter.kind,
        letter.reason,
        letter.dedup_key,
        letter.content,
        letter.ref,
        letter.step_id,
    )


def _open_services() -> Services:
    given = settings()
    load_actions(given)
    return Services(given, store(), ledger(), registry, Workspaces(given.home), Broker(), _write_letter)


services: Final = PerProcess(_open_services)


# ---- the worker's own life


@signals.worker_init.connect(weak=False)
def _load_before_forking(**_: Any) -> None:
    """A declaration that cannot work refuses the start, not the first step that needs it."""
    given = settings()
    with or_refuse():
        load_actions(given)
        app.set_current()  # an app that was made in a module of theirs has taken our place
        policy = policies.installation_policy(given)
        for action in registry.actions():
            limit_s = limits_of(action.spec, policy).timeout_s
            startup.check_time_limit(given, action.spec.name, limit_s, policy.stop_grace_s)
        _look_for_sandboxes(given, policy)
        _watch_over(given)
        _look_after_workspaces(given)


def _look_for_sandboxes(given: Settings, policy: Policy) -> None:
    """Before children are forked, where steps are done. Health shows what was found, also by a child whose start of a
    sandbox failed; readiness depends on it where policy lets steps run commands.
    """
    watch = watched.current()
    if watch is None or watch.does("steps"):
        found = ladder.look_again(given)
        if watch is not None:
            watch.about["sandbox"] = found.best or "none"
            if _may_run_commands(policy):
                watch.look_at("sandbox", lambda: _look_at_sandbox(watch, found, policy))


def _may_run_commands(policy: Policy) -> bool:
    named = (action.spec for action in registry.actions() if action.spec.name == "run_command")
    return any(policy_refusal(spec, policy) is None for spec in named)


def _look_at_sandbox(watch: watched.Watch, found: ladder.Ladder, policy: Policy) -> Fault | None:
    best = ladder.last_found()
    watch.about["sandbox"] = best or "none"
    if best is not None and best.is_at_least(policy.min_rung):
        return None
    by_start = "; ".join(f"{rung}: {why}" for rung, why in found.missing.items())
    reasons = by_start if best is found.best else "a start failed since, and its process says why in its log"
    mend = "see docs/sandbox.md, or leave run_command out of the policy's actions; then start the worker again"
    return fault_of(f"no sandbox as strong as {policy.min_rung}: {reasons}", mend)


def _watch_over(given: Settings) -> None:
    """What only a process with actions and planners can count and look at."""
    watch = watched.current()
    if watch is None:
        return
    if watch.files is not None:
        facts.listen(Metrics(action.spec.name for action in registry.actions()))
    if given.llm_provider and watch.does("plan"):
        watch.look_at("model", lambda: configured_model(given).reach(_REACH_S), _REACH_ROUNDS * given.health_every_s)


def _look_after_workspaces(given: Settings) -> None:
    """Beside every worker that may have made some, whatever else it does: its host's disk is seen by nobody else."""
    watch = watched.current()
    queues = {action.spec.queue or "steps" for action in registry.actions()}
    if watch is not None and (watch.role == "steps" or any(watch.does(queue) for queue in queues)):
        letting_go.begin(given)


@signals.worker_init.connect(weak=False)
def _announce_soft_stop(sender: Any, **_: Any) -> None:
    """Celery sleeps through a soft stop without a word to its children, however soon they are done."""
    stopping.take_back()

    def announce_and_wait() -> None:
        stopping.announce()
        stopping.await_idle(sender.app.conf.worker_soft_shutdown_timeout)

    sender.wait_for_soft_shutdown = announce_and_wait


@signals.task_prerun.connect(weak=False)
def _begin_work(**_: Any) -> None:
    stopping.begin_work()


@signals.worker_init.connect(weak=False)
@signals.worker_process_init.connect(weak=False)
def _adopt_orphans(**_: Any) -> None:
    """In the main process and in each of its children."""
    orphans.adopt()


@signals.worker_init.connect(weak=False)
def _keep_others_out(**_: Any) -> None:
    """Of the main process, and so of each of its children."""
    privacy.close()


@signals.task_postrun.connect(weak=False)
def _end_work(**_: Any) -> None:
    try:
        orphans.bury()
    finally:
        stopping.end_work()


@signals.worker_process_init.connect(weak=False)
def _keep_secrets_from_descendants(**_: Any) -> None:
    """What actions start inherits the environment. The settings were read before; the main process keeps its own, for
    Celery starts it anew with them at SIGHUP.
    """
    for name in [name for name in os.environ if name.startswith((PREFIX, "CELERY_"))]:
        if without_secrets(os.environ[name]) != os.environ[name]:
            del os.environ[name]


class Reaper(bootsteps.StartStopStep):
    """Look for dead children twice a second.

    Celery is told of a child's end by a pipe that closes a moment before the child can be waited for; the look that
    follows may come too early, and the next one is 5 s later. A step whose child died would wait for that.
    """

    requires = ("celery.worker.components:Pool",)

    def register_with_event_loop(self, worker: Any, hub: Any) -> None:
        """Called once the worker's event loop is there; pools without one have no children."""
        hub.call_repeatedly(_REAP_S, worker.pool.maintain_pool)


app.steps["worker"].add(Reaper)
