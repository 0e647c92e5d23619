"""A lock on a folder that ends with its holders, however they end."""

import fcntl
import os
from pathlib import Path


class Lock:
    """An flock on a file that holds the pid of who took it last. Whoever inherits the descriptor holds it too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """To be inherited. Only after `take` said yes."""
        assert self._descriptor is not None
        return self._descriptor

    def take(self) -> bool:
        """False if another process holds it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor
        return True

    def holder(self) -> int | None:
        """Pid of who took it last; None if that cannot be read."""
        try:
            return int(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def release(self) -> None:
        """Let go of our own hold; what inherited the descriptor keeps its."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
