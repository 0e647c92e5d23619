"""Facts about what comes after a step: a lost attempt that is asked about, and its undoing."""

from dataclasses import dataclass
from typing import Literal

from orchestrator.telemetry.events import Occurrence


@dataclass(frozen=True, slots=True)
class ProbeSent(Occurrence):
    """A worker that has the action is asked to find out what became of a lost attempt."""

    event = "probe.sent"
    fence: int


@dataclass(frozen=True, slots=True)
class ProbeAnswered(Occurrence):
    """What an action's probe says of an attempt; dead: the attempt's process is proven dead."""

    event = "probe.answered"
    fence: int
    answer: Literal["landed", "absent", "unknown"]
    dead: bool
    kind: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class UndoBegun(Occurrence):
    """Nothing of a failing run runs any more, and what its steps did is being undone; first: undos sent at once."""

    event = "undo.begun"
    level = "warning"
    first: int


@dataclass(frozen=True, slots=True)
class UndoCommitted(Occurrence):
    """A step is undone."""

    event = "undo.committed"
    fence: int


@dataclass(frozen=True, slots=True)
class UndoLeft(Occurrence):
    """No compensation was declared for a step, or it gave up: what it did goes with its run's workspace."""

    event = "undo.left_to_workspace"
    kind: str
    fence: int
    where: str | None = None


@dataclass(frozen=True, slots=True)
class UndoRetry(Occurrence):
    """An attempt to undo a step failed, or was given back; the next comes at a time (ms since epoch)."""

    event = "undo.retry"
    level = "warning"
    kind: str
    attempt: int
    at_ms: int
    where: str | None = None


@dataclass(frozen=True, slots=True)
class UndoGivenUp(Occurrence):
    """A step could not be undone; a dead letter says so."""

    event = "undo.given_up"
    level = "error"
    kind: str
    attempt: int
    where: str | None = None


@dataclass(frozen=True, slots=True)
class EffectMayBeLate(Occurrence):
    """An attempt that had begun its effect ended without a result after somebody else had ended its claim."""

    event = "effect.may_be_late"
    level = "warning"
    fence: int


@dataclass(frozen=True, slots=True)
class EffectUntold(Occurrence):
    """An effect may have happened, its claim may have been ended, and the ledger cannot be told now.

    Should this process end before it is, nobody else knows; the line's other fields say which effect it is.
    """

    event = "effect.untold"
    level = "error"
    fence: int
