"""Where billiard is met: what is left in a child's pipe when the broker goes, and what a killed child leaves behind.

In the middle of a message: when the broker's connection is lost Celery begins its event loop anew, and forgets what it
has read of a message that a child was just sending. It takes the rest for the next one: the worker ends, or never hears
of that child again and gives it no more work, until the task's time limit.

In a killed child's pipe: it may end in the middle of a message. Celery reads it as if it were whole: an error by which
the worker ends, or a wait for the missing bytes in which its event loop stands still.

In the pool's indices: the number of a pipe that is closed. Another pipe gets that number, be it one by which tasks go
to another child. When the broker comes back, Celery has the event loop listen to all that is in the indices: it takes
a part of such a task away from the child, and waits for more of it for ever.
"""

import inspect
import os
import struct
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, Final

from billiard.reduction import ForkingPickler
from celery.concurrency.asynpool import AsynPool, ResultHandler
from celery.concurrency.prefork import TaskPool
from celery.utils.log import get_logger

HEADER: Final = struct.Struct("!i")  # billiard's: the length of what follows
PIECE: Final = 65_536
logger = get_logger(__name__)


class Results(ResultHandler):  # type: ignore[misc]  # Celery has no types
    """Reads what children say, and remembers what it is in the middle of."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._last: dict[int, Generator[None]] = {}  # the reading of each pipe's last message

    def _recv_message(self, add_reader: Any, fd: int, callback: Any) -> Generator[None]:
        reading: Generator[None] = super()._recv_message(add_reader, fd, callback)
        self._last[fd] = reading
        return reading

    def go_on(self, hub: Any) -> None:
        """With the messages of which a part has been read, in an event loop that begins anew."""
        for descriptor in self._last:
            if reading := self._half_read(descriptor):
                hub.add_reader(descriptor, reading)

    def finish(self, descriptor: int) -> None:
        """The last message of a child that is gone, if the rest is there. Its pipe may be the next child's."""
        if reading := self._half_read(descriptor):
            with suppress(StopIteration, OSError, EOFError):
                next(reading)
        self.forget(descriptor)

    def forget(self, descriptor: int) -> None:
        """What was said in a pipe that is to be closed, or to be another child's."""
        self._last.pop(descriptor, None)

    def _finish_partial_read(self, fd: int, proc: Any) -> bool:
        """Celery's own, at the worker's end, looks into an event loop that has been emptied if the broker is away."""
        if reading := self._half_read(fd):
            self._hub.readers[fd] = (reading, ())
        dropped: bool = super()._finish_partial_read(fd, proc)
        return dropped

    def _half_read(self, descriptor: int) -> Generator[None] | None:
        reading = self._last.get(descriptor)
        return reading if reading and inspect.getgeneratorstate(reading) == inspect.GEN_SUSPENDED else None


class Pool(AsynPool):  # type: ignore[misc]  # Celery has no types
    """Takes what a dead child has said, as far as it can be understood. What it could not say, its job's end says."""

    ResultHandler = Results

    def register_with_event_loop(self, hub: Any) -> None:
        """Celery's own, which listens to all children from the beginning of a message."""
        super().register_with_event_loop(hub)
        self._result_handler.go_on(hub)

    def process_flush_queues(self, proc: Any) -> None:
        """Celery's own, for a child that lives: it is to finish what it says."""
        if proc.exitcode is None:
            super().process_flush_queues(proc)
            return
        reader = proc.outq._reader  # noqa: SLF001  # as Celery does
        if reader.closed:
            return
        self._result_handler.finish(reader.fileno())
        for message in messages(left_in(reader.fileno())):
            self._result_handler.on_state_change(message)

    def destroy_queues(self, queues: Any, proc: Any) -> int:
        """Celery's own, and what it leaves in the indices of a child that is no more."""
        self._result_handler.forget(proc.outqR_fd)
        removed: int = super().destroy_queues(queues, proc)
        for index in (self._fileno_to_outq, self._fileno_to_synq):  # it sees to that of the tasks
            for number in [number for number, owner in index.items() if owner is proc]:
                del index[number]
        return removed


def install() -> None:
    """From here on this process makes its pool of children so."""
    TaskPool.Pool = Pool


def left_in(descriptor: int) -> bytes:
    """All that is in a pipe now; nobody waits for more."""
    os.set_blocking(descriptor, False)
    pieces = []
    try:
        while piece := os.read(descriptor, PIECE):
            pieces.append(piece)
    except OSError:  # there is no more yet, or no pipe
        pass
    return b"".join(pieces)


def messages(data: bytes) -> Iterator[Any]:
    """The whole messages that bytes begin with. None is the last word of a child that ends by itself."""
    for body in _bodies(data):
        try:
            message = ForkingPickler.loads(body)
        except Exception as error:  # noqa: BLE001  # these are any bytes
            logger.warning("a killed child has left what cannot be read: %r", error)
            return
        if message is None:
            return
        yield message


def _bodies(data: bytes) -> Iterator[bytes]:
    while len(data) >= HEADER.size:
        (length,) = HEADER.unpack_from(data)
        end = HEADER.size + length
        if length < 0 or end > len(data):
            return
        yield data[HEADER.size : end]
        data = data[end:]
