"""Under which name a process counts: a lock says that it is alive (orchestrator.telemetry.counting says what for)."""

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path


class Writer:
    """The name of this process among those that count in a folder. Another one after a fork."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._fresh = False
        self._lock: int | None = None
        os.register_at_fork(after_in_child=self.begin_anew)

    def __call__(self) -> str:
        """Asked by prometheus-client before each change."""
        self._fresh = not self._name
        if self._fresh:
            self._begin()
        return self._name

    def failed(self) -> None:
        """There was no room for a file. Of a new name's, some values have one and some none: there will be another."""
        if self._fresh:
            self._name = ""

    def begin_anew(self) -> None:
        """This is another process by now."""
        self._name = ""

    def _begin(self) -> None:
        inherited, self._lock = self._lock, None  # what comes now may fail, and is tried again
        if inherited is not None:
            os.close(inherited)  # while we had it open, our parent would seem alive after its end
        name = ""
        while self._lock is None:
            name = f"{os.getpid()}-{secrets.token_hex(6)}"
            self._lock = _held(self._folder / f"{name}.lock")
        self._name = name


def _held(path: Path) -> int | None:
    """A lock that ends with this process. None: somebody took its file for a leftover between two lines."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    if _is_same(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def _is_same(descriptor: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        there = path.stat()
        here = os.fstat(descriptor)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
    return False
