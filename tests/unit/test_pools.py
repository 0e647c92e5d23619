"""What a killed child leaves in its pipe does not end its worker, nor make it wait."""

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.connection import Connection, Pipe

from orchestrator import pools

WHOLE, CUT = {"number": 1}, {"text": "x" * 100}
DEAD = -9


class Child:
    """The pipe of a child that was killed, and what its worker hears of it."""

    def __init__(self) -> None:
        self.reader, self._writer = Pipe(duplex=False)
        self.heard: list[Any] = []

    def says(self, message: Any, *, first: int = 0, last: int | None = None) -> None:
        """The message, or these bytes of it."""
        other, mine = Pipe(duplex=False)
        with other, mine:
            mine.send(message)
            told = os.read(other.fileno(), 65_536)
        os.write(self._writer.fileno(), told[first:last])

    def flush(self) -> None:
        pool: Any = object.__new__(pools.Pool)
        pool._state = 0
        pool._result_handler = SimpleNamespace(on_state_change=self.heard.append)
        pool.process_flush_queues(SimpleNamespace(exitcode=DEAD, outq=SimpleNamespace(_reader=self.reader)))

    def close(self) -> None:
        ends: tuple[Connection, ...] = (self.reader, self._writer)
        for end in ends:
            end.close()


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child()
    yield made
    made.close()


def test_what_it_has_said_is_heard(child: Child) -> None:
    child.says(WHOLE)
    child.says(CUT)
    child.flush()
    assert child.heard == [WHOLE, CUT]


def test_it_has_said_nothing(child: Child) -> None:
    child.flush()
    assert child.heard == []


@pytest.mark.parametrize("last", [2, 4, 50])
def test_it_was_killed_in_the_middle_of_a_word(child: Child, last: int) -> None:
    """As Celery has it, the event loop waits for the rest."""
    child.says(WHOLE)
    child.says(CUT, last=last)
    began = time.monotonic()
    child.flush()
    assert (child.heard, time.monotonic() - began < 1) == ([WHOLE], True)


@pytest.mark.parametrize("first", [1, 4, 6, 50])
def test_the_event_loop_has_read_the_beginning(child: Child, first: int) -> None:
    """As Celery has it, the event loop waits for as many bytes as these say, or the worker ends: UnpicklingError."""
    child.says(CUT, first=first)
    child.says(WHOLE)
    child.flush()
    assert child.heard == []
