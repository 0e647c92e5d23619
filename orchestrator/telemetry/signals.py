"""Facts that are told to be counted, and those that should never be told. Of the kind of telemetry.events."""

from dataclasses import dataclass
from typing import Literal

from orchestrator.telemetry.events import Occurrence

Loop = Literal["step", "planner", "undo"]


@dataclass(frozen=True, slots=True)
class LoopEnded(Occurrence):
    """An attempt of a step, or a call of a planner, is over, whatever its end."""

    event = "loop.ended"
    level = "debug"
    loop: Loop
    duration_ms: int


@dataclass(frozen=True, slots=True)
class AttemptKilled(Occurrence):
    """An attempt did not stop when it was told to, so its process is killed. reason: why it was to stop."""

    event = "attempt.killed"
    level = "warning"
    loop: Loop
    reason: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class PolicyMismatch(Occurrence):
    """A run bears the hash of another policy than the one it has. at: where that was seen."""

    event = "policy.mismatch"
    level = "critical"
    at: Literal["claim", "end"]
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class VersionConflict(Occurrence):
    """A run's version does not follow from the one before: it went back, or left a gap."""

    event = "version.conflict"
    level = "critical"
    kind: Literal["back", "gap"]
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class CommittedTwice(Occurrence):
    """The history of an ended run has more than one commit of a step in one generation. extra: those over the first."""

    event = "step.committed_twice"
    level = "critical"
    step_id: str
    extra: int


@dataclass(frozen=True, slots=True)
class NeverEnded(Occurrence):
    """A run has ended, and so many of the steps that were sent for it never did."""

    event = "steps.never_ended"
    level = "critical"
    steps: int


@dataclass(frozen=True, slots=True)
class ListenerFailed(Occurrence):
    """Logs or counters could not take a fact. Said once for each of them."""

    event = "listener.failed"
    level = "error"
    listener: str
    kind: str


@dataclass(frozen=True, slots=True)
class HealthChanged(Occurrence):
    """A check of this worker's health has failed, or is satisfied again."""

    event = "health.changed"
    level = "warning"
    check: str
    ok: bool
    text: str
    for_s: int


@dataclass(frozen=True, slots=True)
class HealthServed(Occurrence):
    """Health and metrics of this process can be asked for."""

    event = "health.served"
    role: str
    url: str


@dataclass(frozen=True, slots=True)
class HealthNotServed(Occurrence):
    """They cannot; the process works all the same. hint: the mend."""

    event = "health.not_served"
    level = "error"
    role: str
    message: str
    hint: str
