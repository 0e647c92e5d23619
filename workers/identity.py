"""Which process is at work: host:pid:start. A parent names its child the same, to end its claims."""

import os
import socket
from functools import lru_cache
from pathlib import Path
from typing import Final

_START_FIELD: Final = 21  # of /proc/<pid>/stat, counted from 0: start time in clock ticks since boot


def worker_id() -> str:
    """The id of this process."""
    return _own_id(os.getpid())


@lru_cache(maxsize=1)
def _own_id(pid: int) -> str:
    return process_id(pid, os.getppid())


def child_id(pid: int) -> str:
    """The id that a child of this process gives itself. To be asked while the child lives."""
    return process_id(pid, os.getpid())


def process_id(pid: int, parent: int) -> str:
    """host:pid:start. Where the system does not tell the start, the parent's pid stands in for it."""
    return f"{_host()}:{pid}:{_start(pid) or f'p{parent}'}"


@lru_cache(maxsize=1)
def _host() -> str:
    return socket.gethostname()


def _start(pid: int) -> str | None:
    try:
        with Path(f"/proc/{pid}/stat").open("rb", buffering=0) as file:  # a worker asks for each task: no decoding
            stat = file.read()
    except OSError:
        return None
    # the second field is the command in parentheses and may hold anything, spaces and parentheses included
    return stat.rpartition(b")")[2].split()[_START_FIELD - 2].decode()
