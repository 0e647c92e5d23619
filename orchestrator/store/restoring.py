"""Building runs again in a shard that forgot them, and taking one over that another server has.

Who does so begins with the shard, as he judged it, under a token. Each write asks whether that is still so: on the same
server, and nobody has begun since. A shard that is whole is opened to everybody, and nobody's to build.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from orchestrator.errors import Superseded
from orchestrator.store.guard import publish_list
from orchestrator.store.new import NewPlan, NewStep
from orchestrator.store.replies import Dispatch, Exists, Publish, UnknownRun
from orchestrator.store.scripts import Reply, Scripts, pairs
from orchestrator.store.stream import BEGINNING, Snapshot, following
from schemas.ids import RunRef


@dataclass(frozen=True, slots=True)
class Place:
    """What a write goes by. judged: the server that was looked at; token: of who builds, "" in a whole shard."""

    judged: str
    token: str

    def named(self) -> dict[str, Any]:
        """As scripts take it."""
        return {"judged": self.judged, "token": self.token}


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

    def begin(self, shard: int, place: Place, cause: str, cursor: str) -> None:
        """Make the shard the caller's. cause: amnesia, or another where it has our epoch and another server; cursor:
        what the ledger has of its stream. Superseded: it is not as it was judged."""
        behind = "" if cursor == BEGINNING else following(cursor)
        reply = self._scripts.call("begin_restore", shard, cause=cause, next=behind, **place.named())
        if reply.word != "begun":
            raise Superseded(f"shard {shard} is not as it was judged")

    def must_hold(self, shard: int, place: Place) -> None:
        """Ask whether the caller may still write, before he writes elsewhere. His writes here ask by themselves."""
        token = self._scripts.ask("GET", self._scripts.keys.shard_part(shard, "restoring")) or ""
        if (self._scripts.server(), token) != (place.judged, place.token):
            raise Superseded(f"shard {shard} is not the one that was begun with")

    def set_up(self, shard: int, cursor: str) -> None:
        """Give an empty shard its identity, where nothing is missing from it. Superseded: it has one by now."""
        place = Place(self._scripts.server(), uuid4().hex)
        self.begin(shard, place, "amnesia", cursor)
        self.open_shard(shard, place)

    def open_shard(self, shard: int, place: Place) -> None:
        """From here on the shard is used."""
        _not_fenced(self._scripts.call("open_shard", shard, **place.named()))

    def accept_run(self, ref: RunRef, place: Place, ahead: int, least: int) -> bool:
        """Have a run's fences go on ahead, and at least there. False: the store does not have it."""
        named = {**place.named(), "ahead": ahead, "least": least}
        return _not_fenced(self._scripts.call("accept_run", self._shard(ref), ref, **named)).word == "accepted"

    def restore_run(
        self,
        ref: RunRef,
        place: Place,
        stage: str,
        fence: int,
        heard: tuple[int, int],
        fields: Mapping[str, str],
        steps: Sequence[Sequence[str]],
    ) -> Restored | Exists:
        """Build a run. heard: generation and version in which it was last heard of. Exists: it is there, and nothing is
        older about it."""
        words = [word for pair in fields.items() for word in pair] + [word for step in steps for word in step]
        named: dict[str, Any] = {"stage": stage, "fence": fence, "field_count": len(fields)}
        named |= {"heard_generation": heard[0], "heard_version": heard[1], **place.named()}
        reply = _not_fenced(self._scripts.call("restore_run", self._shard(ref), ref, rest=words, **named))
        if reply.word == "exists":
            return Exists(reply["status"])
        generation, publish = reply["generation"], publish_list(reply, ref)
        if reply["queue"]:
            publish = (Dispatch("plan", ref, generation, None, 0, reply["queue"], reply["limit_ms"]),)
        return Restored(generation, reply["open"], publish)

    def drop_run(self, ref: RunRef, place: Place) -> bool:
        """Forget a run that has ended. Only in a shard that is not whole."""
        return _not_fenced(self._scripts.call("drop_run", self._shard(ref), ref, **place.named())).word == "dropped"

    def mend_due(self, ref: RunRef) -> int | UnknownRun:
        """Put the run back where a supervisor looks for it. Answers how many places were missing."""
        reply = self._scripts.call("mend_due", self._shard(ref), ref)
        return int(reply["added"]) if reply.word == "mended" else UnknownRun()

    def remains(self, ref: RunRef) -> Snapshot | None:
        """What there is of the run. Nothing moves it while its shard is not whole."""
        fields = self._hash(self._scripts.keys.state(ref))
        if not fields:
            return None
        return Snapshot(fields, **{name: self._part(ref, name) for name in ("steps", "results", "errors")})

    def admitted(self, ref: RunRef) -> NewPlan | None:
        """The plan that the run goes by, as it was admitted."""
        fields = self._hash(self._scripts.keys.state(ref))
        if "plan_hash" not in fields:
            return None
        texts, needs, records = (self._part(ref, name) for name in ("plan", "needs", "steps"))
        steps = [_new_step(name, json.loads(text), texts[name], needs.get(name, "")) for name, text in records.items()]
        numbers = (int(fields["max_parallel"]), int(fields["inputs_bytes"]))
        ordered = tuple(sorted(steps, key=lambda step: step.index))
        return NewPlan(fields["plan_id"], fields["plan_hash"], *numbers, ordered)

    def _part(self, ref: RunRef, name: str) -> dict[str, str]:
        return self._hash(self._scripts.keys.part(ref, name))

    def _hash(self, key: str) -> dict[str, str]:
        return pairs(self._scripts.ask("HGETALL", key))

    def _shard(self, ref: RunRef) -> int:
        return self._scripts.keys.shard_of(ref.run_id)


def _not_fenced(reply: Reply) -> Reply:
    if reply.word == "fenced":
        raise Superseded("the shard is not the one that was begun with")
    return reply


def _new_step(name: str, record: Mapping[str, Any], text: str, needs: str) -> NewStep:
    """A step as it was admitted, from what the store keeps of it."""
    same = ("index", "action", "effect", "token", "queue", "max_attempts", "lease_ms", "limit_ms")
    fields: dict[str, Any] = {field: record[field] for field in (*same, "backoff_ms", "backoff_max_ms")}
    fields |= {"needs": _ids(needs), "refs": _ids(record["refs"])}
    fields |= {"approval": bool(record.get("approval")), "probe": bool(record.get("probe"))}
    return NewStep(id=name, text=text, **fields)


def _ids(joined: str) -> tuple[str, ...]:
    return tuple(name for name in joined.split(",") if name)
