"""In every worker of the kit, by Celery's --include: what steps do is told to the witness, and orders are carried out.

Actions are wrapped where they are looked up, and the guards where they are called, so that neither users' code nor ours
knows of it.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from pydantic import BaseModel

from orchestrator import dispatch, names
from orchestrator.ledger import AcceptedRun, Due, EffectRows, Ledger
from orchestrator.policies import FROM_BROKER
from orchestrator.store.guard import Guard
from orchestrator.store.replies import Dispatch
from orchestrator.tasks import AnyFields
from schemas.dead_letter import Bell
from schemas.ids import run_id_for
from workers import failures
from workers.attempt import Attempt
from workers.context import Context
from workers.faults import log, orders
from workers.faults.deeds import carry_out, pass_by
from workers.outcomes import Snooze
from workers.registry import Action

AnyAction = Action[Any, Any]
Answer = TypeVar("Answer")


# ---- actions


def watched(action: AnyAction) -> AnyAction:
    """The action, with all that is called of it told to the witness."""
    undo = None if action.undo is None else _undo(action.undo)
    ask = None if action.ask is None else _ask(action.ask)
    return replace(action, function=_do(action.function), undo=undo, ask=ask)


def _do(function: Callable[..., Any]) -> Callable[..., Any]:
    def do(params: BaseModel, ctx: Context) -> Any:
        return _told(ctx, ("began", "acted", "raised"), lambda: function(params, ctx), inputs=log.fingerprint(params))

    return do


def _undo(function: Callable[..., Any]) -> Callable[..., Any]:
    def undo(params: BaseModel, done: Any, ctx: Context) -> Any:
        return _told(ctx, ("undoing", "undone", "undo_raised"), lambda: function(params, done, ctx))

    return undo


def _ask(function: Callable[..., Any]) -> Callable[..., Any]:
    def ask(params: BaseModel, ctx: Context) -> Any:
        answer = function(params, ctx)
        _say("asked", ctx, landed=answer is not None)
        return answer

    return ask


def _told(ctx: Context, words: tuple[str, str, str], call: Callable[[], Any], **more: Any) -> Any:
    """Call it between two lines. What ends in a Snooze or an exception did not act, as far as anybody can say."""
    before, after, raised = words
    _say(before, ctx, **more)
    try:
        pass_by(before, ctx.run_id, ctx.step_id)
        value = call()
    except BaseException as error:
        _say(raised, ctx, error=type(error).__name__, no_effect=failures.had_no_effect(error))
        raise
    if isinstance(value, Snooze):
        _say(raised, ctx, error="Snooze", no_effect=False)
        return value
    _say(after, ctx)
    pass_by(after, ctx.run_id, ctx.step_id)
    return value


def _say(what: str, ctx: Context, **more: Any) -> None:
    named = {"attempt": ctx.attempt, "fence": ctx.fencing_token, "key": ctx.idempotency_key}
    log.tell(what, ctx.run_id, ctx.step_id, **named, **more)


# ---- messages

MESSAGES: Final = {
    names.SUBMIT: "submit",
    names.PLAN: "plan",
    names.SETTLE: "settle",
    names.STEP: "step",
    names.UNDO: "undo",
    names.CLOSE: "close",
    names.UNDO_LATE: "late",
}


def _come(original: Callable[..., Any], task: Any, /, *given: Any, **fields: Any) -> Any:
    message = MESSAGES.get(task.name)
    if message is not None:
        log.tell("came", _run_of(fields), str(fields.get("step_id") or ""), message=message)
    return original(task, *given, **fields)


def _run_of(fields: dict[str, Any]) -> str:
    """A submission does not say which run it will be."""
    if "run_id" in fields:
        return str(fields["run_id"])
    return run_id_for(FROM_BROKER, fields.get("session_id"), str(fields.get("request_id")))


# ---- guards


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    def call(self: Any, /, *given: Any, **more: Any) -> Any:
        return around(original, self, *given, **more)

    setattr(owner, name, call)


def _find_action(original: Callable[[Attempt], AnyAction], attempt: Attempt) -> AnyAction:
    return watched(original(attempt))


def _params(original: Callable[[Attempt], BaseModel], attempt: Attempt) -> BaseModel:
    if attempt.kind == "do":
        pass_by("claimed", attempt.message.run_id, attempt.message.step_id)
    return original(attempt)


def _open(original: Callable[..., Any], rows: EffectRows, run_id: str, step_id: str, kind: str, *given: Any) -> Any:
    answer = original(rows, run_id, step_id, kind, *given)
    if kind == "do":
        pass_by("opened", run_id, step_id)
    return answer


def _commit(before: str, after: str) -> Callable[..., Any]:
    def commit(original: Callable[..., Any], guard: Guard, ref: Any, step_id: str, *given: Any, **more: Any) -> Any:
        pass_by(before, ref.run_id, step_id)
        answer = original(guard, ref, step_id, *given, **more)
        pass_by(after, ref.run_id, step_id)
        return answer

    return commit


def _accept(original: Callable[..., Any], ledger: Ledger, run: AcceptedRun) -> Any:
    pass_by("accepting", run.run_id, "submit")
    answer = original(ledger, run)
    pass_by("accepted", run.run_id, "submit")
    return answer


def _wrap_sending() -> None:
    original = dispatch._send_all  # noqa: SLF001  # the one place that every message passes

    def send_all(app: Any, wave: tuple[Dispatch, ...]) -> None:
        _between(map(_about, wave), lambda: _in_parts(wave, lambda part: original(app, part)))

    dispatch._send_all = send_all  # noqa: SLF001


def _in_parts(wave: tuple[Dispatch, ...], send: Callable[[tuple[Dispatch, ...]], None]) -> None:
    """In one, unless it is to be cut before one of its messages."""
    for place, message in enumerate(wave[1:], 1):
        order = orders.at(log.folder(), "midway", *_about(message))
        if order is not None:
            send(wave[:place])
            carry_out(order)
            send(wave[place:])
            return
    send(wave)


def _between(about: Iterable[tuple[str, str]], send: Callable[[], Answer]) -> Answer:
    """Send, between two places for each run and message that it is about."""
    about = tuple(about)
    for run_id, message in about:
        pass_by("sending", run_id, message)
    answer = send()
    for run_id, message in about:
        pass_by("sent", run_id, message)
    return answer


def _about(message: Dispatch) -> tuple[str, str]:
    return message.ref.run_id, subject(message)


def _wrap_bells_and_callbacks() -> None:
    ring, send_deliveries = dispatch.ring, dispatch.send_deliveries

    def rung(app: Any, bell: Bell) -> bool:
        return _between([(bell.run, "bell")] if bell.run else [], lambda: ring(app, bell))

    def sent(app: Any, wave: Iterable[Due]) -> int:
        wave = tuple(wave)
        return _between([(told_of(due.id), "deliver") for due in wave], lambda: send_deliveries(app, wave))

    dispatch.ring, dispatch.send_deliveries = rung, sent


def told_of(delivery_id: str) -> str:
    """The run whose end a callback tells; its id is made of that."""
    return str(UUID(delivery_id.split("_")[1]))


def subject(message: Dispatch) -> str:
    """What an order calls this message."""
    return f"{message.kind}:{message.step_id}" if message.step_id else message.kind


if log.FOLDER in os.environ:
    _wrap(AnyFields, "__call__", _come)
    _wrap(Attempt, "find_action", _find_action)
    _wrap(Attempt, "params", _params)
    _wrap(EffectRows, "open", _open)
    _wrap(Ledger, "accept", _accept)
    _wrap(Guard, "complete_step", _commit("landed", "committed"))
    _wrap(Guard, "complete_undo", _commit("undo_landed", "undo_committed"))
    _wrap_sending()
    _wrap_bells_and_callbacks()
