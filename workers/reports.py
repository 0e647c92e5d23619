"""What one delivery of a plan or step message came to, as `workers.tasks` tells it to Celery."""

from dataclasses import dataclass

from schemas.messages import Receipt


@dataclass(frozen=True, slots=True)
class Done:
    """The step is completed, by this delivery or an earlier one: its part of the chord."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Planned:
    """The run has its plan. That is no part of a chord."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing is to be reported, and nothing is owed: somebody else has it, or something due will bring it back."""

    why: str


@dataclass(frozen=True, slots=True)
class Later:
    """It will be tried again; the store knows when. error: the last failure, short."""

    error: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """It has failed for good (or nobody knows); the run ends. error: short."""

    error: str


Report = Done | Planned | Nothing | Later | GivenUp


def word(reply: object) -> str:
    """A reply's name as logs spell it, `NotDue` as not_due. None, no reply: the claim is left to its lease."""
    name = type(reply).__name__ if reply is not None else "LeftToLease"
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
