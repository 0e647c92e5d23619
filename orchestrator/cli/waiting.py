"""A sign of life where something takes longer than a person likes to wait without one."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from orchestrator.cli import output

QUIET_S: Final = 1.0
TURN_S: Final = 0.1
SIGNS: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN_SIGNS: Final = "|/-\\"
CLEAR: Final = "\r\x1b[K"


@contextmanager
def waiting_for(what: str | Callable[[], str], *, quiet_s: float = QUIET_S) -> Iterator[None]:
    """Inside the block, once it has lasted a second: a line that moves, if somebody sees it; gone at the end.

    what: what it says; or who is asked each time, where there is progress to tell.
    """
    if output.as_json() or not output.can_move(sys.stderr):
        yield
        return
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(sys.stderr, what, over, quiet_s), daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _tell(out: TextIO, what: str | Callable[[], str], over: threading.Event, quiet_s: float) -> None:
    began = time.monotonic()
    if over.wait(quiet_s):
        return
    signs, turn = _signs(out), 0
    while True:
        told = what if isinstance(what, str) else what()
        out.write(f"{CLEAR}{signs[turn % len(signs)]} {told}, {time.monotonic() - began:.0f} s")
        out.flush()
        turn += 1
        if over.wait(TURN_S):
            break
    out.write(CLEAR)
    out.flush()


def _signs(out: TextIO) -> str:
    """Those that the terminal's encoding has."""
    try:
        SIGNS.encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_SIGNS
    return SIGNS
