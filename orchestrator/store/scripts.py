"""Loads the Lua scripts, binds their contracts and calls them; the only place that retries a store call.

A script opens with its contract: `keys:` names groups of orchestrator.store.keys, `args:` names its arguments (the last
may be `*rest`), each `reply` line names a word and its fields; `identity: any` leaves the check out whether this is the
store the caller knows, `identity: building` asks for who builds a shard again. The loader puts a prelude in front that
binds these names, and the libraries; so a script says `A.fence` and `K.steps`, and never counts positions.
"""

import hashlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar
from uuid import uuid4

from orchestrator import machine
from orchestrator.errors import StoreAmnesia, StoreMoved, StoreRefused, StoreUnavailable
from orchestrator.store.connection import LOST, Link, Links, NoScript, Refused
from orchestrator.store.keys import GROUPS, RUN_KEYS, Keys
from schemas.ids import RunRef

T = TypeVar("T")

OF_EVERY_CALL = ("base",)
IDENTITY = {"": ("identity",), "any": (), "building": ("building",)}  # what a contract says of who may call
OF_RUNS = ("run", "steps", "undo")
LIBS = (*OF_EVERY_CALL, "identity", "building", *OF_RUNS)
COMMON_ARGS = ("epoch", "server", "now_ms", "session", "run_id")
DRAWN: Mapping[str, Callable[[], str]] = {
    "call_id": lambda: uuid4().hex,
    "jitter": lambda: f"{random.random():.6f}",
}
# what `ask` may ask: the first word of a command, or the first two; whatever changes something is a script, or is told
READS = frozenset(
    {
        *("CONFIG GET", "EXISTS", "GET", "HGET", "HGETALL", "HMGET", "INFO", "MGET", "TIME", "TTL"),
        *("XINFO STREAM", "XLEN", "XRANGE", "ZCARD", "ZCOUNT", "ZRANGE", "ZSCORE"),
    }
)
TAKEN_OVER = "supervisors hold it against the ledger; without them `mandor ledger verify` does"
BUILT_AGAIN = "supervisors build it again from the ledger; without them `mandor ledger restore` does"
# pauses between the tries of one call, in seconds; a repeat is safe: scripts answer a repeated claim what they answered
PAUSES = (0.05, 0.2, 0.5)
TRIES = len(PAUSES) + 1


@dataclass(frozen=True, slots=True)
class Script:
    """One file with its contract bound. text: what the server gets; sha: its name there."""

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    rest: str | None
    replies: Mapping[str, tuple[str, ...]]
    text: str
    sha: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A word and its fields, named as in the script's contract."""

    word: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def _contract(source: str) -> dict[str, list[str]]:
    """The header's `name: rest` lines, grouped by their first word."""
    lines: dict[str, list[str]] = {}
    for line in source.splitlines():
        if not line.startswith("-- "):
            break
        head, _, tail = line[3:].partition(":")
        word = head.split()[0] if head.split() else ""
        lines.setdefault(word, []).append(f"{head.partition(' ')[2]} {tail}" if word == "reply" else tail)
    return lines


def _prelude(keys: Sequence[str], args: Sequence[str]) -> str:
    bound_keys = ", ".join(f"['{name}'] = KEYS[{i}]" for i, name in enumerate(keys, 1))
    bound_args = ", ".join(f"['{name}'] = ARGV[{i}]" for i, name in enumerate(args, 1))
    moves = "\n".join(
        f"local {name} = {{ {', '.join(f'[{pair!r}] = true' for pair in sorted(pairs))} }}"
        for name, pairs in (("LEGAL_RUN", machine.RUN_MOVES), ("LEGAL_STEP", machine.STEP_MOVES))
    )
    of_run = f"local RUN_KEYS = {{ {', '.join(repr(name) for name in RUN_KEYS)} }}"
    return (
        f"local K = {{ {bound_keys} }}\nlocal A = {{ {bound_args} }}\nlocal REST = {len(args) + 1}\n{of_run}\n{moves}\n"
    )


def parse(name: str, source: str, libs: Mapping[str, str]) -> Script:
    """One script with its contract bound."""
    contract = _contract(source)
    groups = contract["keys"][0].split()
    keys = ("epoch", "server", *(key for group in groups for key in GROUPS[group]))
    words = contract["args"][0].split()
    rest = words.pop().removeprefix("*") if words and words[-1].startswith("*") else None
    args = (*COMMON_ARGS, *words)
    replies = {line.split()[0]: tuple(line.split()[1:]) for line in contract["reply"]}
    identity = IDENTITY[contract.get("identity", [""])[0].strip()]
    used = (*OF_EVERY_CALL, *identity, *(OF_RUNS if "run" in groups else ()))
    text = "\n".join([_prelude(keys, args), *(libs[lib] for lib in used), source])
    return Script(name, keys, args, rest, replies, text, _name_of(text))


def _name_of(text: str) -> str:
    """The server's own name for a script."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@cache
def load() -> Mapping[str, Script]:
    """Every script of the package, by name."""
    folder = files("orchestrator.store") / "lua"
    libs = {name: (folder / "lib" / f"{name}.lua").read_text() for name in LIBS}
    found = (entry for entry in folder.iterdir() if entry.name.endswith(".lua"))
    return {name: parse(name, entry.read_text(), libs) for entry in found for name in [entry.name[:-4]]}


class Scripts:
    """Calls scripts on one store. Fork- and thread-safe: each thread of each process has a connection of its own."""

    def __init__(self, links: Links, keys: Keys, epoch: str, settings: Mapping[str, int]) -> None:
        self.links = links
        self.keys = keys
        self.epoch = epoch
        self._settings = settings

    def call(self, name: str, shard: int, ref: RunRef | None = None, *, rest: Sequence[Any] = (), **args: Any) -> Reply:
        """Run one script. StoreUnavailable after the last try; StoreMoved, StoreAmnesia as the store says."""
        script = load()[name]
        keys = self.keys.of_call(script.keys, shard, ref, args.get("step_id"))
        values = self._values(script, ref, args)
        reply = self._try(script, keys, values, rest)
        word, *fields = reply
        if word == "amnesia":
            raise StoreAmnesia(
                "the store does not know this installation: its memory was lost or replaced", hint=BUILT_AGAIN
            )
        if word == "moved":
            raise StoreMoved("the store is another server, or restarted, and has not been verified", hint=TAKEN_OVER)
        return Reply(word, dict(zip(script.replies[word], fields, strict=False)))

    def ask(self, *words: Any) -> Any:
        """One plain read. Tried again like a script. ValueError: it is none of READS."""
        _must_read(words)
        return self._again(lambda link: link.command(*words))

    def ask_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Many plain reads in one round trip, which are tried again together."""
        for words in commands:
            _must_read(words)
        return self._again(lambda link: link.commands(commands))

    def ask_or_none(self, *words: Any) -> Any:
        """Like ask, but None when the server refuses the command."""
        try:
            return self.ask(*words)
        except StoreRefused:
            return None

    def tell(self, *words: Any) -> Any:
        """One plain command that writes what belongs to no run. Tried again like a script: it must bear that."""
        return self._again(lambda link: link.command(*words))

    def server(self) -> str:
        """The name that the server gave itself when it started."""
        return self._again(lambda link: link.server)

    def _values(self, script: Script, ref: RunRef | None, args: Mapping[str, Any]) -> dict[str, Any]:
        """What a call brings along, unless the caller (a test) says otherwise. What is random is drawn once a call."""
        common = {
            "epoch": self.epoch,
            "now_ms": "",
            "session": ref.session if ref else "",
            "run_id": ref.run_id if ref else "",
        }
        drawn = {name: draw() for name, draw in DRAWN.items() if name in script.args}
        given = {key: "" if value is None else value for key, value in args.items()}
        return {**common, **drawn, **self._settings, **given}

    def _try(self, script: Script, keys: Sequence[str], values: Mapping[str, Any], rest: Sequence[Any]) -> list[Any]:
        def once(link: Link) -> list[Any]:
            argv = [link.server if name == "server" else values[name] for name in script.args]
            return _evaluate(link, script, [*keys, *argv, *rest], len(keys))

        return self._again(once)

    def _again(self, once: Callable[[Link], T]) -> T:
        for pause in PAUSES:
            try:
                return self._once(once)
            except LOST:
                time.sleep(pause)
        try:
            return self._once(once)
        except LOST as lost:
            where = self.links.address
            raise StoreUnavailable(f"{where} did not answer: {lost}", hint="is Redis running?") from None

    def _once(self, once: Callable[[Link], T]) -> T:
        try:
            with self.links.link() as link:
                return once(link)
        except LOST:
            raise
        except Refused as refused:
            raise StoreRefused(f"the store refused: {refused}") from None


def _must_read(words: Sequence[Any]) -> None:
    if words[0] not in READS and " ".join(map(str, words[:2])) not in READS:
        raise ValueError(f"{words[0]} is no read: what writes is a script, or is told")


def _evaluate(link: Link, script: Script, words: Sequence[Any], count: int) -> list[Any]:
    try:
        reply = link.command("EVALSHA", script.sha, count, *words)
    except NoScript:
        reply = link.command("EVAL", script.text, count, *words)
    assert isinstance(reply, list)
    return reply


def pairs(reply: Any) -> dict[str, str]:
    """Names and values in turns, or a mapping already, as the protocol's version has it."""
    return dict(reply) if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
