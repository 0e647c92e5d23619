"""After a wait in vain for a database that hangs, nobody is made to wait for it again for a while."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import LedgerUnavailable


class Respite:
    """Counted from the end of a wait, and as many times as long as that; 0: everybody waits for himself.

    So who has something else to do spends no more than a share of its time on a database that hangs; one that is
    refused at once costs nothing, and is asked again at once.
    """

    def __init__(self, times: float) -> None:
        self._times = times
        self._until = 0.0

    @contextmanager
    def after_waits(self) -> Iterator[None]:
        """Around a wait. LedgerUnavailable: it has been in vain, or would come too soon behind one that was."""
        began = time.monotonic()
        if began < self._until:
            raise LedgerUnavailable("the ledger did not answer a moment ago", hint="see what it waits for")
        try:
            yield
        except LedgerUnavailable:
            now = time.monotonic()
            self._until = now + self._times * (now - began)
            raise
