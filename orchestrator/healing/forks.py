"""Threads beside a main thread that forks.

A child has none of its parent's threads, but every lock as it was at the fork: one that a thread held then is held for
ever. SQLite, OpenSSL and streams have such locks. So a thread does its work inside the gate, and a fork waits a moment
until nobody is in there.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PATIENCE_S: Final = 2.0  # a thread that hangs must not keep a worker from replacing a child


class Gate:
    """One for all threads of a process."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._reset()
        os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._reset)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """No fork in here, unless it takes too long."""
        with self._news:
            self._news.wait_for(lambda: not self._closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._news:
                self._inside -= 1
                self._news.notify_all()

    def _close(self) -> None:
        with self._news:
            self._closed = True
            self._news.wait_for(lambda: self._inside == 0, self._patience_s)

    def _open(self) -> None:
        with self._news:
            self._closed = False
            self._news.notify_all()

    def _reset(self) -> None:
        self._news = threading.Condition()
        self._inside = 0
        self._closed = False


GATE: Final = Gate()
