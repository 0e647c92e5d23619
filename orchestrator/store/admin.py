"""Who this store is: the epoch and the server each shard was verified for. Used when an installation is set up or
comes back, never on the path of a run."""

from dataclasses import dataclass

from orchestrator.store.keys import of_member
from orchestrator.store.scripts import Scripts
from schemas.ids import RunRef


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """epoch, server: what the shard says it belongs to; our_server: the name of the server we talk to."""

    epoch: str | None
    server: str | None
    our_server: str


class Admin:
    """The identity of shards, and what the server tells about itself."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def shard(self, shard: int) -> ShardFacts:
        epoch, server = self._scripts.ask("MGET", *self._identity(shard))
        return ShardFacts(epoch, server, self._scripts.server())

    def is_whole(self, shard: int) -> bool:
        """Whether the shard is the one that was verified, on the server that was."""
        facts = self.shard(shard)
        return (facts.epoch, facts.server) == (self._scripts.epoch, facts.our_server)

    def shards(self) -> dict[int, ShardFacts]:
        """The same of all shards, in one round trip."""
        numbers = range(self._scripts.keys.shards)
        words = [name for shard in numbers for name in self._identity(shard)]
        found, ours = self._scripts.ask("MGET", *words), self._scripts.server()
        return {shard: ShardFacts(found[2 * shard], found[2 * shard + 1], ours) for shard in numbers}

    def live_runs(self, shard: int) -> tuple[RunRef, ...]:
        """Runs with a deadline or an end still to be confirmed."""
        names: set[str] = set()
        for duty in ("deadlines", "settles"):
            names.update(self._scripts.ask("ZRANGE", self._scripts.keys.due(shard, duty), 0, -1))
        return tuple(of_member(name)[0] for name in sorted(names))

    def is_in_pieces(self, ref: RunRef) -> bool:
        """Whether a key is gone in which the run lies: each may have gone alone."""
        shard = self._scripts.keys.shard_of(ref.run_id)
        return self._scripts.call("look_whole", shard, ref).word == "in_pieces"

    def config(self, name: str) -> str | None:
        """One setting of the server, None where it does not tell (managed servers often forbid CONFIG)."""
        reply = self._scripts.ask_or_none("CONFIG", "GET", name)
        values = list(reply.values()) if isinstance(reply, dict) else (reply or [])[1::2]
        return str(values[0]) if values else None

    def agree(self, name: str, value: str, ttl_ms: int) -> str:
        """What all processes say of something they must say alike: the first word stands for ttl_ms from when it was
        last said. Answers the word that stands, ours or another."""
        key = self._scripts.keys.agreed(name)
        self._scripts.tell("SET", key, value, "NX", "PX", ttl_ms)
        stands = str(self._scripts.ask("GET", key) or value)
        if stands == value:
            self._scripts.tell("PEXPIRE", key, ttl_ms)
        return stands

    def agreed(self, name: str) -> str | None:
        """The word that stands, None where nobody has said one lately."""
        found: str | None = self._scripts.ask("GET", self._scripts.keys.agreed(name))
        return found

    def info(self, section: str) -> dict[str, str]:
        text = str(self._scripts.ask("INFO", section))
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def _identity(self, shard: int) -> tuple[str, str]:
        keys = self._scripts.keys
        return keys.shard_part(shard, "epoch"), keys.shard_part(shard, "server")
