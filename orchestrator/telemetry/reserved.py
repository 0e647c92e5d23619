"""A file of counters that has its place on the disk before it is written to.

prometheus-client maps its files and makes them long without taking the room. The system kills a process whose mapped
page finds none: on a full disk each new child would end with its first count.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client.mmap_dict import MmapedDict

FIRST_SIZE: Final = 1 << 16


class Reserved(MmapedDict):
    """OSError: there is no room; `failed` is called first. What was counted so far stays."""

    def __init__(self, filename: str, *, failed: Callable[[], None]) -> None:
        self._failed = failed
        with self._telling():
            _begin_file(Path(filename))
        super().__init__(filename)  # type: ignore[no-untyped-call]

    def _init_value(self, key: str) -> None:
        size, needed = self._capacity, self._used + _entry_size(key)
        while size < needed:
            size *= 2
        if size > self._capacity:
            with self._telling():
                _reserve(Path(self._fname), size)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self._failed()
            raise


def _entry_size(key: str) -> int:
    """Its length, the key filled up to eight, value and time."""
    length = 4 + len(key.encode())
    return length + 8 - length % 8 + 16


def _begin_file(file: Path) -> None:
    try:
        _reserve(file, FIRST_SIZE)
    except OSError:
        file.unlink(missing_ok=True)
        raise


def _reserve(file: Path, size: int) -> None:
    """OSError: there is no room."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as wrong:
        if wrong.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system that has no such thing
            raise
    finally:
        os.close(descriptor)
