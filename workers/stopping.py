"""One byte that the worker's main process shares with its children: it is shutting down.

Celery tells its children nothing about a soft stop; they would go on until they are killed. The byte lies in memory
that is mapped when this module is imported, in the parent, and inherited by every child that is forked later.
"""

import mmap
from typing import Final

_shared: Final = mmap.mmap(-1, 1)


def announce() -> None:
    """Tell every child to stop at its next chance. Safe in a signal handler."""
    _shared[0] = 1


def announced() -> bool:
    """Whether the worker that this process belongs to is shutting down."""
    return _shared[0] == 1


def take_back() -> None:
    """A new worker begins in this process."""
    _shared[0] = 0
