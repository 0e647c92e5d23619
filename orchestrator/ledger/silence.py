"""Connections to PostgreSQL that do not wait for ever for a server which is there and says nothing.

It is stopped, or behind a proxy whose other end is gone. Its host answers for it, so no limit of the network ends the
wait, and nobody keeps the server's own limits.
"""

import time
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Final

import psycopg
from psycopg.pq import TransactionStatus

SLACK_S: Final = 1.0  # so that the server's own limit comes first, and says what was waited for


class Listener(psycopg.Connection[Any]):
    """Gives up behind a limit, and is then closed: what the server would still say could be taken for another answer.

    begin_s: of what begins a transaction; statement_s: of all else.
    """

    begin_s: ClassVar[float]
    statement_s: ClassVar[float]

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """The driver's own wait, which asks the generator again every so often."""
        begins = self.pgconn.transaction_status == TransactionStatus.IDLE
        limit_s = (self.begin_s if begins else self.statement_s) + SLACK_S
        return super().wait(self._bounded(gen, time.monotonic() + limit_s), *args, **options)

    def _bounded(self, gen: Generator[Any, Any, Any], until: float) -> Generator[Any, Any, Any]:
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until:
                    self.pgconn.finish()
                    raise psycopg.OperationalError("the server says nothing")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value


def opener(begin_s: float, statement_s: float) -> Callable[..., Any]:
    """What connects for an engine."""
    limits = {"begin_s": begin_s, "statement_s": statement_s}
    kind: type[Listener] = type("LimitedListener", (Listener,), limits)

    def connect(_dialect: Any, _record: Any, args: Any, params: Any) -> Any:
        return kind.connect(*args, **params)

    return connect
