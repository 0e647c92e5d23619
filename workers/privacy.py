"""A worker holds keys. What its actions start is of the same user, and could look into it: its first environment, its
memory, what it has open.

Linux lets nobody but root look into a process that says so. Its children inherit that; a program that they start is its
own again. Elsewhere nothing is kept.
"""

import ctypes
from typing import Final

_SET_DUMPABLE: Final = 4  # of prctl(2)


def close() -> bool:
    """From here on nobody but root can look into this process and its forks. False: this system has no such thing."""
    try:
        return bool(ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
