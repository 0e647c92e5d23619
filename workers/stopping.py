"""What a worker's main process and its children tell each other of its end, which Celery does not.

To the children: it is shutting down. Celery tells them nothing about a soft stop; they would go on until they are
killed. The byte lies in memory that is mapped when this module is imported, in the parent, and inherited by every
child that is forked later.

From the children: somebody is at work. Celery sleeps through the whole of a soft stop, also if all are done after a
moment. Each child at work holds a lock that many may hold; the kernel takes it back from whoever is killed.
"""

import fcntl
import mmap
import os
import tempfile
import time
from typing import Final

_POLL_S: Final = 0.05


def _file_of_our_own() -> int:
    """Of memory, where the system has such: a worker's file system may be read only."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mandor-at-work")
    return os.dup(tempfile.TemporaryFile().fileno())


_shared: Final = mmap.mmap(-1, 1)
_at_work: Final = _file_of_our_own()


def announce() -> None:
    """Tell every child to stop at its next chance. Safe in a signal handler."""
    _shared[0] = 1


def announced() -> bool:
    """Whether the worker that this process belongs to is shutting down."""
    return _shared[0] == 1


def take_back() -> None:
    """A new worker begins in this process."""
    _shared[0] = 0


def begin_work() -> None:
    """This process has work, until it ends or says otherwise."""
    fcntl.lockf(_at_work, fcntl.LOCK_SH)


def end_work() -> None:
    """This process has nothing to do."""
    fcntl.lockf(_at_work, fcntl.LOCK_UN)


def await_idle(most_s: float) -> bool:
    """Sleep until no other process is at work, for `most_s` seconds at most; whether that came to be."""
    deadline = time.monotonic() + most_s
    while not _idle():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _idle() -> bool:
    try:
        fcntl.lockf(_at_work, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.lockf(_at_work, fcntl.LOCK_UN)
    return True
