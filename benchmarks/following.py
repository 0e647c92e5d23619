"""Holds the ledger's asynchronous part back, and lets it catch up: the drain of what the state store reports."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from benchmarks.site import wait_until

if TYPE_CHECKING:
    from orchestrator.store import Store

DUTY: Final = "drain"
FAR_MS: Final = 86_400_000


class Following:
    """How far the ledger is behind a state store. left: for each followed piece of work, by how much at its end."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self.left: list[float] = []

    def behind(self) -> int:
        """Transitions that the ledger has not been told of."""
        return sum(self._store.stream.length(shard) for shard in range(self._store.shards))

    def catch_up(self) -> None:
        """Wait until it has been told of all."""
        wait_until(lambda: self.behind() == 0, "the end of the drain")

    @contextmanager
    def held(self) -> Iterator[None]:
        """No drain inside: each of its passes finds that there has just been one."""
        self._say_passed(self._store.now_ms() + FAR_MS)
        try:
            yield
        finally:
            self._say_passed(0)

    def _say_passed(self, at_ms: int) -> None:
        keys = self._store.keys
        for shard in range(self._store.shards):
            self._store.scripts.tell("HSET", keys.shard_part(shard, "pass"), DUTY, at_ms)
