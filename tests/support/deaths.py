"""Processes that die at a write of theirs, before it or after it and before anything else; or freeze there, and are
woken when all is over.

The doors through which a process changes something are wrapped where every change passes: the loader of scripts, the
ledger's transactions, what goes to the broker, and the world outside. Nothing else leads out: a plain command that
writes is refused unless it is told (`Scripts.tell`), and whatever is published passes kombu's producer. What is found
there is counted, so that a write which somebody adds is a place to die at from the first day. A dead process does
nothing more: whatever its `finally` blocks still try, the doors stay shut, until another process is born.

Not counted is what a pass asks before it does anything. Who dies there dies before the first write of his pass, or has
none to die at; and how many passes go by depends on how long somebody was told to wait.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import pytest
from kombu.messaging import Producer

from orchestrator import dispatch
from orchestrator.errors import StoreUnavailable
from orchestrator.ledger.engine import Database
from orchestrator.store.connection import Link
from orchestrator.store.replies import Dispatch
from orchestrator.store.scripts import Scripts

T = TypeVar("T")
When = Literal["before", "after"]
BY_A_THREAD = frozenset({"renew_lease"})  # when its time has come
RESULTS = ("open_chord", "close_chord")  # all that touch Celery's result store
UNCOUNTED = BY_A_THREAD | {"begin_pass", "look_whole", "take_due"}


class Died(BaseException):
    """Nobody catches a SIGKILL."""


class Write(NamedTuple):
    """One change: its name, the number of the process that made it, and what message it had in hand, if one."""

    name: str
    process: int
    message: str

    def __str__(self) -> str:
        return self.name


@dataclass
class Doors:
    """What the processes of one run have changed, in order, and where the one that is to die does so."""

    passed: list[Write] = field(default_factory=list)
    fatal: frozenset[tuple[int, When]] = frozenset()
    dead: bool = False
    sent: list[Dispatch] = field(default_factory=list)
    freezer: "Freezer | None" = None
    born: int = 0
    inside: tuple[int, str] = (0, "")  # the process that goes on, and the message it has in hand

    def begin(self, fatal: Iterable[tuple[int, When]] = (), freezer: "Freezer | None" = None) -> None:
        """Count from the start, for another run."""
        self.passed.clear()
        self.sent.clear()
        self.fatal, self.dead, self.freezer = frozenset(fatal), False, freezer

    def lives(self, process: Callable[[], object], message: str = "") -> bool:
        """Run what one process does, with this kind of message in hand; tells whether it came to its end."""
        with self._another(message):
            return self._lives(process)

    @contextmanager
    def _another(self, message: str) -> Iterator[None]:
        """A process is born; behind it the one goes on that has waited for it, if there is one."""
        self.born += 1
        before, self.inside = self.inside, (self.born, message)
        try:
            yield
        finally:
            self.inside = before

    def _lives(self, process: Callable[[], object]) -> bool:
        if self.freezer is not None:
            return self.freezer.stays_awake(process)
        self.dead = False
        try:
            process()
        except Died:
            return False
        finally:
            self.dead = False
        return True

    def through(self, name: str, change: Callable[[], T]) -> T:
        """One change."""
        with self.opened(name):
            return change()

    @contextmanager
    def opened(self, name: str) -> Iterator[None]:
        """The same for a change that is made in a block."""
        self.must_live()
        index = len(self.passed)
        self.passed.append(Write(name, *self.inside))
        self._die((index, "before"))
        yield
        self._die((index, "after"))

    def must_live(self) -> None:
        """What is dead asks nothing either. Its threads are: they find the store away, and end with it."""
        if not self.dead:
            return
        if threading.current_thread() is not threading.main_thread():
            raise StoreUnavailable("the process is dead")
        raise Died

    def _die(self, point: tuple[int, When]) -> None:
        if self.freezer is not None:
            self.freezer.stop_at(point)
        if point in self.fatal:
            self.dead = True
            raise Died


ONE_AFTER_THE_OTHER = ThreadPoolExecutor(1)  # one thread has one connection, however many processes it plays


@dataclass
class Freezer:
    """One process stands still at a point, until it is woken; whoever waits for it takes its host for lost."""

    point: tuple[int, When]
    _stopped: threading.Event = field(default_factory=threading.Event)
    _woken: threading.Event = field(default_factory=threading.Event)
    _sleeper: Future[object] | None = None

    def stays_awake(self, process: Callable[[], object]) -> bool:
        """Run a process; False if it stopped on the way."""
        if self._sleeper is not None or threading.current_thread() is not threading.main_thread():
            process()  # one has stopped; or it is a part of what a process does
            return True
        running = ONE_AFTER_THE_OTHER.submit(process)
        while not self._stopped.is_set():
            if wait([running], 0.001).done:
                running.result()
                return True
        self._sleeper = running
        return False

    def stop_at(self, point: tuple[int, When]) -> None:
        """Called at each point; the process stands still at one."""
        if point == self.point and not self._stopped.is_set():
            self._stopped.set()
            assert self._woken.wait(60), "nobody woke it"

    def wake(self) -> None:
        """Let it go on, to its end."""
        self._woken.set()
        if self._sleeper is not None:
            self._sleeper.result(60)


def doors(monkeypatch: pytest.MonkeyPatch) -> Doors:
    """Every way in which a process of this test changes something, wrapped. What it sends to the broker stays here."""
    made = Doors()
    _wrap_store(monkeypatch, made)
    _wrap_ledger(monkeypatch, made)
    _wrap_broker(monkeypatch, made)
    return made


def _wrap_store(monkeypatch: pytest.MonkeyPatch, made: Doors) -> None:
    call, tell, again = Scripts.call, Scripts.tell, Scripts._again

    def calling(self: Scripts, name: str, *given: Any, **more: Any) -> Any:
        if name in UNCOUNTED:
            return call(self, name, *given, **more)
        return made.through(f"store {name}", lambda: call(self, name, *given, **more))

    def telling(self: Scripts, *words: Any) -> Any:
        return made.through(f"store {words[0]}", lambda: tell(self, *words))

    def living(self: Scripts, once: Callable[[Link], Any]) -> Any:
        made.must_live()
        return again(self, once)

    monkeypatch.setattr(Scripts, "call", calling)
    monkeypatch.setattr(Scripts, "tell", telling)
    monkeypatch.setattr(Scripts, "_again", living)


def _wrap_ledger(monkeypatch: pytest.MonkeyPatch, made: Doors) -> None:
    transaction: Any = Database._transaction

    @contextmanager
    def counted(self: Database, mode: str, any_revision: bool) -> Iterator[Any]:
        made.must_live()
        if mode == "reading":
            with transaction(self, mode, any_revision) as connection, _reads_only(connection):
                yield connection
            return
        with made.opened(f"ledger {_caller()}"), transaction(self, mode, any_revision) as connection:
            yield connection

    monkeypatch.setattr(Database, "_transaction", counted)


@contextmanager
def _reads_only(connection: Any) -> Iterator[None]:
    """SQLite lets a transaction write that was begun to read."""
    before = connection.connection.total_changes
    yield
    assert connection.connection.total_changes == before, f"{_caller()} writes where it is to read"


def _caller() -> str:
    """Which method of the ledger writes: the first that is no part of the engine."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.endswith(("deaths.py", "contextlib.py", "engine.py")):
        frame = frame.f_back
    return frame.f_code.co_qualname


def _wrap_broker(monkeypatch: pytest.MonkeyPatch, made: Doors) -> None:
    def send(app: Any, wave: tuple[Dispatch, ...]) -> None:
        for message in wave:
            made.through(f"send {message.kind}", partial(made.sent.append, message))

    def depth(app: Any, queue: str) -> int:
        return sum(message.queue == queue for message in made.sent)

    monkeypatch.setattr(dispatch, "_send_all", send)
    monkeypatch.setattr(dispatch, "queue_depth", depth)
    for name in RESULTS:
        _count(monkeypatch, made, dispatch, name)
    _wrap_producer(monkeypatch, made)


def _wrap_producer(monkeypatch: pytest.MonkeyPatch, made: Doors) -> None:
    """Whatever else is published, by the last word of its queue's name."""
    publish: Any = Producer.publish

    def publishing(self: Producer, *given: Any, **more: Any) -> Any:
        queue = str(more.get("routing_key")).rpartition(".")[2]
        return made.through(f"publish {queue}", lambda: publish(self, *given, **more))

    monkeypatch.setattr(Producer, "publish", publishing)


def _count(monkeypatch: pytest.MonkeyPatch, made: Doors, module: Any, name: str) -> None:
    original = getattr(module, name)

    def counted(*given: Any, **more: Any) -> Any:
        return made.through(name, lambda: original(*given, **more))

    monkeypatch.setattr(module, name, counted)
