"""Keeping a claim alive while its action runs, and knowing when the action must stop.

One thread a process renews each lease at a third of its length and watches the clock. It raises a flag with a reason:
the store said that the claim is lost or the run is ending, the attempt's time is up, the worker shuts down, or the
store was silent for so long that somebody else must be assumed to hold the claim. `check` raises on that flag. An
attempt that has not returned one grace later, or not told the ledger of its effect, takes its whole process with it:
SIGKILL, which nothing can catch. Spared is one that has returned and whose claim somebody else may have ended: of its
effect it alone knows.

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
from orchestrator.telemetry import aftermath, events, logs, signals
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
    """What was granted. granted_at: time.monotonic() before the claim was sent, so that we never claim too much; loop:
    what it was granted for.
    """

    fence: int
    lease_ms: int
    limit_ms: int
    stop_grace_ms: int
    granted_at: float
    loop: signals.Loop = "step"


def kill_self() -> None:
    """End this process now; its parent sees it and ends the claim."""
    os.kill(os.getpid(), signal.SIGKILL)


class Lease:
    """A claim kept alive inside a `with` block. renew: one renewal at the store; kill: what ends a deaf action."""

    def __init__(self, terms: Terms, renew: Callable[[], Renewal], *, kill: Callable[[], None] = kill_self) -> None:
        self._terms = terms
        self._renew = renew
        self._kill = kill
        self._acting = True
        self._telling = False
        self._halt: Halt | None = None
        self._heard_at = terms.granted_at
        self._renew_at = terms.granted_at + self._lease_s / RENEWALS
        self._kill_at = float("inf")
        self._identity: logs.Identity = {}
        self._watched_by: Watcher | None = None
        self._complained = False

    def __enter__(self) -> Self:
        self._identity = logs.snapshot()
        self._watched_by = _watcher()
        self._watched_by.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._acting = False
        if self._watched_by is not None:
            self._watched_by.remove(self)

    @property
    def halt(self) -> Halt | None:
        """Why the action should stop, None as long as it may go on."""
        return self._halt

    def check(self) -> None:
        """Raise AttemptStopped if the action should stop."""
        if self._halt is not None:
            error, message = _RAISES[self._halt]
            raise error(message)

    def telling(self) -> None:
        """The action has returned, and the ledger is told of its effect now. While the claim is kept, the process is
        killed like any other: whoever ends the claim asks the row. Once it may be lost, this process alone knows.
        """
        self._telling = True

    def action_returned(self) -> None:
        """From here on the process is not killed: what is left is ours, and bounded. Renewal goes on."""
        self._acting = False

    def patiently(self, call: Callable[[], T], *, about_effect: bool = False) -> T:
        """Repeat a call that finds ledger or store away, while the claim may be kept; then its error is raised.

        about_effect: it says what may have happened outside. Once somebody may have ended the claim, and judged it
        without that, this process alone knows: it goes on for as long as its message's own time limit lets it live.
        """
        while True:
            try:
                return call()
            except (LedgerUnavailable, StoreUnavailable):
                over = self._halt is not None or stopping.announced()
                if over and not (about_effect and self._alone_knows(time.monotonic())):
                    raise
            time.sleep(_RETRY_S)

    def _alone_knows(self, now: float) -> bool:
        terms = self._terms
        if not self._may_be_lost(now):
            return False
        if not self._complained:  # at once: how it will end is not certain
            self._complained = True
            logs.emit(aftermath.EffectUntold(fence=terms.fence))
        return now < terms.granted_at + (terms.limit_ms + terms.stop_grace_ms) / 1000

    def _may_be_lost(self, now: float) -> bool:
        """Whether somebody else may have ended the claim, and judged it."""
        return self._halt is Halt.LEASE_LOST or now >= self._heard_at + self._lease_s

    @property
    def _lease_s(self) -> float:
        return self._terms.lease_ms / 1000

    def watch(self) -> None:
        """Renew if it is time, look at the clock, and act on what is found. Called by the watcher, often."""
        with logs.identity(**self._identity):
            try:
                self._tick(time.monotonic())
            except Exception as error:  # noqa: BLE001  (a watcher that died unseen would leave actions without a lease)
                logs.logger("mandor").error("lease.broken", kind=type(error).__name__, where=events.where(error))
                self._stop(Halt.LEASE_LOST, time.monotonic())

    def _tick(self, now: float) -> None:
        if now >= self._renew_at and self._halt is not Halt.LEASE_LOST:
            self._renew_once(now)
        if self._halt is None:
            self._look_at_clock(now)
        if now >= self._kill_at and self._acting and not (self._telling and self._may_be_lost(now)):
            self._tell_end(now)
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
                self._stop(Halt.LEASE_LOST, now)

    def _stop(self, why: Halt, now: float) -> None:
        """Raise the flag. A lost lease overrides any other reason; the time to the kill is never put off."""
        if self._halt is None or (why is Halt.LEASE_LOST and self._halt is not why):
            self._halt = why
            self._kill_at = min(self._kill_at, now + self._terms.stop_grace_ms / 1000)
            if self._acting:  # afterwards it is no news: a claim that was committed cannot be renewed either
                self._tell(why)

    def _tell_end(self, now: float) -> None:
        """Nobody in this process will come to it."""
        reason, took_ms = self._halt.value if self._halt else "", round((now - self._terms.granted_at) * 1000)
        logs.emit(signals.AttemptKilled(self._terms.loop, reason, took_ms))

    def _tell(self, why: Halt) -> None:
        if why is Halt.LEASE_LOST:
            logs.emit(events.LeaseLost(fence=self._terms.fence))
        logs.emit(events.StopAsked(reason=why.value))


class Watcher:
    """The one thread of a process that keeps all its leases; it sleeps while there are none."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._leases: set[Lease] = set()
        self._lock = threading.Lock()
        self._some = threading.Event()
        threading.Thread(target=self._run, name="leases", daemon=True).start()

    def add(self, lease: Lease) -> None:
        """Watch it from now on."""
        with self._lock:
            self._leases.add(lease)
            self._some.set()

    def remove(self, lease: Lease) -> None:
        """Watch it no more."""
        with self._lock:
            self._leases.discard(lease)
            if not self._leases:
                self._some.clear()

    def _run(self) -> None:
        while True:
            self._some.wait()
            time.sleep(_TICK_S)
            with self._lock:
                leases = tuple(self._leases)
            for lease in leases:
                lease.watch()


_made: list[Watcher] = []


def _watcher() -> Watcher:
    """This process's; a forked child has none of its parent's threads."""
    if not _made or _made[0].pid != os.getpid():
        _made[:] = [Watcher()]
    return _made[0]
