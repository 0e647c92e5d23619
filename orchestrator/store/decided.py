"""What the store answers to people's decisions, and to a deadline."""

from dataclasses import dataclass

from orchestrator.store.replies import NotDue, OtherGeneration, Publish, Waiting


@dataclass(frozen=True, slots=True)
class Ending:
    """The run stops; publish holds `settle` if nothing of it is running."""

    publish: Publish


@dataclass(frozen=True, slots=True)
class TooLate:
    """The run was over, or all of its steps were completed."""

    status: str


@dataclass(frozen=True, slots=True)
class Paused:
    """Nothing new starts since then."""

    since: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """What had waited is to be sent."""

    publish: Publish


@dataclass(frozen=True, slots=True)
class Noted:
    """Remembered for when its turn comes."""


@dataclass(frozen=True, slots=True)
class NotClosed:
    """What was said is about an earlier attempt of the step."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The run is started over. total: steps of the new generation's chord; planned_anew: it has none yet."""

    generation: int
    total: int
    publish: Publish
    planned_anew: bool = False


@dataclass(frozen=True, slots=True)
class Undoing:
    """The step is undone once more. publish: the undos whose turn has come by that."""

    generation: int
    publish: Publish


@dataclass(frozen=True, slots=True)
class StillInDoubt:
    """This `once` step must be resolved first."""

    step_id: str


@dataclass(frozen=True, slots=True)
class NoStep:
    """The run has no such step."""

    step_id: str


@dataclass(frozen=True, slots=True)
class Kept:
    """This step is completed and stays so: it needs no new key."""

    step_id: str


def outcome_of(reply: object) -> str:
    """A reply as the ledger keeps it: `TooLate("succeeded")` is `too_late:succeeded`."""
    name = type(reply).__name__.removesuffix("Run")
    word = "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
    match reply:
        case TooLate(about) | Waiting(about) | NotDue(about) | NoStep(about) | Kept(about):
            return f"{word}:{about}"
        case OtherGeneration(generation) | Retried(generation) | Undoing(generation):
            return f"{word}:{generation}"
    return word
