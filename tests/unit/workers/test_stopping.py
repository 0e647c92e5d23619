"""What the children of a worker tell of their work, with real processes."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from workers import stopping

WORKS, IDLE = b"w", b"i"


@pytest.fixture
def child() -> Iterator[Callable[..., int]]:
    """Forks a child that works, tells so, and sleeps or is idle again; answers its id."""
    children: list[int] = []

    def fork(*, ends_work: bool) -> int:
        told, tell = os.pipe()
        pid = os.fork()
        if not pid:
            stopping.begin_work()
            if ends_work:
                stopping.end_work()
            os.write(tell, IDLE if ends_work else WORKS)
            signal.pause()
        children.append(pid)
        os.close(tell)
        os.read(told, 1)
        os.close(told)
        return pid

    yield fork
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_nobody_is_waited_for_who_does_nothing(child: Callable[..., int]) -> None:
    child(ends_work=True)
    assert stopping.await_idle(0)


def test_each_child_at_work_is_waited_for_until_it_ends_or_dies(child: Callable[..., int]) -> None:
    first, second = child(ends_work=False), child(ends_work=False)
    child(ends_work=True)
    assert not stopping.await_idle(0.1)
    os.kill(first, signal.SIGKILL)
    assert not stopping.await_idle(0.1)
    os.kill(second, signal.SIGKILL)
    assert stopping.await_idle(10)
