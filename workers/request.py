"""What a worker's main process does for a plan or step whose child is gone: end all that the child has started, end its
claim, tell the chord nothing.

The message goes back to its queue, and the copy finds a claim that is proven dead, not one that it must wait for. A
failed part would spoil the chord for good, though the step may well succeed at its next attempt; so what this process
says of a task carries no chord. This code runs in the worker's event loop: it is quick, and raises nothing.
"""

import os
import signal
import time
from functools import cached_property
from typing import Any, Final, Literal

from billiard.process import active_children
from celery.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.worker.request import Request

from orchestrator import names
from orchestrator.app import PerProcess, reference_epoch
from orchestrator.dispatch import KILL_MARGIN_S
from orchestrator.errors import MandorError
from orchestrator.settings import settings
from orchestrator.store import Store, open_store
from orchestrator.store.replies import Ended
from orchestrator.telemetry import events, logs, signals
from schemas.ids import RunRef
from workers import orphans, stopping
from workers.identity import child_id

_PATIENCE_S: Final = 1.0  # for one call to the store: the event loop stands still meanwhile
_DEATH_S: Final = 1.0  # for a killed child, and then for what it has started, to be gone
_POLL_S: Final = 0.005
_LOOPS: Final[dict[str, signals.Loop]] = {names.STEP: "step", names.PLAN: "planner"}
_CLAIMS: Final[dict[str, Literal["step", "plan"]]] = {names.STEP: "step", names.PLAN: "plan"}
# a child that ended in one of these can do nothing more
_GONE: Final = (WorkerLostError, Terminated, TimeLimitExceeded, SystemExit, KeyboardInterrupt)


def _impatient_store() -> Store:
    quick = settings().model_copy(update={"store_timeout_s": _PATIENCE_S})
    return open_store(quick, reference_epoch())


_store: Final = PerProcess(_impatient_store)


class ClaimRequest(Request):
    """The request of a task that holds a claim in the store while it runs."""

    _child: str | None = None

    @cached_property
    def _context(self) -> Any:
        context = super()._context
        context.chord = None
        return context

    def revoked(self) -> bool:
        """Never. A revocation sticks to a task id, and every copy of this message bears the same: it is for the store
        to say that a step is not wanted any more. `mandor run cancel` tells it so.
        """
        return False

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """A child has taken the task: remember who it is while that can be seen."""
        self._child = child_id(pid)
        super().on_accepted(pid, time_accepted)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Hard limit: the child is killed, its claim ended, before the message goes back."""
        if not soft:
            logs.emit(signals.AttemptKilled(_LOOPS.get(self.name, "undo"), "time_limit", round(timeout * 1000)))
            self._end_claim()
        super().on_timeout(soft, timeout)

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002  # Celery's name
        """What goes back to its queue will be tried again, and Flower shows it as that."""
        goes_back = type == "task-rejected" and fields.get("requeue")
        super().send_event("task-retried" if goes_back else type, **fields)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """A failed task, or a lost child."""
        is_gone = isinstance(getattr(exc_info.exception, "exc", exc_info.exception), _GONE)
        if is_gone:
            self._end_claim()
        # ok: Celery need not print a traceback of its own for a message that goes back
        return super().on_failure(exc_info, send_failed_event, return_ok or is_gone)

    def _end_claim(self) -> None:
        child, self._child = self._child, None
        if child is None or not (_is_dead(self.worker_pid, child) and _has_left_nothing()):
            return
        fields = self.kwargs
        try:
            ref, step_id = RunRef(fields["run_id"], fields["session"]), fields.get("step_id")
            with logs.identity(run_id=ref.run_id, job_id=self.id, step_id=step_id, worker_id=child):
                self._tell(ref, step_id, child)
        except (MandorError, LookupError, ValueError, TypeError) as error:
            # the lease lapses by itself, only later
            logs.logger("mandor").warning("claim.not_ended", job_id=self.id, kind=type(error).__name__)

    def _tell(self, ref: RunRef, step_id: str | None, child: str) -> None:
        reply = _store().guard.end_claim(ref, step_id, child)
        if isinstance(reply, Ended):
            of: Literal["step", "undo", "plan"] = _CLAIMS.get(self.name, "undo")
            noticed = not stopping.announced()  # those who are killed at the end of a soft stop are no loss
            logs.emit(events.ClaimEnded("parent", reply.fence, None, of, noticed=noticed, overdue=self._is_overdue()))

    def _is_overdue(self) -> bool:
        """Whether the attempt had used up its own time, which is less than Celery's limit for its message."""
        limit_s = self.time_limits[0]
        if limit_s is None or self.time_start is None:
            return False
        return bool(time.time() - self.time_start >= limit_s - settings().stop_grace_s - KILL_MARGIN_S)


def _is_dead(pid: int, child: str) -> bool:
    """See to it that the child runs no more. False if that cannot be proven now."""
    if child_id(pid) != child:
        return True  # reaped; whoever has the pid now is another process
    try:
        return _kill(pid)
    except (ChildProcessError, ProcessLookupError):
        return True
    except (OSError, AttributeError):  # AttributeError: no waitid on this system
        return False


def _has_left_nothing() -> bool:
    """See to it that nothing which a dead child has started runs any more. False if that cannot be proven now."""
    return orphans.end_all({child.pid for child in active_children()}, _DEATH_S)


def _kill(pid: int) -> bool:
    """Kill our child and wait, a moment, until it has ended. It stays to be reaped by the pool."""
    give_up = time.monotonic() + _DEATH_S
    os.kill(pid, signal.SIGKILL)
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > give_up:
            return False
        time.sleep(_POLL_S)
    return True
