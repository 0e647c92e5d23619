"""The installation that processes of an exploration work in: every way out leads through the gate."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from orchestrator import dead_letters, decisions, dispatch, late_effects, progress
from orchestrator.decisions import Desk
from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.connection import Link
from orchestrator.store.replies import Dispatch, Publish
from orchestrator.store.scripts import Reply, Scripts
from orchestrator.supervisors import (
    apply_decisions,
    end_waits,
    enforce_deadlines,
    passes,
    reclaim_stale_leases,
    redispatch_lost_steps,
    retry_due_steps,
    settle_runs,
    trigger_compensation,
)
from orchestrator.telemetry import facts
from orchestrator.telemetry.logs import identity
from orchestrator.undoagain import GivenUpUndo
from schemas.ids import RunRef
from schemas.states import EffectClass
from tests.explorer.operations import Gate, Op, Watch
from tests.support.receiving import receive, write
from tests.support.stores import START
from workers import closing, execution, late, lease, orphans, probing, undo
from workers.registry import Registry
from workers.services import Services
from workers.workspace import Workspaces

T = TypeVar("T")

APP: Any = None  # nothing here reaches the broker
SAME = ("plan", "needs", "dependants", "epoch", "server")  # ends of keys that nobody changes


class GatedScripts(Scripts):
    """Calls and reads as operations. What never changes is read at once, and so is the clock: it stands still."""

    gate: Gate
    real: Scripts

    @classmethod
    def before(cls, real: Scripts, gate: Gate) -> "GatedScripts":
        made = cls(real.links, real.keys, real.epoch, real._settings)
        made.gate, made.real = gate, real
        return made

    def call(self, name: str, shard: int, ref: RunRef | None = None, *, rest: Sequence[Any] = (), **args: Any) -> Reply:
        if name == "begin_pass":  # whether a pass is worth its while is no question here
            return Reply("ok", {})
        reply: Reply = self.gate.through(Op("store", name, (shard, ref, tuple(rest)), args))
        return reply

    def ask(self, *words: Any) -> Any:
        if words[0] == "TIME":
            return START // 1000, START % 1000 * 1000
        if str(words[1]).endswith(":events"):  # for people to read
            return []
        if str(words[1]).endswith(SAME):
            return self.real.ask(*words)
        return self.gate.through(Op("store", "ask", words))

    def server(self) -> str:
        return self.real.server()

    def _again(self, once: Callable[[Link], T]) -> T:
        raise AssertionError("a way to the store that leads past the gate")


@dataclass(frozen=True)
class GatedLedger:
    """Every method is an operation."""

    gate: Gate
    path: str = ""

    def __getattr__(self, name: str) -> Any:
        if name in ("effects", "late", "history", "transactional", "losses", "files"):
            return GatedLedger(self.gate, f"{name}.")

        def method(*args: Any, **more: Any) -> Any:
            return self.gate.through(Op("ledger", self.path + name, args, more))

        return method

    def rows_of(self, effect: EffectClass) -> Any:
        return self.transactional if effect is EffectClass.TRANSACTIONAL else self.effects

    def now_ms(self) -> int:
        return START


@dataclass(frozen=True)
class Start:
    """What a process is begun with. what: deliver, sweep, decide, or bury (end the claim of a child that died)."""

    what: str
    name: str
    about: str = ""
    message: Dispatch | None = None

    def __str__(self) -> str:
        about = f"{self.message.kind} {self.message.step_id or ''}" if self.message else self.about
        return f"{self.name}({self.what} {about})"


@dataclass
class Installation:
    """Real code on gated services."""

    gate: Gate
    store: Store
    ledger: Ledger
    settings: Settings
    registry: Registry
    ref: RunRef

    def process(self, start: Start) -> Callable[[], object]:
        """What one process does, from its beginning to its end."""
        if start.what == "deliver":
            return lambda: receive(cast("Dispatch", start.message), self._services(), APP)
        if start.what == "bury":
            message = cast("Dispatch", start.message)
            return lambda: self.store.guard.end_claim(message.ref, message.step_id, worker(start.about))
        if start.what == "decide":
            return lambda: self._decide(start.about)
        return self.passes()[start.about]

    def play(self, start: Start) -> Callable[[], None]:
        """The same, as what is logged knows it."""

        def process() -> None:
            with identity():
                self.process(start)()

        return process

    def passes(self) -> dict[str, Callable[[], object]]:
        """What each supervisor does, by its duty."""
        store, ledger, given = self.store, self.ledger, self.settings
        return {
            "leases": lambda: reclaim_stale_leases.run_once(APP, store, ledger, given),
            "dispatches": lambda: redispatch_lost_steps.run_once(APP, store, given),
            "retries": lambda: retry_due_steps.run_once(APP, store, given),
            "deadlines": lambda: enforce_deadlines.run_once(APP, store, given),
            "settles": lambda: settle_runs.run_once(APP, store, ledger, given),
            "waits": lambda: end_waits.run_once(APP, store, ledger, given),
            "undos": lambda: trigger_compensation.run_once(APP, store, ledger, given),
            "decisions": lambda: apply_decisions.run_once(APP, store, ledger),
        }

    def _decide(self, what: str) -> None:
        desk, run_id = Desk(APP, self.store, self.ledger), self.ref.run_id
        kind, _, step_id = what.partition(" ")
        if kind == "cancel":
            decisions.cancel(desk, run_id, "anna")
        elif kind == "retry":
            decisions.retry(desk, run_id, "anna")
        elif kind == "undo":
            self._undo_again(desk, *step_id.split())
        else:
            decisions.resolve(desk, run_id, "anna", step_id=step_id, landed=kind == "landed", result={"x": 1})

    def _undo_again(self, desk: Desk, step_id: str, fence: str, generation: str) -> None:
        """What the replay of its letter comes to."""
        given_up = GivenUpUndo(step_id, int(fence), int(generation))
        decisions.undo_again(desk, self.ref.run_id, "anna", None, given_up, f"decision-{step_id}-{fence}")

    def _services(self) -> Services:
        workspaces = Workspaces(self.settings.home)
        publisher = SimpleNamespace(publish=lambda wave: dispatch.publish(APP, wave))
        keep = partial(write, app=APP, ledger=self.ledger)
        return Services(self.settings, self.store, self.ledger, self.registry, workspaces, publisher, keep)


def _fail(_supervisor: str, error: Exception) -> None:
    """A pass goes on whatever one member is met with; here nothing may be met."""
    raise error


def worker(name: str) -> str:
    return f"host:{name}"


@contextmanager
def doors(store: Store, settings: Settings, registry: Registry, ref: RunRef, gate: Gate) -> Iterator[Installation]:
    """All ways out of a process, led through the gate; what it would draw by lot is drawn from its name."""
    with pytest.MonkeyPatch.context() as patch:
        _lead_out(patch, gate)
        _name_processes(patch, gate)
        patch.setattr(progress, "_look_back", lambda *_: None)  # it looks at the history, which is not kept here
        patch.setattr(progress, "_identify", lambda *_: None)  # for the log
        patch.setattr(apply_decisions, "_pending_replays", lambda _desk: ())  # nobody replays a letter here
        gated = Store(GatedScripts.before(store.scripts, gate))
        yield Installation(gate, gated, cast("Ledger", GatedLedger(gate)), settings, registry, ref)


def _lead_out(patch: pytest.MonkeyPatch, gate: Gate) -> None:
    def publish(_app: Any, wave: Publish) -> int:
        for message in wave:
            gate.through(Op("broker", "send", (message,)))
        return len(tuple(wave))

    patch.setattr(dispatch, "publish", publish)
    patch.setattr(dispatch, "queue_depth", lambda _app, queue: gate.through(Op("broker", "depth", (queue,))))
    patch.setattr(dispatch, "broker_errors", lambda _app: (OSError,))
    for module in (passes, apply_decisions, late_effects):
        patch.setattr(module, "tell_failed", _fail)
    for name in ("ring", "open_chord", "close_chord"):  # no promise rests on them
        patch.setattr(dispatch, name, lambda *_: True)
    patch.setattr(lease, "_watcher", lambda: Watch(gate))
    patch.setattr(probing, "within", lambda _limit_s, call, _name: call())
    patch.setattr(orphans, "END_WITH_CHILD", True)


def _name_processes(patch: pytest.MonkeyPatch, gate: Gate) -> None:
    for module in (execution, undo):
        patch.setattr(module, "uuid4", lambda: _Drawn(gate.name))
    for module in (execution, undo, closing, late):
        patch.setattr(module, "worker_id", lambda: worker(gate.name))
    patch.setattr(dead_letters, "uuid4", lambda: f"letter-{gate.name}")
    patch.setattr(facts, "_listeners", [])  # what is told of one step is told here ten thousand times
    patch.setattr(dead_letters, "time", SimpleNamespace(time_ns=lambda: START * 1_000_000))


@dataclass(frozen=True)
class _Drawn:
    hex: str
