"""What happened in a shard and is still to be brought to the ledger, and the runs it happened to as they are now."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.store.keys import of_member
from orchestrator.store.scripts import Scripts, pairs
from schemas.ids import RunRef

BEGINNING: Final = "0-0"  # the cursor of a shard of which the ledger has nothing


@dataclass(frozen=True, slots=True)
class Entry:
    """One transition. fields: what its event says, `steps` included; step_ids: whose records it may have changed."""

    id: str
    ref: RunRef
    generation: int
    version: int
    at: int
    event: str
    fields: dict[str, str]
    step_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run's hash (without its policy), and some of its steps: their records, results and errors, as JSON."""

    fields: dict[str, str]
    steps: dict[str, str]
    results: dict[str, str]
    errors: dict[str, str]


class Stream:
    """The `ledger` stream of each shard."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def read(self, shard: int, cursor: str, count: int) -> tuple[Entry, ...]:
        """Up to count transitions behind the cursor; what lies up to it is dropped, for the ledger has it."""
        reply = self._scripts.call("drain_ledger", shard, next=following(cursor), count=count)
        return tuple(_entry(entry_id, flat) for entry_id, flat in reply["entries"])

    def snapshot(self, ref: RunRef, step_ids: Iterable[str]) -> Snapshot | None:
        """The run at one version, with these steps. None: the store has let go of it."""
        shard = self._scripts.keys.shard_of(ref.run_id)
        reply = self._scripts.call("snapshot", shard, ref, rest=tuple(step_ids))
        if reply.word != "snapshot":
            return None
        return Snapshot(**{name: pairs(reply[name]) for name in ("fields", "steps", "results", "errors")})

    def length(self, shard: int) -> int:
        """How many transitions of a shard lie there."""
        return int(self._scripts.ask("XLEN", self._key(shard)))

    def lengths(self) -> list[int]:
        """The same of every shard."""
        return [int(length) for length in self._scripts.ask_all([("XLEN", key) for key in self._keys()])]

    def oldest_at(self) -> int | None:
        """When the transition that waits longest happened, in milliseconds of the server's clock; None: none waits."""
        found = self._scripts.ask_all([("XRANGE", key, "-", "+", "COUNT", 1) for key in self._keys()])
        return min((int(str(first[0][0]).partition("-")[0]) for first in found if first), default=None)

    def last_id(self, shard: int) -> str:
        """The id of the newest transition that was ever written there."""
        reply = self._scripts.ask_or_none("XINFO", "STREAM", self._key(shard))
        if reply is None:
            return BEGINNING
        about = pairs(reply)
        return str(about["last-generated-id"])

    def _keys(self) -> list[str]:
        return [self._key(shard) for shard in range(self._scripts.keys.shards)]

    def _key(self, shard: int) -> str:
        return self._scripts.keys.shard_part(shard, "ledger")


def position(entry_id: str) -> tuple[int, int]:
    """An id as numbers, which compare."""
    time_ms, _, number = entry_id.partition("-")
    return int(time_ms), int(number)


def following(entry_id: str) -> str:
    """The first id that is greater."""
    time_ms, number = position(entry_id)
    return f"{time_ms}-{number + 1}"


def _entry(entry_id: str, flat: list[str]) -> Entry:
    fields = pairs(flat)
    ref, _ = of_member(fields.pop("run"))
    moved = (move.partition("=")[0] for move in fields["steps"].split(",") if move)
    named = (fields["step_id"],) if "step_id" in fields else ()
    return Entry(
        id=entry_id,
        ref=ref,
        generation=int(fields.pop("generation")),
        version=int(fields.pop("version")),
        at=int(fields.pop("at")),
        event=fields.pop("event"),
        fields=fields,
        step_ids=tuple(dict.fromkeys((*moved, *named))),
    )
