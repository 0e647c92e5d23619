"""Celery tasks as actions: a task's code, run as an attempt of a step.

    send_invoice = action("shop.invoice", effect="keyed")(tasks.invoice)

Nothing is sent to the task's own queue. Its code is called in the step's process, behind the guard, like any action's;
what it asks of Celery through `self` is answered here:

    self.request    whose id is the step's task id, and whose headers say which run, step and attempt it is
    self.retry      ends the attempt, which counts; the next one comes no earlier than the countdown says
    self.replace    refused: the plan says which steps there are
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from celery import Task
from celery._state import _task_stack  # what `celery.current_task` reads; Celery has no other door to it
from celery.app.autoretry import add_autoretry_behaviour
from celery.app.trace import task_has_custom
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry

from schemas.ids import step_task_id
from workers.context import Context
from workers.declarations import BadDeclaration, TaskParams, checked_function
from workers.identity import worker_id
from workers.outcomes import AttemptStopped, NoEffect, PermanentError, Snooze, TaskRetry
from workers.signatures import arguments, params_model_from

MOST_ATTEMPTS: Final = 100
AUTORETRY: Final = frozenset({"run", "_orig_run"})  # Celery's wrapper, which calls the task that it was made for
OURS: Final = (AttemptStopped, NoEffect, PermanentError, Snooze)  # they say more than a `retry` for their sake


class NotInAStep(PermanentError):
    """The task asked for something that only Celery could do."""

    kind = "not_in_a_step"


class RetriesOver(PermanentError):
    """The task has asked to be tried again as often as its own `max_retries` allows."""

    kind = "max_retries"


class StepTask(Task):  # type: ignore[misc]  # Celery has no types
    """What a task is while it is a step. The task's own class comes behind this one."""

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **_: Any,
    ) -> Retry:
        """End this attempt. Queues, priorities and the like are the step's own, whatever is asked for."""
        cause = exc or sys.exception()
        if isinstance(cause, OURS):
            raise cause
        self._refuse_others(args, kwargs)
        self._count(self.max_retries if max_retries is None else max_retries, exc)
        wait = self.default_retry_delay if countdown is None else countdown
        again = Retry(exc=exc, when=wait if eta is None else eta)
        if throw:
            raise again
        return again

    def _refuse_others(self, args: Any, kwargs: Any) -> None:
        own = self.request.kwargs
        wanted = {
            **own,
            **dict(zip(inspect.signature(self.run).parameters, args or (), strict=False)),
            **(kwargs or {}),
        }
        if wanted != own:
            message = "the task asked to be tried again with other arguments: a step keeps its params"
            raise NotInAStep(message, hint="let it raise, and start over with another plan")

    def _count(self, most: int | None, exc: BaseException | None) -> None:
        if most is None or self.request.retries < most:
            return
        over = exc or self.MaxRetriesExceededError(f"it was tried again {self.request.retries} times")
        self.request.given_up.append(over)
        raise over

    def replace(self, sig: Any) -> NoReturn:
        """A step is what the plan says it is."""
        hint = "let the plan name both as steps, one after the other"
        raise NotInAStep(f"the task asked to be replaced by {_name_of(sig)}: a step cannot be replaced", hint=hint)

    def add_to_chord(self, sig: Any, lazy: bool = False) -> NoReturn:  # noqa: ARG002
        """The run's chord is the run's."""
        message = f"the task asked for {_name_of(sig)} in its chord: a run has the steps of its plan"
        raise NotInAStep(message, hint="let the plan name it as a step")

    def update_state(self, *_: Any, **__: Any) -> None:
        """What becomes of a step is kept in the state store, not in a result backend."""


class TaskCall:
    """A task's code as an action calls it: `(params, ctx)`. source: the function that was written."""

    def __init__(self, task: Any, what: str) -> None:
        self.source = _source(task)
        self.__module__ = self.source.__module__  # of whoever declares it, as of any action
        self.where = checked_function(self.source, what)
        self._run = task.run
        self.task = _as_step(task)
        self.limits = _limits(task)

    def params_model(self) -> type[TaskParams]:
        """Made from the task's signature, or BadDeclaration."""
        return params_model_from(self._run, self.where)

    def __call__(self, params: TaskParams, ctx: Context) -> Any:
        with self._attempt(params, ctx) as request:
            try:
                value = self._code()(**request.kwargs)
            except (Retry, MaxRetriesExceededError, Ignore, Reject) as word:
                raise _meaning(word) from None
            except Exception as error:
                if any(error is one for one in request.given_up):
                    raise RetriesOver(_said(error)) from error
                raise
        if isinstance(value, Retry):
            raise _meaning(value)
        return value

    @contextmanager
    def _attempt(self, params: TaskParams, ctx: Context) -> Iterator[Any]:
        """Inside, the task has the request of this attempt."""
        _task_stack.push(self.task)
        self.task.push_request(**_request(ctx), kwargs=arguments(params))
        try:
            yield self.task.request
        finally:
            self.task.pop_request()
            _task_stack.pop()

    def _code(self) -> Callable[..., Any]:
        """A task whose class says itself how it is called (inside of somebody's application, say) is called so."""
        return self.task if task_has_custom(self.task, "__call__") else self.task.run  # type: ignore[no-any-return]


def _as_step(task: Any) -> Any:
    """The task again with all that it has, as one that is a step: of a class of its own, which no app knows."""
    kind = task.__class__
    step: Any = object.__new__(type(kind.__name__, (StepTask, kind), {"__module__": kind.__module__}))
    vars(step).update((name, value) for name, value in vars(task).items() if name not in AUTORETRY)
    add_autoretry_behaviour(step)
    return step


def _source(task: Any) -> Any:
    """The function behind all that Celery puts around it."""
    if not isinstance(task, Task):
        message = f"{task!r} is not a Celery task"
        raise BadDeclaration(message, hint="pass the task itself, as @app.task and @shared_task return it")
    run = inspect.unwrap(task.run)
    return getattr(run, "__func__", run)


def _limits(task: Any) -> dict[str, Any]:
    """What the task says of its own limits."""
    most = getattr(task, "retry_kwargs", {}).get("max_retries", task.max_retries)
    attempts = None if most is None else min(most + 1, MOST_ATTEMPTS)
    return {"attempts": attempts, "timeout_s": task.soft_time_limit or task.time_limit}


def _request(ctx: Context) -> dict[str, Any]:
    task_id = step_task_id(ctx.run_id, ctx.step_id)
    headers = {
        "run_id": ctx.run_id,
        "session_id": ctx.session_id,
        "step_id": ctx.step_id,
        "attempt": ctx.attempt,
        "fencing_token": ctx.fencing_token,
        "idempotency_key": ctx.idempotency_key,
    }
    return {
        "id": task_id,
        "root_id": task_id,
        "correlation_id": task_id,
        "args": (),
        "headers": headers,
        "retries": ctx.attempt - 1,
        "called_directly": False,
        "delivery_info": {},
        "hostname": worker_id(),
        "given_up": [],  # what `retry` raised because it was enough; a list, for Celery copies requests
    }


# ---- what it says


def _meaning(word: Exception) -> Exception:
    """Celery's words for how a task ends, in ours."""
    if isinstance(word, Retry):
        why = _said(word.exc) if word.exc else word.excs or "the task asked to be tried again"
        return TaskRetry(why, retry_after_s=_wait_s(word.when))
    if isinstance(word, MaxRetriesExceededError):
        return RetriesOver(_said(word))
    hint = "return a result, or raise what is wrong"
    return NotInAStep(f"the task ended with {type(word).__name__}: a step has a result or an error", hint=hint)


def _wait_s(when: Any) -> float:
    """A countdown in seconds, or a moment; one without a time zone is UTC, as Celery takes it."""
    if isinstance(when, datetime):
        moment = when if when.tzinfo else when.replace(tzinfo=UTC)
        when = (moment - datetime.now(UTC)).total_seconds()
    seconds = float(when or 0)
    return seconds if seconds > 0 else 0.0


def _name_of(sig: Any) -> str:
    """Of a task; its arguments are nobody's business in an error."""
    return str(getattr(sig, "task", type(sig).__name__))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
