"""Ctrl-C and its relatives, as something to look at: asked once means in order, asked twice means now."""

import signal
from types import FrameType

from orchestrator.local.interrupts import SIGNALS


class Stop:
    """Takes over the signals of this process. Until `look_only` they interrupt it; from then on they are counted."""

    def __init__(self) -> None:
        self._asked = 0
        self._interrupts = True

    @property
    def asked(self) -> bool:
        """Somebody wants everything to stop."""
        return self._asked > 0

    @property
    def hurried(self) -> bool:
        """Somebody does not want to wait for it."""
        return self._asked > 1

    def install(self) -> None:
        """From here on signals are ours."""
        for number in SIGNALS:
            signal.signal(number, self._take)

    def look_only(self) -> None:
        """From here on nothing is interrupted, and whoever waits must look."""
        self._interrupts = False

    def ask(self) -> None:
        """As one Ctrl-C."""
        self._asked += 1

    def _take(self, _: int, __: FrameType | None) -> None:
        self.ask()
        if self._interrupts:
            raise KeyboardInterrupt
