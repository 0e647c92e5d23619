"""Which rungs work here, found by starting a sandbox on each; and the strongest of them that policy takes.

Once a process, at its start: children inherit what their worker found. Again, in a child, after a start that failed,
and now and then while less works than once did, or than a command needs: what fails under load or for want of room may
pass. The worker hears what its children find.
"""

import mmap
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.settings import Settings, env_name
from orchestrator.telemetry import commands, logs
from schemas.policy import Rung
from workers.sandbox.host import STAGES, Host, this_host
from workers.sandbox.jobs import Exited, Job, Limits, SandboxFailed
from workers.sandbox.ownership import hand_to
from workers.sandbox.running import run

LOOK_EVERY_S: Final = 15.0  # at most: a look takes a second, and more on a busy machine
_MIB: Final = 1024 * 1024
_LIMITS: Final = Limits(
    timeout_s=5.0,
    grace_s=0.5,
    cpu_s=5,
    memory_bytes=256 * _MIB,
    processes=16,
    kept_bytes=1024,
    output_bytes=64 * 1024,
    file_bytes=_MIB,
)
_SAYS: Final = "echo stands"
_SAID: Final = b"stands\n"


@dataclass(frozen=True, slots=True)
class Ladder:
    """missing: of each rung that does not work here, why."""

    host: Host
    working: tuple[Rung, ...]
    missing: Mapping[Rung, str]

    @property
    def best(self) -> Rung | None:
        """The strongest that works."""
        return self.working[0] if self.working else None

    def choose(self, least: Rung) -> Rung | None:
        """The strongest that works, if it is at least this strong."""
        return next((rung for rung in Rung if rung in self.working and rung.is_at_least(least)), None)


def find(given: Settings) -> Ladder:
    """Start one sandbox a rung; the last rung only where the operator allows it."""
    host = this_host(given.sandbox_uid)
    missing = {rung: why for rung in Rung if (why := _why_not(rung, host, given))}
    return Ladder(host, tuple(rung for rung in Rung if rung not in missing), missing)


def _why_not(rung: Rung, host: Host, given: Settings) -> str | None:
    if sys.platform != "linux":
        return "sandboxes are made on Linux only"
    if rung is Rung.RLIMITS and not rung.is_at_least(given.min_rung):
        return "the operator does not allow it"
    if rung is not Rung.RLIMITS and (why := _why_no_fence(rung, host, given.home.resolve())):
        return why
    try:
        return _try(rung, host)
    except SandboxFailed as failed:
        return f"{failed.message}{failed.said and ': '}{failed.said}"
    except OSError as fault:
        return f"it could not be tried: {os.strerror(fault.errno or 0)}"


def _why_no_fence(rung: Rung, host: Host, home: Path) -> str | None:
    """What can be told without trying. home: its passwords, ledger and workspaces are of the commands' user too."""
    if rung is Rung.BUBBLEWRAP and host.bubblewrap is None:
        return "bubblewrap is not installed"
    if shown := host.showing(home):
        return f"{env_name('home')} is below {shown}, where commands read: put it elsewhere"
    if host.uid is not None and host.stage is None:
        return f"there is no folder to mount others below: {', '.join(STAGES)}"
    return None


def _try(rung: Rung, host: Host) -> str | None:
    """A trivial command in a sandbox of its own, and what it says."""
    with tempfile.TemporaryDirectory(prefix="mandor-probe-", ignore_cleanup_errors=True) as folder:
        hand_to(Path(folder), host.uid, host.gid)
        ended = run(rung, host, Job(("/bin/sh", "-c", _SAYS), Path(folder), _LIMITS))
    if ended.end != Exited(0) or ended.stdout.head != _SAID:
        return f"a command that should say {_SAID!r} ended as {ended.end}"
    return None


# ---- one a process

_found: list[Ladder] = []
_ever: set[Rung] = set()  # what has worked here so far
_look_at: list[float] = [0.0]  # by the clock that children share, not before
_RUNGS: Final[tuple[Rung | None, ...]] = (None, *Rung)
_last = mmap.mmap(-1, 1)  # shared with all that are forked from here: what one of them found last, by its place above


def current(given: Settings, least: Rung) -> Ladder:
    """What was found in this process, or before it was forked; looked for anew where that is less than has worked, or
    nothing as strong as this.
    """
    if not _found or (_is_poor(_found[0], least) and time.monotonic() >= _look_at[0]):
        return look_again(given)
    return _found[0]


def _is_poor(found: Ladder, least: Rung) -> bool:
    return found.choose(least) is None or not _ever <= set(found.working)


def has_worked(least: Rung) -> bool:
    """Whether anything as strong has worked here: that nothing does may pass."""
    return any(rung.is_at_least(least) for rung in _ever)


def look_again(given: Settings) -> Ladder:
    """Try every rung anew, and say what there is."""
    _found[:] = [find(given)]
    ladder = _found[0]
    _ever.update(ladder.working)
    _look_at[0] = time.monotonic() + LOOK_EVERY_S
    _last[0] = _RUNGS.index(ladder.best)
    reasons = tuple(f"{rung}: {why}" for rung, why in ladder.missing.items())
    logs.emit(commands.SandboxFound(ladder.best, reasons) if ladder.best else commands.NoSandbox(reasons))
    if ladder.best is Rung.RLIMITS:
        logs.emit(commands.Unfenced())
    return ladder


def last_found() -> Rung | None:
    """The strongest rung, by whichever looked last of a worker and its children. None: none works, or none looked."""
    return _RUNGS[_last[0]]
