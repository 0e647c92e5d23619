"""What effect rows answer."""

from dataclasses import dataclass

from orchestrator.ledger.tables import EffectState


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nothing has landed and this fence is not closed: the effect may be done."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The effect may start now; from here on it may have happened."""


@dataclass(frozen=True, slots=True)
class AlreadyOpen:
    """An effect that must not start twice was started by the fence `since`."""

    since: int


@dataclass(frozen=True, slots=True)
class Landed:
    """The row holds this call's result."""


@dataclass(frozen=True, slots=True)
class AlreadyLanded:
    """It happened before; result_text is the first result, as JSON."""

    result_text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The claim of this fence was ended; the newest fence that was is closed_to."""

    closed_to: int


@dataclass(frozen=True, slots=True)
class RowClosed:
    """What close found: the state, and the result where the state is landed. late: somebody else had ended the claim,
    so what its attempt may have done outside is owed."""

    state: EffectState
    result_text: str | None
    late: bool = False


@dataclass(frozen=True, slots=True)
class NotClosed:
    """A claim of the step is newer than the one that was asked about: nothing was written."""

    since: int
    closed_to: int
