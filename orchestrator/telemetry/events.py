"""Facts: one frozen dataclass each, told by the code that does the work, listened to by logs (and counted by metrics).

A fact says what happened, never with what: no params, no results, no planner's text. Which run and step it is about
is in the identity that surrounds it (`logs.identity`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import ClassVar, Literal

from orchestrator.errors import MandorError

Level = Literal["debug", "info", "warning", "error", "critical"]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Base of every fact. event: its stable name; level: how loud it is."""

    event: ClassVar[str]
    level: ClassVar[Level] = "info"


# ---- a submission and its policy


@dataclass(frozen=True, slots=True)
class RunAccepted(Occurrence):
    """created: False when the same submission had been accepted before."""

    event = "run.accepted"
    created: bool
    planner: str | None = None


@dataclass(frozen=True, slots=True)
class RunRefused(Occurrence):
    """A submission did not fit; paths: the fields it failed on."""

    event = "run.refused"
    level = "warning"
    kind: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyResolved(Occurrence):
    """The policy of a run is fixed from here on; layers: what it was narrowed by."""

    event = "policy.resolved"
    layers: tuple[str, ...] = ()


# ---- one attempt of a step


@dataclass(frozen=True, slots=True)
class JobStart(Occurrence):
    """An attempt begins; undo: to undo a step."""

    event = "job.start"
    action: str
    effect: str
    attempt: int
    fence: int
    undo: bool = False


@dataclass(frozen=True, slots=True)
class JobEnd(Occurrence):
    """outcome: the word the attempt ended with (committed, retry, failed, fenced, …)."""

    event = "job.end"
    action: str
    outcome: str
    attempt: int
    duration_ms: int
    undo: bool = False


@dataclass(frozen=True, slots=True)
class ClaimRefused(Occurrence):
    """The guard let nothing start: busy, stop, not due, another generation, unknown."""

    event = "claim.refused"
    reply: str
    status: str | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyHit(Occurrence):
    """The work had been done before; source: `commit` (the store has the result) or `effect` (its effect row has)."""

    event = "idempotency.hit"
    source: Literal["commit", "effect"]
    fence: int


@dataclass(frozen=True, slots=True)
class StepCommitted(Occurrence):
    """The result of a step is stored; freed: steps that waited only for it."""

    event = "step.committed"
    fence: int
    freed: int
    last: bool


@dataclass(frozen=True, slots=True)
class CommitFenced(Occurrence):
    """A result was thrown away, because the claim it came from is not the current one."""

    event = "commit.fenced"
    level = "warning"
    fence: int
    current: int


@dataclass(frozen=True, slots=True)
class StepRetry(Occurrence):
    """An attempt failed and the step is tried again at a time (ms since epoch)."""

    event = "step.retry"
    level = "warning"
    kind: str
    attempt: int
    at_ms: int
    where: str | None = None


@dataclass(frozen=True, slots=True)
class StepHandedBack(Occurrence):
    """An attempt was given back uncounted (snooze, unknown action, ledger away, shutdown)."""

    event = "step.handed_back"
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class StepFailed(Occurrence):
    """A step has failed for good; exhausted: it would be tried again, had it an attempt left."""

    event = "step.failed"
    level = "error"
    kind: str
    attempt: int
    where: str | None = None
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class StepInDoubt(Occurrence):
    """Nobody knows whether the effect of a step has happened."""

    event = "step.in_doubt"
    level = "error"
    kind: str
    attempt: int
    where: str | None = None
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class LeaseLost(Occurrence):
    """The holder of a claim found that somebody else had ended it."""

    event = "lease.lost"
    level = "warning"
    fence: int


@dataclass(frozen=True, slots=True)
class LeaseNotRenewed(Occurrence):
    """The store did not answer; the holder tries again until the lease is over."""

    event = "lease.not_renewed"
    level = "warning"
    fence: int
    kind: str


@dataclass(frozen=True, slots=True)
class StopAsked(Occurrence):
    """The attempt was told to stop: the run is ending, its time is up, or the worker is shutting down."""

    event = "stop.asked"
    reason: str


@dataclass(frozen=True, slots=True)
class ClaimEnded(Occurrence):
    """A claim whose holder is gone was ended by somebody else; by: parent or a supervisor's name.

    noticed: nobody had noticed the loss before; overdue: the holder had used up its time; exhausted: it was the last
    attempt.
    """

    event = "claim.ended"
    level = "warning"
    by: str
    fence: int
    verdict: str | None = None
    of: Literal["step", "undo", "plan"] = "step"
    noticed: bool = False
    overdue: bool = False
    exhausted: bool = False


# ---- effect rows


@dataclass(frozen=True, slots=True)
class EffectOpened(Occurrence):
    """An effect may start now."""

    event = "effect.opened"
    fence: int


@dataclass(frozen=True, slots=True)
class EffectLanded(Occurrence):
    """An effect has happened, and the ledger knows."""

    event = "effect.landed"
    fence: int


@dataclass(frozen=True, slots=True)
class EffectRefused(Occurrence):
    """The row is closed to this fence: a later claim has taken over."""

    event = "effect.refused"
    level = "warning"
    fence: int
    closed_to: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class EffectClosed(Occurrence):
    """No claim up to this fence can start or report its effect any more; state: none, open or landed."""

    event = "effect.closed"
    fence: int
    state: str


# ---- messages, supervisors, the end of a run


@dataclass(frozen=True, slots=True)
class Published(Occurrence):
    """Messages went to the broker."""

    event = "dispatch.published"
    level = "debug"
    messages: int


@dataclass(frozen=True, slots=True)
class PublishFailed(Occurrence):
    """Nothing is lost: what was to be published is due, and a supervisor publishes it."""

    event = "dispatch.failed"
    level = "warning"
    messages: int
    kind: str


@dataclass(frozen=True, slots=True)
class PassDone(Occurrence):
    """One pass of a supervisor that found something to do."""

    event = "supervisor.pass"
    supervisor: str
    duration_ms: int
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassFailed(Occurrence):
    """What the pass had taken stays due and is taken again."""

    event = "supervisor.failed"
    level = "error"
    supervisor: str
    kind: str
    where: str | None = None


@dataclass(frozen=True, slots=True)
class RunSettled(Occurrence):
    """A run has ended."""

    event = "run.settled"
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class LetterWritten(Occurrence):
    """A dead letter lies in the ledger."""

    event = "letter.written"
    level = "warning"
    kind: str
    letter_id: str


@dataclass(frozen=True, slots=True)
class ServiceRefused(Occurrence):
    """A process stops, because going on could break a promise. hint: the mend."""

    event = "service.refused"
    level = "critical"
    kind: str
    message: str
    hint: str | None = None


def kind(error: BaseException) -> str:
    """One stable word for an error: ours have one, of others it is their class."""
    return error.kind if isinstance(error, MandorError) else type(error).__name__


def where(error: BaseException) -> str | None:
    """`file.py:12 function` of the innermost frame: enough to find the fault, nothing of the data it failed on."""
    traceback = error.__traceback__
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f"{PurePath(code.co_filename).name}:{traceback.tb_lineno} {code.co_name}"
