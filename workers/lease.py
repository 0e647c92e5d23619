"""Keeping a claim alive while its action runs, and knowing when the action must stop.

A thread renews at a third of the lease and watches the clock. It raises a flag with a reason: the store said that the
claim is lost or the run is ending, the attempt's time is up, the worker shuts down, or the store was silent for so long
that somebody else must be assumed to hold the claim. `check` raises on that flag. An action that has not returned one
grace later takes its whole process with it: SIGKILL, which nothing can catch.

Silence: a lease that nobody has ended can still be renewed after its time, and supervisors that come back from an
outage wait one lease before they reclaim anything. So it takes two leases without an answer.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Final, Self, TypeVar

from orchestrator.errors import LedgerUnavailable, MandorError, StoreUnavailable
from orchestrator.store.replies import Lost, Renewed, StopNow, UnknownRun
from orchestrator.telemetry import events, logs
from workers import stopping
from workers.outcomes import AttemptStopped, LeaseLost, RunEnding, TimeUp, WorkerStopping

RENEWALS: Final = 3  # within one lease
_TICK_S: Final = 0.25  # how often the clock and the worker's own stop are looked at
_RETRY_S: Final = 0.5  # between tries while store or ledger are away

T = TypeVar("T")
Renewal = Renewed | Lost | StopNow | UnknownRun


class Halt(StrEnum):
    """Why an attempt is told to stop."""

    LEASE_LOST = "lease_lost"
    TIMEOUT = "timeout"
    RUN_ENDING = "run_ending"
    STOPPING = "worker_stopping"


_RAISES: Final[dict[Halt, tuple[type[AttemptStopped], str]]] = {
    Halt.LEASE_LOST: (LeaseLost, "this attempt no longer holds its claim"),
    Halt.TIMEOUT: (TimeUp, "the attempt has used up its time limit"),
    Halt.RUN_ENDING: (RunEnding, "the run does not go on"),
    Halt.STOPPING: (WorkerStopping, "the worker is shutting down"),
}


@dataclass(frozen=True, slots=True)
class Terms:
    """What was granted. granted_at: time.monotonic() before the claim was sent, so that we never claim too much."""

    fence: int
    lease_ms: int
    limit_ms: int
    stop_grace_ms: int
    granted_at: float


def kill_self() -> None:
    """End this process now; its parent sees it and ends the claim."""
    os.kill(os.getpid(), signal.SIGKILL)


class Lease:
    """A claim kept alive inside a `with` block. renew: one renewal at the store; kill: what ends a deaf action."""

    def __init__(self, terms: Terms, renew: Callable[[], Renewal], *, kill: Callable[[], None] = kill_self) -> None:
        self._terms = terms
        self._renew = renew
        self._kill = kill
        self._over = threading.Event()
        self._acting = True
        self._halt: Halt | None = None
        self._heard_at = terms.granted_at
        self._renew_at = terms.granted_at + self._lease_s / RENEWALS
        self._kill_at = float("inf")
        self._thread = threading.Thread(target=self._watch, args=(logs.snapshot(),), name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def halt(self) -> Halt | None:
        """Why the action should stop, None as long as it may go on."""
        return self._halt

    def check(self) -> None:
        """Raise AttemptStopped if the action should stop."""
        if self._halt is not None:
            error, message = _RAISES[self._halt]
            raise error(message)

    def action_returned(self) -> None:
        """From here on the process is not killed: what is left is ours, and bounded. Renewal goes on."""
        self._acting = False

    def patiently(self, call: Callable[[], T]) -> T:
        """Repeat a call that finds ledger or store away, while the claim may be kept; then its error is raised."""
        while True:
            try:
                return call()
            except (LedgerUnavailable, StoreUnavailable):
                if self._halt is not None or stopping.announced():
                    raise
            time.sleep(_RETRY_S)

    @property
    def _lease_s(self) -> float:
        return self._terms.lease_ms / 1000

    def _watch(self, identity: logs.Identity) -> None:
        with logs.identity(**identity):
            try:
                while not self._over.wait(_TICK_S):
                    self._tick(time.monotonic())
            finally:
                if not self._over.is_set():
                    self._stop(Halt.LEASE_LOST, time.monotonic())

    def _tick(self, now: float) -> None:
        if now >= self._renew_at and self._halt is not Halt.LEASE_LOST:
            self._renew_once(now)
        if self._halt is None:
            self._look_at_clock(now)
        if now >= self._kill_at and self._acting:
            self._kill()

    def _look_at_clock(self, now: float) -> None:
        if now >= self._terms.granted_at + self._terms.limit_ms / 1000:
            self._stop(Halt.TIMEOUT, now)
        elif now >= self._heard_at + 2 * self._lease_s:
            self._stop(Halt.LEASE_LOST, now)
        elif stopping.announced():
            self._stop(Halt.STOPPING, now)

    def _renew_once(self, now: float) -> None:
        try:
            reply = self._renew()
        except MandorError as away:
            self._renew_at = now + min(_RETRY_S, self._lease_s / RENEWALS)
            logs.emit(events.LeaseNotRenewed(fence=self._terms.fence, kind=away.kind))
            return
        self._renew_at = now + self._lease_s / RENEWALS
        self._heed(reply, now)

    def _heed(self, reply: Renewal, now: float) -> None:
        match reply:
            case Renewed():
                self._heard_at = now
            case StopNow():
                self._heard_at = now
                self._stop(Halt.RUN_ENDING, now)
            case _:
                logs.emit(events.LeaseLost(fence=self._terms.fence))
                self._stop(Halt.LEASE_LOST, now)

    def _stop(self, why: Halt, now: float) -> None:
        """Raise the flag. A lost lease overrides any other reason; the time to the kill is never put off."""
        if self._halt is None or (why is Halt.LEASE_LOST and self._halt is not why):
            self._halt = why
            self._kill_at = min(self._kill_at, now + self._terms.stop_grace_ms / 1000)
            logs.emit(events.StopAsked(reason=why.value))
