"""Several processes that do one thing at the same moment."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from typing import Any

_barrier: Barrier | None = None


class Crowd:
    """size processes, started from nothing (spawn), kept for several tests."""

    def __init__(self, pool: ProcessPoolExecutor, size: int) -> None:
        self.size = size
        self._pool = pool

    def do(self, what: Callable[..., Any], *args: Any) -> list[Any]:
        """what(index, *args) in every process, all starting together; the answers in the order of the indexes."""
        calls = [self._pool.submit(_together, what, index, args) for index in range(self.size)]
        return [call.result(timeout=100) for call in calls]


@contextmanager
def crowd_of(size: int) -> Iterator[Crowd]:
    """A crowd, gone at the end of the block."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(size, context, _join, (context.Barrier(size),)) as pool:
        yield Crowd(pool, size)


def _join(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603  (a barrier reaches a spawned process only by its initializer)
    _barrier = barrier


def _together(what: Callable[..., Any], index: int, args: tuple[Any, ...]) -> Any:
    assert _barrier is not None
    _barrier.wait(60)
    return what(index, *args)
