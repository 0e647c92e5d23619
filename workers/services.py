"""What a worker process works with: one of each, handed to whoever needs it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Publish
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef
from workers.registry import Registry
from workers.workspace import Workspaces


@dataclass(frozen=True, slots=True)
class Letter:
    """What was given up on. dedup_key: the same for a repeat, so that one cause makes one letter."""

    kind: DeadLetterKind
    ref: RunRef
    step_id: str | None
    reason: str
    content: dict[str, Any]
    dedup_key: str


class Publisher(Protocol):
    """The way to the broker. Neither method raises when it is away: what is owed stays due in the store."""

    def publish(self, wave: Publish) -> None: ...

    def open_chord(self, ref: RunRef, generation: int, size: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Services:
    """write_letter: puts a letter into the ledger, rings on the dead letters' queue and answers the letter's id."""

    settings: Settings
    store: Store
    ledger: Ledger
    registry: Registry
    workspaces: Workspaces
    publisher: Publisher
    write_letter: Callable[[Letter], str]
