"""Celery's shells around the control plane: theirs are the message, the identity in the logs, and the end."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from celery import Task, bootsteps
from celery.exceptions import Ignore, Reject
from celery.worker.consumer import Consumer
from celery.worker.request import Request
from pydantic import BaseModel, ValidationError

from orchestrator import dead_letters, dispatch, envelopes, names, progress, startup, submission
from orchestrator.app import app, ledger, store, sweep_ledger
from orchestrator.deliveries import deliver as delivering
from orchestrator.errors import (
    ConfigError,
    LedgerError,
    LedgerUnavailable,
    MandorError,
    StoreAmnesia,
    StoreError,
    StoreMoved,
    StoreRefused,
    StoreUnavailable,
    SubmissionConflict,
    SubmissionRefused,
)
from orchestrator.ledger import Due
from orchestrator.settings import settings
from orchestrator.supervisors import (
    apply_decisions,
    audit_runs,
    deliver_callbacks,
    drain_ledger,
    end_waits,
    enforce_deadlines,
    prune_ledger,
    reclaim_stale_leases,
    redispatch_lost_steps,
    retry_due_steps,
    settle_runs,
    trigger_compensation,
)
from orchestrator.supervisors.passes import Counts
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit, identity
from schemas.issues import issues_of
from schemas.messages import DeliverMessage, SettleMessage, TickMessage

_LOGGER: Final = logging.getLogger("celery.worker")
PAUSE_S: Final = 1.0  # before what cannot be seen to now goes back
Message = TypeVar("Message", bound=BaseModel)
EVENTS_S = 0.05
EVENTS_MOST = 200
NOT_ACCEPTED = (SubmissionRefused, LedgerUnavailable, StoreRefused)


def wait_for_memory(error: StoreError) -> None:
    """The store is not the one we knew: nothing is safe before a supervisor has verified it, or built it again."""
    emit(events.PassFailed("memory", error.kind, events.where(error)))
    time.sleep(PAUSE_S)


@contextmanager
def _kept_in_queue() -> Iterator[None]:
    """For messages that nobody would send again: while the store is away they go back, slowly."""
    try:
        yield
    except (StoreMoved, StoreAmnesia) as error:
        wait_for_memory(error)
        raise Reject(error.kind, requeue=True) from error
    except StoreUnavailable as error:
        time.sleep(PAUSE_S)
        raise Reject(error.kind, requeue=True) from error


@contextmanager
def _due_anyway(name: str) -> Iterator[None]:
    """For what a supervisor repeats: an outage is logged once, under this name, and the message is done with."""
    try:
        yield
    except (StoreMoved, StoreAmnesia, StoreUnavailable, LedgerUnavailable, ConfigError) as error:
        emit(events.PassFailed(name, error.kind, events.where(error)))
        raise Ignore(error.kind) from error


class Reader(Consumer):
    """Celery's consumer. What it cannot make a task of becomes a dead letter; Celery itself only logs and drops it."""

    def create_task_handler(self, *args: Any, **options: Any) -> Any:
        """Celery takes a message of an unexpected shape for a lost connection, or ends: neither is its sender's due."""
        receive = super().create_task_handler(*args, **options)

        def receive_anything(message: Any) -> Any:
            fault = envelopes.unfit(message.headers) or _fault_of_body(message)
            if fault is not None:
                return self._refuse(message, fault)
            try:
                return receive(message)
            except self._lost_connection:
                raise
            except Exception as wrong:  # noqa: BLE001  # whatever a stranger's message makes Celery raise
                return self._refuse(message, f"{type(wrong).__name__}: {wrong}")

        return receive_anything

    def call_soon_ack(self, p: Any, logger: Any, to_be_logged: Any, *more: Any) -> Any:
        """What the broker was not told ends the connection, and with that the message goes back. Celery logs the error
        and goes on with a message that it counts as held until then: a worker with one child never gets another.

        A message of an earlier connection has gone back already: this one is no worse for it.
        """
        is_held = p.__self__.channel is getattr(self.task_consumer, "channel", None)
        return super().call_soon_ack(p, logger, () if is_held else to_be_logged, *more)

    @property
    def _lost_connection(self) -> tuple[type[BaseException], ...]:
        """What a lost connection raises. Kombu counts KeyError among it, which is also what a missing field raises."""
        known = (*self.connection_errors, *self.channel_errors)
        return tuple(error for error in known if error is not KeyError)

    def _refuse(self, message: Any, fault: str) -> None:
        if self._keep(message, f"no message for us: {fault}") and not message.acknowledged:
            message.reject_log_error(_LOGGER, self.connection_errors)

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        """The body is not what its content type says."""
        if self._keep(message, f"the body cannot be decoded: {exc}"):
            super().on_decode_error(message, exc)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """Not a task at all."""
        if self._keep(message, "this is not a Celery message"):
            super().on_unknown_message(body, message)

    def on_invalid_task(self, body: Any, message: Any, exc: BaseException) -> None:
        """A content type we do not accept, or arguments of another shape than Celery's."""
        if self._keep(message, f"the message is refused: {exc}"):
            super().on_invalid_task(body, message, exc)

    def on_unknown_task(self, body: Any, message: Any, exc: BaseException) -> None:
        """A task nobody here knows."""
        if self._keep(message, f"no task is called {message.headers.get('task')}"):
            super().on_unknown_task(body, message, exc)

    def _keep(self, message: Any, reason: str) -> bool:
        """Whether a letter tells of it. While there is no ledger the message goes back, slowly: it is nowhere else.

        In the worker's event loop: quick, and never the reason that it ends.
        """
        queue = str((message.delivery_info or {}).get("routing_key", ""))
        headers = message.headers or {}
        reason = headers.get(envelopes.UNREADABLE, reason)
        try:
            dead_letters.unreadable(app, ledger(), queue, headers, message.body or b"", reason)
        except MandorError as error:
            emit(events.PassFailed("reader", error.kind, events.where(error)))
            if isinstance(error, LedgerError):
                self._give_back_later(message)
                return False
        return True

    def _give_back_later(self, message: Any) -> None:
        give_back = partial(message.reject_log_error, _LOGGER, self.connection_errors, requeue=True)
        if self.hub is None:
            time.sleep(PAUSE_S)
            give_back()
        else:
            self.hub.call_later(PAUSE_S, give_back)


def _fault_of_body(message: Any) -> str | None:
    """What is wrong with a body that can be read; of another Celery says it. The message keeps what was read."""
    with suppress(Exception):
        return envelopes.unfit_body(message.payload)
    return None


class EventBatches(bootsteps.StartStopStep):
    """Send task events every EVENTS_S, not in each turn of the event loop: that costs a busy worker a third."""

    requires = ("celery.worker.consumer.events:Events",)

    def start(self, consumer: Any) -> None:
        """Called with each new connection, after its dispatcher is made."""
        if consumer.hub is None:
            return
        dispatcher = consumer.event_dispatcher
        dispatcher.buffer_limit = EVENTS_MOST
        dispatcher.on_send_buffered = _Later(consumer.hub, dispatcher.flush)

    def stop(self, consumer: Any) -> None:
        """What has not been sent yet, before the connection goes."""
        if consumer.event_dispatcher is not None:
            with suppress(OSError, *consumer.connection_errors):
                consumer.event_dispatcher.flush()


class _Later:
    """Runs something once, EVENTS_S after the first call; then again after the next one."""

    def __init__(self, hub: Any, run: Callable[[], None]) -> None:
        self._hub = hub
        self._run = run
        self._waiting = False

    def __call__(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._hub.call_later(EVENTS_S, self._now)

    def _now(self) -> None:
        self._waiting = False
        self._run()


app.steps["consumer"].add(EventBatches)


def read_message(task: Any, model: type[Message], fields: dict[str, Any]) -> Message:
    """The message, or a dead letter and Ignore: nobody else could make more of it."""
    try:
        return model.model_validate(fields)
    except ValidationError as wrong:
        first = issues_of(wrong)[0]
        _lay_aside(task, repr(fields), f"{first.path}: {first.message}")


def _lay_aside(task: Any, content: str, fault: str) -> NoReturn:
    reason = f"not a message for {task.name}: {fault}"
    headers = {"id": task.request.id, "task": task.name}
    queue = str((task.request.delivery_info or {}).get("routing_key", ""))
    try:
        dead_letters.unreadable(app, ledger(), queue, headers, content, reason)
    except LedgerError as away:
        time.sleep(PAUSE_S)
        raise Reject(away.kind, requeue=True) from away
    raise Ignore(reason) from None


class SubmitRequest(Request):
    """A submission carries content, whoever sent it: none of it in events and logs."""

    @property
    def argsrepr(self) -> str:
        return "()"

    @property
    def kwargsrepr(self) -> str:
        return dispatch.HIDDEN


class AnyFields(Task):
    """Hands on whatever fields a message has, also one called `self`, which Celery itself stumbles over. What has
    arguments without names is laid aside, unless the task sees to them itself.
    """

    takes_arguments = False

    def __call__(self, /, *args: Any, **fields: Any) -> Any:
        if args and not self.takes_arguments:
            _lay_aside(self, repr((args, fields)), "args: all of a message is in its fields")
        return self.run(*args, **fields)


class SubmitTask(AnyFields):
    """Receives submissions without showing them."""

    takes_arguments = True
    Request = SubmitRequest


@app.task(name=names.SUBMIT, bind=True, base=SubmitTask, typing=False, throws=NOT_ACCEPTED)
def submit(self: Any, /, *args: Any, **fields: Any) -> dict[str, Any]:
    """Accept a submission. Fails with the paths that are wrong, and then leaves a letter too."""
    with identity(job_id=self.request.id), _kept_in_queue():
        try:
            read = submission.read(fields, settings(), args)
            answer = submission.submit(app, store(), ledger(), settings(), read, self.request.id)
        except SubmissionConflict:
            raise
        except SubmissionRefused as refused:
            submission.bury(app, ledger(), settings(), refused, fields, self.request.id)
            raise
        return answer.model_dump(mode="json")


@app.task(name=names.SETTLE, bind=True, base=AnyFields, typing=False, ignore_result=True)
def settle(self: Any, /, **fields: Any) -> None:
    """See whether a run has ended: sent by its last step, and by its chord."""
    message = read_message(self, SettleMessage, fields)
    with identity(job_id=self.request.id, run_id=message.run_id), _due_anyway("settle"):
        progress.settle(app, store(), ledger(), message.ref, message.generation)


@app.task(
    name=names.DELIVER,
    bind=True,
    base=AnyFields,
    typing=False,
    ignore_result=True,
    time_limit=delivering.hold_s(settings()),
)
def deliver(self: Any, /, **fields: Any) -> None:
    """Make one attempt to tell the end of a run to whoever wants to know."""
    message = read_message(self, DeliverMessage, fields)
    with identity(job_id=self.request.id), _due_anyway("deliver"):
        delivering.deliver(app, ledger(), settings(), Due(message.delivery_id, message.attempts))


def _supervisor(name: str, run_once: Callable[[], Counts]) -> None:
    # no events: several ticks a second would soon be all that Flower remembers
    @app.task(
        name=names.supervisor_task(name),
        bind=True,
        base=AnyFields,
        typing=False,
        ignore_result=True,
        send_events=False,
    )
    def sweep(self: Any, /, **fields: Any) -> None:
        read_message(self, TickMessage, fields)
        started = time.monotonic()
        with identity(job_id=self.request.id), _due_anyway(name):
            counts = run_once()
            if counts.taken or counts.failed:
                emit(events.PassDone(name, round((time.monotonic() - started) * 1000), counts.as_dict()))


def _redispatch() -> Counts:
    """Who looks for lost messages also keeps up the word on when the broker gives one back."""
    startup.agree_on_visibility(store().admin, settings())
    return redispatch_lost_steps.run_once(app, store(), settings())


_supervisor(reclaim_stale_leases.NAME, lambda: reclaim_stale_leases.run_once(app, store(), sweep_ledger(), settings()))
_supervisor(redispatch_lost_steps.NAME, _redispatch)
_supervisor(retry_due_steps.NAME, lambda: retry_due_steps.run_once(app, store(), settings()))
_supervisor(enforce_deadlines.NAME, lambda: enforce_deadlines.run_once(app, store(), settings()))
_supervisor(settle_runs.NAME, lambda: settle_runs.run_once(app, store(), sweep_ledger(), settings()))
_supervisor(end_waits.NAME, lambda: end_waits.run_once(app, store(), sweep_ledger(), settings()))
_supervisor(apply_decisions.NAME, lambda: apply_decisions.run_once(app, store(), sweep_ledger()))
_supervisor(trigger_compensation.NAME, lambda: trigger_compensation.run_once(app, store(), sweep_ledger(), settings()))
_supervisor(drain_ledger.NAME, lambda: drain_ledger.run_once(store(), sweep_ledger(), settings()))
_supervisor(audit_runs.NAME, lambda: audit_runs.run_once(app, store(), sweep_ledger(), settings()))
_supervisor(deliver_callbacks.NAME, lambda: deliver_callbacks.run_once(app, sweep_ledger(), settings()))
_supervisor(prune_ledger.NAME, lambda: prune_ledger.run_once(sweep_ledger(), settings()))
