"""How much memory a whole command takes. Its sandbox's process 1 sees all of its processes, and nobody else's.

processes   what each has of its own, page tables and lists of mappings included; what several share counts once
/tmp, shm   what lies there, and a piece for each file
sockets     as much as may wait in each, since nobody tells how much does

Calls that would take memory elsewhere are refused (seccomp). Locks on files take some that nobody counts: the kernel's
list of them takes time by the square of its length to read.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from . import kernel

_FIRST_S: Final = 0.1  # most commands have ended by then
_APART_S: Final = 0.1  # and up to twice as much more, so that no command knows when the next look comes
_SHARE: Final = 10  # looks take at most a tenth of a processor, unless they are made dear
_LONGEST_APART_S: Final = 1.0  # so that nobody gains time by that
_OWN: Final = frozenset({b"RssAnon", b"VmSwap", b"VmPTE"})
_OWN_ONCE: Final = frozenset({b"Pss_Anon", b"SwapPss"})
_TABLES, _ADDRESSES = b"VmPTE", b"VmSize"
_FILE: Final = 1536  # bytes of a file in memory with a long name and nothing in it
_MAPPING: Final = 256
_PER_MAPPING: Final = 4096 // _MAPPING  # a page is the least that is mapped
_DATAGRAMS: Final = b"0002"
_WAITING_DATAGRAMS: Final = 11  # of as many senders, each with a room of its own
_COMPARE: Final = {"x86_64": 312, "aarch64": 272}  # kcmp(2)
_MEMORY: Final = 1


class Scales:
    """Looks now and then. order: most (bytes), rooms (folders in memory), socket_bytes (that may wait in one)."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._most: int = order["most"]
        self._rooms: list[str] = order["rooms"]
        self._socket_bytes: int = order["socket_bytes"]
        self._look_at = time.monotonic() + _FIRST_S

    def wait_s(self) -> float:
        """Until the next look."""
        return max(0.0, self._look_at - time.monotonic())

    def are_over(self) -> bool:
        """Whether a look was due and found more than there may be."""
        if self.wait_s() > 0:
            return False
        began, is_over = time.process_time(), False
        with suppress(OSError):  # the machine is short of something at the moment: the next look may succeed
            # seen twice: what two share counts for both, where one ends amid a look
            is_over = self._taken() > self._most and self._taken() > self._most
        apart_s = _APART_S * (1 + os.urandom(1)[0] / 128)
        dear_s = min(_LONGEST_APART_S, _SHARE * (time.process_time() - began))
        self._look_at = time.monotonic() + max(apart_s, dear_s)
        return is_over

    def _taken(self) -> int:
        """Precisely only if counting what is shared for each who shares it gives too much."""
        beside = sum(map(_lying_in, self._rooms)) + _waiting_sockets() * self._socket_bytes
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        quickly = beside + sum(map(_own, pids))
        return quickly if quickly <= self._most else beside + sum(_own_once(pid) for pid in _each_memory(pids))


# ---- of processes


def _own(pid: int) -> int:
    """At most; it may have gone."""
    with suppress(OSError):
        told = _kib(f"/proc/{pid}/status", _OWN | {_ADDRESSES})
        mappings = told.pop(_ADDRESSES, 0) // _PER_MAPPING
        return 1024 * (sum(told.values()) + mappings)
    return 0


def _own_once(pid: int) -> int:
    """With its part of what it shares with others; all of it where it lets nobody look."""
    try:
        shared = sum(_kib(f"/proc/{pid}/smaps_rollup", _OWN_ONCE).values())
        tables = _kib(f"/proc/{pid}/status", {_TABLES}).get(_TABLES, 0)
        return 1024 * (shared + tables) + _MAPPING * _lines(f"/proc/{pid}/maps")
    except OSError:
        return _own(pid)


def _each_memory(pids: list[int]) -> Iterator[int]:
    """Without those that have theirs in common with one before, as a child has until it becomes another program."""
    before: list[int] = []
    for pid in pids:
        if not any(_is_same_memory(pid, other) for other in before):
            before.append(pid)
            yield pid


def _is_same_memory(pid: int, other: int) -> bool:
    with suppress(OSError):
        return kernel.syscall(_COMPARE[os.uname().machine], pid, other, _MEMORY, 0, 0) == 0
    return False


def _kib(path: str, names: "frozenset[bytes] | set[bytes]") -> dict[bytes, int]:
    """Bytes: a process may have any name."""
    with open(path, "rb") as told:
        pairs = (line.split(b":", 1) for line in told if b":" in line)
        return {name: int(rest.split()[0]) for name, rest in pairs if name in names}


def _lines(path: str) -> int:
    with open(path, "rb") as told:
        return told.read().count(b"\n")


# ---- of what lies and waits


def _lying_in(room: str) -> int:
    found = os.statvfs(room)
    return (found.f_blocks - found.f_bfree) * found.f_frsize + (found.f_files - found.f_ffree) * _FILE


def _waiting_sockets() -> int:
    """Of the whole network namespace: also those that nobody has accepted, or that are on their way."""
    with open("/proc/net/unix", "rb") as told:
        sockets = told.read().splitlines()[1:]
    return sum(_WAITING_DATAGRAMS if one.split()[4:5] == [_DATAGRAMS] else 1 for one in sockets)
