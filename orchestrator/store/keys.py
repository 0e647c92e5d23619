"""Every key of the store, built here and nowhere else.

All keys of a run lie in the hash slot of its shard: `{namespace:shard}:…`, shard = crc32(run_id) mod N.

| key                              | type   | holds                                            |
|----------------------------------|--------|--------------------------------------------------|
| state:<session>:run:<run_id>     | hash   | status, version, fence, policy, counters, times  |
| …:plan                           | hash   | step id -> canonical step                        |
| …:steps                          | hash   | step id -> record: status, attempt, fence, lease |
| …:needs, …:dependants            | hash   | step id -> ids it waits for, ids that wait for it|
| …:ready                          | list   | steps that wait for room                         |
| …:results, …:errors              | hash   | step id -> JSON text                             |
| …:events                         | stream | one entry a transition                           |
| …:sent                           | hash   | call -> steps it sent, or reply, for its repeat  |
| lock:run:<run_id>:step:<step_id> | string | fence, worker, claim: for the operator's eye     |
| due:<duty>                       | zset   | what must be looked at, and when                 |
| pass, claimed                    | hash   | last passes; newest claimed message a queue      |
| ledger                           | stream | transitions that the ledger does not have yet    |
| epoch, server                    | string | what the shard belongs to                        |
| restoring                        | string | who builds the shard again, until it is opened   |
| agreed:<name>                    | string | what all processes set alike; of shard 0         |

A run's keys live until its deadline and `finished_ttl_s` beyond, then `finished_ttl_s` from its end; a lock as long as
its lease; what was agreed a minute from when it was last said. The other keys of a shard stay.

`<session>` is 16 hex characters of the session's SHA-256, or `-`.
"""

from collections.abc import Sequence
from zlib import crc32

from orchestrator.store.replies import DUTIES
from schemas.ids import RunRef

RUN_PARTS = ("plan", "steps", "needs", "dependants", "ready", "results", "errors", "events", "sent")
RUN_KEYS = ("state", *RUN_PARTS)  # what lives and goes with a run
SHARD_PARTS = ("epoch", "server", "restoring", "pass", "claimed", "ledger")
# what may live for ever: patterns of the part behind `{namespace:shard}:`
PERMANENT = (*SHARD_PARTS, *(f"due:{duty}" for duty in DUTIES))


class Keys:
    """The names of one namespace, spread over `shards` hash slots."""

    def __init__(self, namespace: str, shards: int) -> None:
        self.namespace = namespace
        self.shards = shards

    def shard_of(self, run_id: str) -> int:
        return crc32(run_id.lower().encode()) % self.shards

    def prefix(self, shard: int) -> str:
        return f"{{{self.namespace}:{shard}}}:"

    def state(self, ref: RunRef) -> str:
        return f"{self.prefix(self.shard_of(ref.run_id))}state:{ref.session}:run:{ref.run_id}"

    def part(self, ref: RunRef, part: str) -> str:
        return f"{self.state(ref)}:{part}"

    def lock(self, ref: RunRef, step_id: str) -> str:
        return f"{self.prefix(self.shard_of(ref.run_id))}lock:run:{ref.run_id}:step:{step_id}"

    def shard_part(self, shard: int, part: str) -> str:
        """One of SHARD_PARTS."""
        return self.prefix(shard) + part

    def due(self, shard: int, duty: str) -> str:
        return f"{self.prefix(shard)}due:{duty}"

    def agreed(self, name: str) -> str:
        return f"{self.prefix(0)}agreed:{name}"

    def of_call(self, names: Sequence[str], shard: int, ref: RunRef | None, step_id: str | None) -> list[str]:
        """The keys that a script's contract calls by these names, in their order. What they share is built once."""
        prefix, state = self.prefix(shard), self.state(ref) if ref else None
        return [self._named(name, prefix, state, ref, step_id) for name in names]

    def _named(self, name: str, prefix: str, state: str | None, ref: RunRef | None, step_id: str | None) -> str:
        if name.startswith("due_"):
            return f"{prefix}due:{name.removeprefix('due_')}"
        if name in SHARD_PARTS:
            return prefix + name
        assert ref is not None, f"{name} is a run's key"
        if name == "lock":
            return self.lock(ref, step_id or "-")
        return str(state) if name == "state" else f"{state}:{name}"


# ---- a member of a due set: session|run id, with |step id behind it where it is about one step


def member(ref: RunRef, step_id: str | None = None) -> str:
    """What is due, as its set names it."""
    return "|".join((ref.session, ref.run_id, *((step_id,) if step_id else ())))


def of_member(name: str) -> tuple[RunRef, str | None]:
    """The run, and the step that it is about."""
    session, run_id, *step = name.split("|")
    return RunRef(run_id, session), step[0] if step else None


# the groups a contract's `keys:` line may name
GROUPS: dict[str, tuple[str, ...]] = {
    "run": (*RUN_KEYS, "ledger"),
    "due": tuple(f"due_{duty}" for duty in DUTIES),
    "lock": ("lock",),
    "claimed": ("claimed",),
    "pass": ("pass",),
    "ledger": ("ledger",),
    "restoring": ("restoring",),
}
