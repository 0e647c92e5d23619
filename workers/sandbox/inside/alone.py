"""No sandbox: limits, another user where the worker is root, and an end for all that the command has started.

The command reaches whatever its user reaches. For machines with a single tenant, whose operator says so.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

from . import init, kernel
from .handover import become


def main() -> NoReturn:
    """told, tell, obey: numbers of three descriptors, on the command line."""
    told, tell, obey = map(int, sys.argv[1:4])
    order = init.read_order(told)
    try:
        os.chdir(order["folder"])  # before the change of user, who may not come by the folders above
        if os.geteuid() == 0:
            become(order["uid"], order["gid"])
        kernel.prctl(kernel.SET_SUBREAPER, 1)
        kernel.prctl(kernel.SET_DUMPABLE, 0)
    except OSError as fault:
        os.write(tell, f"failed handover {fault.errno}\n".encode())
        os._exit(1)
    try:
        init.see_out({**order, "folder": "."}, tell, obey, lambda: _send(signal.SIGTERM))
    finally:
        _end_all()
        os._exit(0)


def _end_all() -> None:
    """What a killed process has started becomes this one's child, until there is none."""
    with suppress(ChildProcessError):
        while True:
            _send(signal.SIGKILL)
            os.waitpid(-1, 0)


def _send(number: int) -> None:
    for pid in tuple(_descendants(os.getpid())):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _descendants(parent: int) -> Iterator[int]:
    with suppress(OSError), open(f"/proc/{parent}/task/{parent}/children") as told:
        for child in map(int, told.read().split()):
            yield child
            yield from _descendants(child)
