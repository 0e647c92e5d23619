"""Counting finished work from outside: a byte in a file for each task or step, so that both sides do the same."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

VARIABLE: Final = "BENCH_TALLY"


@cache
def _descriptor() -> int:
    """Appending to a file is atomic, so forked children may share it."""
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def add() -> None:
    """One more is done. A single system call, some two microseconds."""
    os.write(_descriptor(), b".")


class Tally:
    """The file, as whoever waits reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    @property
    def count(self) -> int:
        """How many are done since the beginning."""
        return self.path.stat().st_size

    def marker(self) -> Callable[[], int]:
        """Counts from here."""
        before = self.count
        return lambda: self.count - before
