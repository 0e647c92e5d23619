"""Which rungs work here, found by starting a sandbox on each; and the strongest of them that policy takes.

Once a process, at its start: children inherit what their worker found. Again, in a child, after a start that failed;
the worker hears what it found.
"""

import mmap
import os
import sys
import tempfile
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
_RUNGS: Final[tuple[Rung | None, ...]] = (None, *Rung)
_last = mmap.mmap(-1, 1)  # shared with all that are forked from here: what one of them found last, by its place above


def current(given: Settings) -> Ladder:
    """What was found in this process, or before it was forked."""
    return _found[0] if _found else look_again(given)


def look_again(given: Settings) -> Ladder:
    """Try every rung anew, and say what there is."""
    _found[:] = [find(given)]
    ladder = _found[0]
    _last[0] = _RUNGS.index(ladder.best)
    reasons = tuple(f"{rung}: {why}" for rung, why in ladder.missing.items())
    logs.emit(commands.SandboxFound(ladder.best, reasons) if ladder.best else commands.NoSandbox(reasons))
    if ladder.best is Rung.RLIMITS:
        logs.emit(commands.Unfenced())
    return ladder


def last_found() -> Rung | None:
    """The strongest rung, by whichever looked last of a worker and its children. None: none works, or none looked."""
    return _RUNGS[_last[0]]
