"""A process as the explorer sees it: what it was begun with, and what each of its operations was answered.

An operation is what happens at once or not at all: one script of the store, one read of it, one transaction of the
ledger, one message that is sent, one act upon the world outside. A process does nothing else that anybody could notice,
so what it has been answered says where it stands. To have it stand there again it is begun anew and told the same; its
next operation is not done but noted, and then the process is left by an exception. No thread has to be kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

READS = (
    *("ask", "depth", "run", "letters", "pending_decisions", "decision"),
    "files.gone",
    *("effects.look", "transactional.look", "late.of", "late.owed", "late.refused"),
)


class Left(BaseException):
    """The process is left where it stands. Like a SIGKILL, it is caught by nobody who means well."""


@dataclass(frozen=True)
class Op:
    """One operation. where: store, ledger, broker, or world."""

    where: str
    name: str
    args: tuple[Any, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.where} {self.name} {self.args!r} {self.more!r}")

    key: str = field(init=False, default="")

    @property
    def is_read(self) -> bool:
        return self.name in READS


@dataclass(frozen=True)
class Answer:
    """What an operation came to: a value, or an error that the process meets."""

    value: Any = None
    error: Exception | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.value!r} {self.error!r}")

    key: str = field(init=False, default="")

    def given(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True)
class Renewal:
    """Not an operation of the process itself: what the thread that keeps its lease has heard meanwhile."""

    value: Any

    @property
    def key(self) -> str:
        return f"renewal {self.value!r}"


Heard = Answer | Renewal


@dataclass
class Gate:
    """Where the one process that is being played meets the rest of the world."""

    name: str = ""
    lease: Any = None
    next: Op | None = None
    _told: Iterator[Heard] = field(default_factory=lambda: iter(()))
    _left: bool = False

    def play(self, name: str, process: Callable[[], object], told: tuple[Heard, ...]) -> Op | None:
        """Begin a process and tell it this; answers the operation it wants next, None if it has come to its end."""
        self.name, self.lease, self.next, self._told, self._left = name, None, None, iter(told), False
        try:
            process()
        except Left:
            assert self.next is not None
        return self.next

    def through(self, op: Op) -> Any:
        """What the process is answered, or its end."""
        for heard in () if self._left else self._told:
            if isinstance(heard, Answer):
                return heard.given()
            self._renew(heard)
        if not self._left:
            self._left, self.next = True, op
        raise Left

    def _renew(self, heard: Renewal) -> None:
        if self.lease is not None:
            self.lease._heed(heard.value, 0.0)


class Watch:
    """In place of the thread that renews leases: the explorer says when its time has come."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def add(self, lease: Any) -> None:
        self._gate.lease = lease

    def remove(self, _lease: Any) -> None:
        self._gate.lease = None
