"""What is sent to the broker, and how: the only place that knows Celery's canvas.

A run is one chord: `celery.chord(header, settle)`, one header task per step, sized once when its plan is admitted.
Members are sent wave by wave, as the store frees them, so the header of a wave holds only what goes out now; group id,
index and task ids are the same however often a step is sent, and Celery counts a part once.

Nothing here decides anything. A message that could not be sent is due in the store, and a supervisor sends it.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

import celery
from celery import Celery
from celery.exceptions import TimeoutError as NothingYet

from orchestrator import names
from orchestrator.app import BrokerRefused
from orchestrator.errors import StoreUnavailable
from orchestrator.ledger import Due
from orchestrator.settings import settings
from orchestrator.store.replies import Dispatch
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit
from schemas.canonical import sha256_hex
from schemas.dead_letter import Bell
from schemas.ids import (
    RunRef,
    close_task_id,
    group_id,
    plan_task_id,
    settle_task_id,
    step_task_id,
    undo_task_id,
)

App: TypeAlias = Celery  # for modules that pass it on, and know nothing else of Celery
CHORD_KEYS: Final = (".s", ".j", ".t", ".d")
DLQ_LENGTH: Final = 1000
KILL_MARGIN_S: Final = 2.0  # a child normally ends itself, without a word from Celery; a frozen one cannot
HIDDEN: Final = "<submission>"
_APART: Final = {
    "undo": (names.UNDO, undo_task_id),
    "close": (names.CLOSE, close_task_id),
    "late": (names.UNDO_LATE, undo_task_id),
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message in a queue. id: its own; fields: its task's keyword arguments, {} where they cannot be read."""

    id: str
    fields: Mapping[str, Any]


# ---- waves


def publish(app: Celery, wave: Iterable[Dispatch]) -> int:
    """Send a wave together; answers how many messages the broker took: all, or 0 when it is away."""
    wave = tuple(wave)
    if not wave:
        return 0
    try:
        _send_all(app, wave)
    except broker_errors(app) as error:
        emit(events.PublishFailed(len(wave), type(error).__name__))
        return 0
    emit(events.Published(len(wave)))
    return len(wave)


def broker_errors(app: Celery) -> tuple[type[BaseException], ...]:
    """What a publish may raise when the broker is away or refuses."""
    connection = app.connection_for_write()
    return (OSError, BrokerRefused, *connection.connection_errors, *connection.channel_errors)


def _send_all(app: Celery, wave: tuple[Dispatch, ...]) -> None:
    with app.producer_or_acquire() as producer, _one_batch(producer, len(wave)):
        for message in messages(app, wave):
            _send(app, producer, message)


def _one_batch(producer: Any, size: int) -> AbstractContextManager[Any]:
    """One pipeline for many messages; for a single one, as in a sequence, its set-up costs more than it saves."""
    batch: AbstractContextManager[Any] = producer.batch() if size > 1 else nullcontext()
    return batch


def messages(app: Celery, wave: Iterable[Dispatch]) -> Iterator[Any]:
    """The signatures of a wave, each with all that its message needs."""
    for (kind, ref, generation), members in groupby(wave, key=_run_of):
        if kind == "plan":
            yield from (_plan(app, member) for member in members)
        elif kind == "settle":
            yield _settle(app, ref, generation)
        elif kind in _APART:
            yield from (_apart(app, member) for member in members)
        else:
            yield from run_chord(app, ref, generation, members).tasks


def _run_of(message: Dispatch) -> tuple[str, RunRef, int]:
    return message.kind, message.ref, message.generation


def run_chord(app: Celery, ref: RunRef, generation: int, members: Iterable[Dispatch]) -> Any:
    """The run's chord, with these members in its header. Its body settles the run."""
    body = _settle(app, ref, generation)
    header = [_step(app, member, body) for member in members]
    return celery.chord(header, body, app=app)


def _step(app: Celery, member: Dispatch, body: Any) -> Any:
    ref, step_id = member.ref, str(member.step_id)
    return _signature(
        app,
        names.STEP,
        {**_ids(ref, member.generation), "step_id": step_id},
        task_id=step_task_id(ref.run_id, step_id),
        queue=member.queue,
        time_limit=time_limit_s(member),
        group_id=group_id(ref.run_id, member.generation),
        group_index=member.index,
        chord=body,
    )


def _apart(app: Celery, member: Dispatch) -> Any:
    """What is about a step and no part of the chord."""
    task, task_id = _APART[member.kind]
    ref, step_id = member.ref, str(member.step_id)
    fields = {**_ids(ref, member.generation), "step_id": step_id}
    if member.fence:
        fields["fence"] = member.fence
    limit_s, name = time_limit_s(member), task_id(ref.run_id, step_id)
    return _signature(app, task, fields, task_id=name, queue=member.queue, time_limit=limit_s)


def _plan(app: Celery, member: Dispatch) -> Any:
    task_id = plan_task_id(member.ref.run_id)
    fields = _ids(member.ref, member.generation)
    return _signature(app, names.PLAN, fields, task_id=task_id, queue=member.queue, time_limit=time_limit_s(member))


def _settle(app: Celery, ref: RunRef, generation: int) -> Any:
    queue = names.queue(settings().prefix, "control")
    return _signature(app, names.SETTLE, _ids(ref, generation), task_id=settle_task_id(ref.run_id), queue=queue)


def _ids(ref: RunRef, generation: int) -> dict[str, Any]:
    return {"run_id": ref.run_id, "session": ref.session, "generation": generation}


def _signature(app: Celery, task: str, fields: Mapping[str, Any], **options: Any) -> Any:
    return app.signature(task, kwargs=dict(fields), immutable=True, ignore_result=True, **options)


def time_limit_s(member: Dispatch) -> float:
    """When Celery kills the child: after the attempt's own limit, the grace it has to stop, and our own kill."""
    return member.limit_ms / 1000 + settings().stop_grace_s + KILL_MARGIN_S


def _send(app: Celery, producer: Any, signature: Any) -> None:
    """What `apply_async` does, without a producer, a result object and a look at the task's code for each message."""
    options = dict(signature.options)
    queue = options.pop("queue")
    message = app.amqp.create_task_message(
        name=signature.task,
        kwargs=signature.kwargs,
        argsrepr="()",
        kwargsrepr=repr(signature.kwargs),
        root_id=signature.kwargs["run_id"],
        **options,
    )
    app.amqp.send_task_message(producer, signature.task, message, queue=queue)


# ---- the chord's bookkeeping in the result store


def open_chord(app: Celery, ref: RunRef, generation: int, size: int) -> None:
    """Say once how many parts make the chord whole. Errors count for nothing: the store settles the run anyway."""
    try:
        app.backend.set_chord_size(group_id(ref.run_id, generation), size)
    except _result_errors(app) as error:
        emit(events.PublishFailed(0, type(error).__name__))


def close_chord(app: Celery, ref: RunRef, generation: int) -> None:
    """Remove what Celery keeps of the chord. Its claim key stays for its few minutes: it turns late parts away."""
    group = group_id(ref.run_id, generation)
    keys = [app.backend.get_key_for_group(group, suffix) for suffix in CHORD_KEYS]
    try:
        app.backend.client.delete(*keys)
    except _result_errors(app) as error:
        emit(events.PublishFailed(0, type(error).__name__))


def _result_errors(app: Celery) -> tuple[type[BaseException], ...]:
    return (OSError, *app.backend.connection_errors, *app.backend.channel_errors)


# ---- queues


def queue_depth(app: Celery, queue: str) -> int:
    """Messages that are ready in a queue. A queue nobody has made yet holds none. Broker errors are raised."""
    with _asked_once(app) as connection:
        try:
            return int(connection.default_channel.queue_declare(queue=queue, passive=True).message_count)
        except connection.channel_errors:
            return 0


def oldest_message(app: Celery, queue: str) -> Waiting | None:
    """The message that is taken next; None: there is none, or the broker cannot show it. Broker errors are raised."""
    with _asked_once(app) as connection:
        client = getattr(connection.default_channel, "client", None)
        raw = client.lindex(queue, -1) if client is not None else None  # Redis: new ones are on the left
    if raw is None:
        return None
    try:
        message = json.loads(raw)
        fields = json.loads(base64.b64decode(message["body"]))[1]
        return Waiting(str(message["properties"]["correlation_id"]), fields if isinstance(fields, dict) else {})
    except (ValueError, LookupError, TypeError):
        return Waiting(sha256_hex(raw), {})  # a stranger's


@contextmanager
def _asked_once(app: Celery) -> Iterator[Any]:
    """A connection for a question. Kombu alone would try again without end, after pauses of up to 30 s."""
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=0)
        yield connection


def consumed_queues(app: Celery, timeout_s: float) -> set[str]:
    """Queues of the workers that answer in time. One that is busy may not: for people to read, never to decide by."""
    try:
        answers = app.control.inspect(timeout=timeout_s).active_queues() or {}
    except broker_errors(app):
        return set()
    return {str(queue["name"]) for queues in answers.values() for queue in queues}


def dead_letter_queue() -> str:
    """Where the bells lie. Nobody of ours consumes it."""
    return names.queue(settings().prefix, "dlq")


def ring(app: Celery, bell: Bell) -> bool:
    """Put a bell on the dead letters' queue and keep that queue short. False: the broker is away."""
    try:
        with app.producer_or_acquire() as producer:
            _put_bell(producer, dead_letter_queue(), bell)
    except broker_errors(app) as error:
        emit(events.PublishFailed(1, type(error).__name__))
        return False
    return True


def _put_bell(producer: Any, queue: str, bell: Bell) -> None:
    channel = producer.channel
    channel.queue_declare(queue=queue, durable=True, auto_delete=False, arguments={"x-max-length": DLQ_LENGTH})
    producer.publish(bell.model_dump(mode="json"), exchange="", routing_key=queue, serializer="json", retry=True)
    if hasattr(channel, "client"):  # Redis knows no length of a queue; new messages are on the left of the list
        channel.client.ltrim(queue, 0, DLQ_LENGTH - 1)


# ---- callbacks


def deliveries_waiting(app: Celery) -> int:
    """Messages about callbacks that nobody has taken yet; 0 while the broker is away, which takes none then."""
    try:
        return queue_depth(app, names.queue(settings().prefix, "deliver"))
    except broker_errors(app):
        return 0


def send_deliveries(app: Celery, wave: Iterable[Due]) -> int:
    """Have these posted; answers how many messages the broker took. What it did not take is due again by itself."""
    sent = 0
    try:
        for due in wave:
            fields = {"delivery_id": due.id, "attempts": due.attempts}
            app.send_task(names.DELIVER, kwargs=fields, ignore_result=True, add_to_parent=False)
            sent += 1
    except broker_errors(app) as error:
        emit(events.PublishFailed(1, type(error).__name__))
    return sent


# ---- submissions


def send_submission(app: Celery, fields: Mapping[str, Any], task_id: str) -> Any:
    """Publish a submission; its content stays out of events and logs. Broker errors are raised.

    StoreUnavailable: the result store cannot be listened to, so nothing was sent.
    """
    try:
        return app.send_task(
            names.SUBMIT, kwargs=dict(fields), task_id=task_id, argsrepr="()", kwargsrepr=HIDDEN, add_to_parent=False
        )
    except RuntimeError as gone:  # Celery's word for it, after its own tries
        raise StoreUnavailable(
            f"the result store cannot be used: {gone.__cause__ or gone}",
            hint="is MANDOR_RESULT_URL right, its password too?",
        ) from None


def await_answer(result: Any, timeout_s: float) -> Any:
    """What the submission's task returned or raised; None when nothing came in time.

    StoreUnavailable: the result store went away meanwhile. The submission was sent all the same.
    """
    try:
        return result.get(timeout=timeout_s, disable_sync_subtasks=False)
    except NothingYet:
        return None
    except RuntimeError as gone:
        if gone.__cause__ is None:  # the task's own
            raise
        raise _result_store_gone(gone.__cause__) from None
    except (OSError, *result.backend.connection_errors) as gone:
        raise _result_store_gone(gone) from None


def _result_store_gone(why: BaseException) -> StoreUnavailable:
    return StoreUnavailable(f"the result store went away: {why}", hint="is it running?")
