"""Ctrl-C and its relatives: they end a program at any time, but never between starting a process and noting it down.

What a signal raises may be lost: Python drops it where it comes while an object is cleaned up, and libraries catch more
than they should. So it is raised again until somebody cleans up.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S: Final = 1.0  # who has heard of it cleans up long before


class Interrupts:
    """Turns the signals into KeyboardInterrupt, at once or when the work in hand is done."""

    def __init__(self) -> None:
        self._held = False
        self._came = False

    def install(self) -> None:
        """Take over the signals of this process."""
        for number in SIGNALS:
            signal.signal(number, self._take)
        signal.signal(signal.SIGALRM, self._take)

    def ignore(self) -> None:
        """We are cleaning up: a second Ctrl-C would only leave something behind."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def held(self) -> Iterator[None]:
        """What comes within the block is raised at its end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came:
            self._interrupt()

    def _take(self, _: int, __: FrameType | None) -> None:
        if not self._held:
            self._interrupt()
        self._came = True

    def _interrupt(self) -> NoReturn:
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        raise KeyboardInterrupt
