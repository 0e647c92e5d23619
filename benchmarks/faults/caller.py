"""Whoever has work done: a process with a side's libraries, which submits runs, looks at them, and troubles the broker.

    python -m benchmarks.faults.caller MODULE

A request a line comes in, an answer a line goes out, both JSON.
"""

import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final
from uuid import uuid4

from workers.faults import broker

READY: Final = "caller.ready"


class Caller:
    """side: a module with `app`, `submit` and `look`."""

    def __init__(self, side: Any) -> None:
        self._side = side
        self._taken: list[tuple[Any, str, str]] = []

    def submit(self, run: str, world: str) -> None:
        """Send a run."""
        self._side.submit(run, world)

    def look(self, runs: Sequence[str]) -> dict[str, Any]:
        """How each stands; all are going as long as nobody can say."""
        try:
            return {run: self._side.look(run) for run in runs}
        except Exception:  # noqa: BLE001  # the server is away, and each library has its own word for that
            return {}

    def give_back(self) -> None:
        """Every message in hand goes back to its queue."""
        broker.give_back(self._side.app)

    def forget(self) -> None:
        """The server loses everything."""
        broker.forget_everything(self._side.app)

    def take_copies(self) -> int:
        """Note every message that a worker has in hand; answers how many."""
        with self._side.app.connection_for_write() as connection:
            channel = connection.default_channel
            found = channel.client.hvals(channel.unacked_key)
        self._taken = [tuple(json.loads(one)) for one in found]
        return len(self._taken)

    def send_copies(self, times: int) -> None:
        """Each of them comes so many times more."""
        with self._side.app.connection_for_write() as connection:
            channel = connection.default_channel
            for message, exchange, routing_key in self._taken * times:
                message["properties"]["delivery_tag"] = str(uuid4())
                for queue in channel._lookup(exchange, routing_key):  # noqa: SLF001  # as kombu gives back
                    channel._put(queue, message)  # noqa: SLF001


def main(module: str) -> None:
    """Until standard input ends. What libraries print goes elsewhere."""
    answers, sys.stdout = sys.stdout, sys.stderr
    caller = Caller(import_module(module))
    answers.write(f"{READY}\n")
    answers.flush()
    for line in sys.stdin:
        name, given = json.loads(line)
        call: Callable[..., Any] = getattr(caller, name)
        answers.write(json.dumps(call(**given)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
