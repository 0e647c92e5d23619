"""Facts about what people decide, and about waiting for them. Of the kind of orchestrator.telemetry.events."""

from dataclasses import dataclass

from orchestrator.telemetry.events import Occurrence


@dataclass(frozen=True, slots=True)
class DecisionMade(Occurrence):
    """A person's decision lies in the ledger; the run has not heard of it yet."""

    event = "decision.made"
    kind: str
    by: str
    generation: int


@dataclass(frozen=True, slots=True)
class DecisionDone(Occurrence):
    """The store has answered a decision; outcome: what it answered."""

    event = "decision.done"
    kind: str
    by: str
    outcome: str


@dataclass(frozen=True, slots=True)
class WaitOver(Occurrence):
    """Nobody answered for a step in time: it counts as failure. waited_for: approval or an answer to a doubt."""

    event = "wait.over"
    level = "warning"
    waited_for: str


@dataclass(frozen=True, slots=True)
class LetterDecided(Occurrence):
    """A person has decided about a dead letter: kind is replay or drop. Nothing has moved yet."""

    event = "letter.decided"
    kind: str
    by: str
    letter_id: str


@dataclass(frozen=True, slots=True)
class LetterDone(Occurrence):
    """What came of it, in a word."""

    event = "letter.done"
    kind: str
    by: str
    letter_id: str
    outcome: str
