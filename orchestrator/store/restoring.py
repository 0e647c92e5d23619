"""Building runs again in a shard that forgot them. These scripts do not ask whether the shard is the one we know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.store.guard import publish_list
from orchestrator.store.replies import Dispatch, Exists, Publish, UnknownRun
from orchestrator.store.scripts import Scripts
from orchestrator.store.stream import Snapshot, pairs
from schemas.ids import RunRef


@dataclass(frozen=True, slots=True)
class Restored:
    """The run is there again. open: steps that are not completed; publish: to be sent once the shard is whole."""

    generation: int
    open: int
    publish: Publish


class Restoring:
    """Writes of who builds a shard again, or mends it."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def restore_run(
        self, ref: RunRef, stage: str, fence: int, fields: Mapping[str, str], steps: Sequence[Sequence[str]]
    ) -> Restored | Exists:
        """Build a run. Exists: it is there, and nothing is older about it."""
        words = [word for pair in fields.items() for word in pair] + [word for step in steps for word in step]
        named = {"stage": stage, "fence": fence, "field_count": len(fields)}
        reply = self._scripts.call("restore_run", self._shard(ref), ref, rest=words, **named)
        if reply.word == "exists":
            return Exists(reply["status"])
        generation, publish = reply["generation"], publish_list(reply, ref)
        if reply["queue"]:
            publish = (Dispatch("plan", ref, generation, None, 0, reply["queue"], reply["limit_ms"]),)
        return Restored(generation, reply["open"], publish)

    def drop_run(self, ref: RunRef) -> bool:
        """Forget a run that has ended. Only in a shard that is not whole."""
        return self._scripts.call("drop_run", self._shard(ref), ref).word == "dropped"

    def mend_due(self, ref: RunRef) -> int | UnknownRun:
        """Put the run back where a supervisor looks for it. Answers how many places were missing."""
        reply = self._scripts.call("mend_due", self._shard(ref), ref)
        return int(reply["added"]) if reply.word == "mended" else UnknownRun()

    def remains(self, ref: RunRef) -> Snapshot | None:
        """What there is of the run. Nothing moves it while its shard is not whole."""
        keys = self._scripts.keys
        fields = pairs(self._scripts.ask("HGETALL", keys.state(ref)))
        if not fields:
            return None
        parts = ("steps", "results", "errors")
        return Snapshot(fields, **{name: pairs(self._scripts.ask("HGETALL", keys.part(ref, name))) for name in parts})

    def _shard(self, ref: RunRef) -> int:
        return self._scripts.keys.shard_of(ref.run_id)
