"""Neither what a killed child leaves behind, nor a broker that goes while a child speaks, ends a worker or stops it."""

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.connection import Connection, Pipe
from kombu.asynchronous import Hub

from orchestrator import pools

WHOLE, CUT = {"number": 1}, {"text": "x" * 100}
DEAD = -9


class Child:
    """The pipe of a child that was killed, and what its worker hears of it."""

    def __init__(self) -> None:
        self.reader, self._writer = Pipe(duplex=False, rnonblock=True)
        self.heard: list[Any] = []
        nothing: list[Any] = [None] * 9
        self.results = pools.Results(*nothing, fileno_to_outq={self.number: self}, on_process_alive=None)
        self.results.on_state_change = self.heard.append

    @property
    def number(self) -> int:
        """Of the end that the worker reads."""
        return int(self.reader.fileno())

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
        pool._result_handler = self.results
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


# ---- the broker goes


@pytest.fixture
def hub() -> Iterator[Any]:
    made: Any = Hub()  # type: ignore[no-untyped-call]  # kombu has no types
    yield made
    made.close()


def listen(child: Child, hub: Any) -> None:
    """As a worker's event loop begins: at its start, and when the broker is there again."""
    child.results.register_with_event_loop(hub)
    hub.add_reader(child.number, child.results.handle_event, child.number)
    child.results.go_on(hub)


@pytest.mark.parametrize("last", [2, 4, 6, 50])
def test_the_broker_goes_in_the_middle_of_a_word(child: Child, hub: Any, last: int) -> None:
    """As Celery has it, the rest is taken for another message: the worker ends, or never hears of that child again."""
    listen(child, hub)
    child.says(CUT, last=last)
    next(hub.create_loop())
    hub.reset()  # as Celery does when the connection is lost
    child.says(CUT, first=last)
    child.says(WHOLE)
    listen(child, hub)
    loop = hub.create_loop()
    next(loop)
    next(loop)
    assert child.heard == [CUT, WHOLE]


def test_the_broker_goes_between_two(child: Child, hub: Any) -> None:
    listen(child, hub)
    child.says(WHOLE)
    next(hub.create_loop())
    hub.reset()
    child.says(CUT)
    listen(child, hub)
    next(hub.create_loop())
    assert child.heard == [WHOLE, CUT]


def test_a_child_is_killed_of_which_a_part_was_heard(child: Child, hub: Any) -> None:
    listen(child, hub)
    child.says(CUT, last=50)
    next(hub.create_loop())
    child.says(CUT, first=50)
    child.says(WHOLE)
    child.flush()
    assert child.heard == [CUT, WHOLE]


def test_its_pipe_is_the_next_child_s(child: Child, hub: Any) -> None:
    """As after a time limit; and then the broker goes, before that child has said a word."""
    listen(child, hub)
    child.says(CUT, last=50)
    next(hub.create_loop())
    child.flush()
    hub.reset()
    listen(child, hub)
    child.says(WHOLE)
    next(hub.create_loop())
    assert child.heard == [WHOLE]


def test_a_worker_stops_while_the_broker_is_away(child: Child, hub: Any) -> None:
    """As Celery has it, the rest is taken for another message, and waited for without end."""
    listen(child, hub)
    child.says(CUT, last=50)
    next(hub.create_loop())
    hub.reset()
    child.says(CUT, first=50)
    child.says(WHOLE)
    process = SimpleNamespace(outq=SimpleNamespace(_reader=child.reader))
    child.results._flush_outqueue(child.number, lambda _: None, {child.number: process}, child.heard.append)
    assert child.heard == [CUT, WHOLE]


@pytest.mark.timeout(30)
def test_a_pool_goes_on_by_itself(hub: Any) -> None:
    """It has such results, and tells them when its event loop begins anew."""
    pool: Any = pools.Pool(processes=1, threads=False)
    try:
        begun: list[Any] = []
        pool._result_handler.go_on = begun.append
        pool.register_with_event_loop(hub)
        assert (type(pool._result_handler), begun) == (pools.Results, [hub])
    finally:
        pool.terminate()
        pool.join()


# ---- a child goes


class Gone:
    """A process that has ended."""

    outqR_fd = -1  # noqa: N815  # Celery's name

    def _is_alive(self) -> bool:
        return False


def test_the_numbers_of_its_pipes_are_forgotten() -> None:
    """As Celery has it, the worker listens to whatever has such a number next, once its broker comes back."""
    pool: Any = object.__new__(pools.Pool)
    pool.synack, pool._waiting_to_start = True, set()
    pool._result_handler = SimpleNamespace(forget=lambda number: None)
    pool.hub_remove = pool.on_inqueue_close = lambda *_: None
    mine, others = pool.create_process_queues(), pool.create_process_queues()
    dead, lives = Gone(), Gone()
    pool._queues = {mine: dead, others: lives}
    pool._fileno_to_outq = {mine[1]._reader.fileno(): dead, others[1]._reader.fileno(): lives}
    pool._fileno_to_synq = {mine[2]._writer.fileno(): dead, others[2]._writer.fileno(): lives}
    assert pool.destroy_queues(mine, dead) == 1
    left = [list(index.values()) for index in (pool._fileno_to_outq, pool._fileno_to_synq)]
    assert pool.destroy_queues(others, lives) == 1
    assert left == [[lives], [lives]]
