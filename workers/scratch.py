"""A folder of one attempt alone, gone with it. Its lock ends with the process that has it, however that ends: whoever
gets it takes the folder away.

    {home}/scratch/{name}/     0700, under a name that nobody knows
"""

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from orchestrator.home import make_private
from workers.removal import remove_tree
from workers.shut import open_up

SCRATCH: Final = "scratch"
_TRIES: Final = 10


class Scratch:
    """Made at once. Close it when the attempt has ended."""

    def __init__(self, home: Path) -> None:
        above = home.absolute() / SCRATCH
        make_private(above)
        for _ in range(_TRIES):
            self.path = above / secrets.token_hex(20)
            self.path.mkdir(mode=0o700)
            lock = _held(self.path)
            if lock is not None:
                self._lock = lock
                return
        raise OSError("no folder could be kept")  # each was taken for a dead attempt's before it was locked

    def close(self) -> None:
        """Take the folder away. What stands in the way is for the next look."""
        with suppress(OSError):
            remove_tree(self.path)
        os.close(self._lock)


def remove_dead(home: Path) -> int:
    """Take away the folders of attempts that have ended without it; answers how many."""
    above = home.absolute() / SCRATCH
    return sum(map(_remove_if_dead, above.iterdir())) if above.is_dir() else 0


def _remove_if_dead(folder: Path) -> bool:
    with suppress(OSError):
        lock = _held(folder)
        if lock is not None:
            try:
                return remove_tree(folder)
            finally:
                os.close(lock)
    return False


def _held(folder: Path) -> int | None:
    """The folder's lock; None: somebody else has it, or the folder is gone."""
    try:
        lock = open_up(folder)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), folder.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
