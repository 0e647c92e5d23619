"""What a command writes: the first and the last of it are kept, the rest is counted."""

from workers.sandbox.jobs import Stream


class Kept:
    """One stream, in bounded memory. most: bytes of the head, and of the tail."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._head = bytearray()
        self._tail = bytearray()
        self.bytes = 0

    def add(self, chunk: bytes) -> None:
        """Take what was read."""
        self.bytes += len(chunk)
        room = self._most - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._most:
            del self._tail[: -self._most]

    def stream(self) -> Stream:
        """What there is of it."""
        return Stream(bytes(self._head), bytes(self._tail[-self._most :]), self.bytes)
