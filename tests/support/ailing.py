"""Actions that do harm to the process they run in, loaded by real workers through MANDOR_ACTIONS."""

import ctypes
import threading
import time
from pathlib import Path

from pydantic import BaseModel, Field

from workers import Context, action

FOR_EVER_S = 600
_hoarded: list[bytearray] = []


class Ailing(BaseModel):
    """file: what a test waits for, or is waited for with."""

    file: str
    mib: int = Field(default=0, ge=0, le=1024)


def hold_the_interpreter() -> None:
    """As a library does that loops in C, or waits for a lock there: no other thread of this process ever runs again."""
    ctypes.PyDLL(None).sleep(FOR_EVER_S)


@action("test.hoard", effect="pure")
def hoard(params: Ailing, ctx: Context) -> Ailing:
    """Take memory, never give it back, and end when there is a file."""
    block = bytearray(params.mib * 2**20)
    block[::4096] = b"x" * len(block[::4096])  # pages that nobody has written to take no memory
    _hoarded.append(block)
    while not Path(params.file).exists():
        ctx.check()
        time.sleep(0.02)
    return params


@action("test.deadlock", effect="pure", attempts=2, timeout_s=1, backoff_s=0.1, backoff_max_s=0.1)
def deadlock(params: Ailing, ctx: Context) -> Ailing:
    """At the first attempt, never come back."""
    if ctx.attempt == 1:
        hold_the_interpreter()
    return params


@action("test.seize", effect="pure")
def seize(params: Ailing, ctx: Context) -> Ailing:
    """Leave a thread behind that blocks the process a moment after this step has ended; a file is there by then."""

    def later() -> None:
        time.sleep(1)
        Path(params.file).touch()
        hold_the_interpreter()

    threading.Thread(target=later, daemon=True).start()
    return params
