"""What the state store holds, as a value: read from the server, put back, and numbered.

Two contents that differ only in what never matters again are one. The clock stands still at START: a lease that is kept
ends later, one that has lapsed ends now, and whatever waits for seconds (a check, a back-off, the end of a run) is due
at once. What only grows is looked at after each call and then set back: the version, the streams, the checks of a
message. Ids that are drawn for one call alone are forgotten.
"""

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from redis import Redis

from orchestrator.store.keys import RUN_KEYS, RUN_PARTS, Keys, of_member
from orchestrator.store.replies import DUTIES
from orchestrator.store.scripts import Scripts
from orchestrator.store.views import Event, RunState, StepState, event_of, run_state, step_state
from schemas.ids import RunRef
from tests.explorer.operations import Answer, Op
from tests.support.stores import LEASE, START

WAIT, DEADLINE = 1_800_000, 3_600_000
KEPT, ASKED, LIMITED = START + LEASE, START + WAIT, START + DEADLINE
MEANT = {KEPT, ASKED, LIMITED}
TIME = re.compile(r"\b1[67]\d{11}\b")
DRAWN = re.compile(r"\b[0-9a-f]{32}\b")
NAME = re.compile(r"\bw\d+\b")
APART = ("plan", "needs", "dependants", "events", "ready")  # what never changes, what is set back, and a list
HASHES = (*(name for name in RUN_KEYS if name not in APART), "claimed")
READS = ("ask",)

Value = tuple[Any, ...]
Text = str


@dataclass(frozen=True)
class Content:
    """Everything the store holds of the run that can change."""

    number: int
    values: dict[str, Value]
    texts: dict[str, str]

    @cached_property
    def run(self) -> RunState:
        return run_state(dict(self.values["state"]))

    @cached_property
    def steps(self) -> dict[str, StepState]:
        return {name: step_state(name, text, self.texts[name]) for name, text in self.values["steps"]}

    @cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        return {name: json.loads(text) for name, text in self.values["steps"]}

    @cached_property
    def names(self) -> frozenset[str]:
        """The processes that somebody here remembers."""
        return frozenset(NAME.findall(str(self.values["steps"])))

    @cached_property
    def holders(self) -> dict[str, tuple[str, str]]:
        """Which step each process holds, and whether to do it or to undo it."""
        found = {}
        for step_id, record in self.records.items():
            undo = record.get("undo") or {}
            if record["status"] == "running":
                found[record["claim"]] = (step_id, "do")
            elif record["status"] == "compensating" and undo.get("state") == "running":
                found[undo["claim"]] = (step_id, "undo")
        return found

    @cached_property
    def kept(self) -> frozenset[str | None]:
        """The steps whose lease has not lapsed."""
        return frozenset(of_member(name)[1] for name, at in self.waiting("leases") if at == KEPT)

    @cached_property
    def all_due(self) -> dict[str, list[str | None]]:
        return {duty: [of_member(name)[1] for name, at in self.waiting(duty) if at <= START] for duty in DUTIES}

    def due(self, duty: str) -> list[str | None]:
        """What this duty has to look at now: steps, or None for the run."""
        return self.all_due[duty]

    def waiting(self, duty: str) -> list[tuple[str, int]]:
        return [(name, at) for name, at in self.values[f"due:{duty}"]]


@dataclass
class Call:
    """What one call did, for who judges it."""

    op: Op
    answer: Answer
    before: Content
    after: Content
    events: list[Event]
    version: int


@dataclass
class Stored:
    """The contents met so far, and what each call made of each. others: what lay under another run's keys after the
    last call.
    """

    url: str
    scripts: Scripts
    ref: RunRef
    other: RunRef
    contents: list[Content] = field(default_factory=list)
    made: dict[tuple[int, str], tuple[Answer, int]] = field(default_factory=dict)
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    others: list[Any] = field(default_factory=list)
    _there: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._client: Any = Redis.from_url(self.url, decode_responses=True)
        keys, ref = self.scripts.keys, self.ref
        shard = keys.shard_of(ref.run_id)
        self._names = {name: keys.part(ref, name) for name in (*HASHES, "ready")}
        self._names |= {"state": keys.state(ref), "claimed": keys.shard_part(shard, "claimed")}
        self._names |= {f"due:{duty}": keys.due(shard, duty) for duty in DUTIES}
        self._events, self._ledger = keys.part(ref, "events"), keys.shard_part(shard, "ledger")
        self._of_other = [
            keys.state(self.other),
            *(keys.part(self.other, name) for name in HASHES if name in RUN_PARTS),
        ]
        self._texts: dict[str, str] = {}

    @property
    def keys(self) -> Keys:
        return self.scripts.keys

    def begin(self) -> int:
        """The content as it is."""
        self._texts = self._client.hgetall(self.keys.part(self.ref, "plan"))
        return self._read()[0]

    def do(self, number: int, op: Op) -> tuple[Answer, int, Call | None]:
        """One operation on one content: its answer, the content it leaves, and (the first time) all about it."""
        known = self.made.get((number, op.key))
        if known is not None:
            return (*known, None)
        self._put(self.contents[number])
        answer = self._call(op)
        if op.name in READS:
            after, events, version = number, list[Event](), 1
        else:
            after, events, version = self._read()
        self.made[number, op.key] = answer, after
        return answer, after, Call(op, answer, self.contents[number], self.contents[after], events, version)

    def age(self, number: int, time: int, step_id: str | None = None) -> int:
        """The content when that time has come, for one step or for all."""
        key = f"age {time} {step_id}"
        if (number, key) not in self.made:
            values = self.contents[number].values
            aged = {name: _aged(value, time, step_id) for name, value in values.items()}
            self.made[number, key] = Answer(), self._number(aged)
        return self.made[number, key][1]

    def _call(self, op: Op) -> Answer:
        if op.name == "ask":
            return Answer(self.scripts.ask(*op.args))
        shard, ref, rest = op.args
        return Answer(self.scripts.call(op.name, shard, ref, rest=rest, **op.more))

    # ---- there and back

    def _put(self, content: Content) -> None:
        changed = {name: value for name, value in content.values.items() if self._there.get(name) != value}
        pipe = self._client.pipeline(transaction=False)
        pipe.delete(self._events, self._ledger)
        for name, value in changed.items():
            self._write(pipe, name, value)
        pipe.execute()
        self._there = dict(content.values)

    def _write(self, pipe: Any, name: str, value: Value) -> None:
        key = self._names[name]
        pipe.delete(key)
        if not value:
            return
        if name == "ready":
            pipe.rpush(key, *value)
        elif name.startswith("due:"):
            pipe.zadd(key, dict(value))
        else:
            pipe.hset(key, mapping=dict(value))
        pipe.pexpire(key, DEADLINE)

    def _read(self) -> tuple[int, list[Event], int]:
        pipe = self._client.pipeline(transaction=False)
        for name, key in self._names.items():
            if name == "ready":
                pipe.lrange(key, 0, -1)
            elif name.startswith("due:"):
                pipe.zrange(key, 0, -1, withscores=True)
            else:
                pipe.hgetall(key)
        pipe.xrange(self._events)
        for key in self._of_other:
            pipe.hgetall(key)
        answers = pipe.execute()
        self.others = answers[len(self._names) + 1 :]
        *found, entries = answers[: len(self._names) + 1]
        there = dict(zip(self._names, found, strict=True))
        values = {name: _plain(name, value) for name, value in there.items()}
        self._there = {name: value for name, value in values.items() if value == _as_it_is(there[name])}
        return self._number(values), [event_of(*entry) for entry in entries], int(there["state"]["version"])

    def _number(self, values: dict[str, Value]) -> int:
        key = tuple(values.items())
        if key not in self._numbers:
            self._numbers[key] = len(self.contents)
            self.contents.append(Content(len(self.contents), values, self._texts))
        return self._numbers[key]


def _as_it_is(value: Any) -> Value:
    return tuple(sorted(value.items())) if isinstance(value, dict) else tuple(map(tuple, value)) if value else ()


def _plain(name: str, value: Any) -> Value:
    if name == "ready":
        return tuple(value)
    if name.startswith("due:"):
        return tuple(sorted((member, _time(int(score))) for member, score in value))
    if name == "steps":
        return tuple(sorted((step, _record(text)) for step, text in value.items()))
    if name == "state":
        value = {**value, "version": "1"}
    return tuple(sorted((each, _text(text)) for each, text in value.items()))


def _record(text: str) -> str:
    record = json.loads(text)
    if "checks" in record:
        record["checks"] = 0
    if record["status"] != "running":  # a claim that is over is known by its fence alone
        record.pop("claim", None), record.pop("worker", None)
    undo = record.get("undo")
    if undo and undo["state"] != "running":
        undo.pop("claim", None), undo.pop("worker", None)
    if "reply" in record:
        record["reply"]["key"] = NAME.sub("", record["reply"]["key"])
    return _text(json.dumps(record, sort_keys=True, separators=(",", ":")))


def _text(text: str) -> str:
    return DRAWN.sub("drawn", TIME.sub(lambda found: str(_time(int(found[0]))), text))


def _time(at: int) -> int:
    return at if at in MEANT else START


def _aged(value: Value, time: int, step_id: str | None) -> Value:
    """Each part that speaks of this time, of this step, speaks of now."""
    return tuple(_now(part, time) if step_id is None or _is_about(part, step_id) else part for part in value)


def _is_about(part: Any, step_id: str) -> bool:
    return isinstance(part, tuple) and part[0].split("|")[-1] == step_id


def _now(part: Any, time: int) -> Any:
    if isinstance(part, str):
        return part.replace(str(time), str(START))
    name, value = part
    return name, (START if value == time else value) if isinstance(value, int) else value.replace(str(time), str(START))
