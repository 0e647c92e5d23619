"""What an attempt has started ends with the attempt's process, also what has left its group and session.

A worker's main process and each of its children adopt what their descendants leave behind (Linux: child subreapers).
While a child lives, what its attempts let go of stays below it; when it is killed, all of that becomes the main
process's own, which starts nothing itself but children of its pool: whatever else hangs there is an orphan, and ends.

Elsewhere nothing is adopted, and what a killed child has started lives on.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

END_WITH_CHILD: Final = sys.platform == "linux"  # a killed child is proven dead with all that it has started
_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_STATE, _PARENT = 0, 1  # of /proc/<pid>/stat, counted from behind the command
_POLL_S: Final = 0.005

_before: set[int] = set()
_left: set[int] = set()


def adopt() -> bool:
    """Be the parent of whatever a descendant leaves behind. False: this system has no such thing."""
    _before.clear()
    _left.clear()
    _before.update(children())
    try:
        return bool(ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def children() -> set[int]:
    """The processes whose parent is this one, those that have ended and were not buried among them."""
    return {pid for pid, _ in _children()}


def end_all(own: set[int], within_s: float) -> bool:
    """Kill the orphans of dead children, and theirs, until none is left. own: living children of this process. False:
    some outlasted this time.
    """
    give_up = time.monotonic() + within_s
    while orphans := children() - own - _before:
        for pid in orphans:
            _end(pid)
        if time.monotonic() > give_up:
            return False
        time.sleep(_POLL_S)
    return True


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _let_go(pid)


def _let_go(pid: int) -> None:
    """Take its exit status, if it has ended."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def bury() -> None:
    """Let go of what has ended below this process, if nobody asked for its exit status since the last call."""
    dead = {pid for pid, state in _children() if state == b"Z"} if _any_has_ended() else set()
    for pid in dead & _left:
        _let_go(pid)
    _left.clear()
    _left.update(dead)


def _any_has_ended() -> bool:
    """One quick question, for this is asked after every task."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except (ChildProcessError, AttributeError):  # AttributeError: no waitid on this system
        return False


def _children() -> Iterator[tuple[int, bytes]]:
    """The processes whose parent is this one, each with its state. None where there is no /proc."""
    me = str(os.getpid()).encode()
    for entry in _processes():
        with suppress(OSError):
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[_PARENT] == me:
                yield int(entry.name), fields[_STATE]


def _processes() -> list[Path]:
    try:
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []
