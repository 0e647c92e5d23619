"""Where billiard is met: what a child that was killed leaves in its pipe.

It may end in the middle of a message, or begin in one of which the event loop has read the rest. Celery reads it as if
it were whole: an error by which the worker ends, or a wait for the missing bytes in which its event loop stands still.
"""

import os
import struct
from collections.abc import Iterator
from typing import Any, Final

from billiard.reduction import ForkingPickler
from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool
from celery.utils.log import get_logger

HEADER: Final = struct.Struct("!i")  # billiard's: the length of what follows
PIECE: Final = 65_536
logger = get_logger(__name__)


class Pool(AsynPool):  # type: ignore[misc]  # Celery has no types
    """Takes what a dead child has said, as far as it can be understood. What it could not say, its job's end says."""

    def process_flush_queues(self, proc: Any) -> None:
        """Celery's own, for a child that lives: it is to finish what it says."""
        if proc.exitcode is None:
            super().process_flush_queues(proc)
            return
        reader = proc.outq._reader  # noqa: SLF001  # as Celery does
        if reader.closed:
            return
        for message in messages(left_in(reader.fileno())):
            self._result_handler.on_state_change(message)


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
