"""What the store answers: words with fields. Times are milliseconds of the server's clock."""

from dataclasses import dataclass
from typing import Literal

from schemas.ids import RunRef

Duty = Literal["leases", "dispatches", "retries", "deadlines", "settles", "undos", "waits"]
DUTIES: tuple[Duty, ...] = ("leases", "dispatches", "retries", "deadlines", "settles", "undos", "waits")


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One message that is to be published: ids only. limit_ms: the time limit of one attempt, grace not included;
    fence: of the attempt that a message of kind late is about.
    """

    kind: Literal["plan", "step", "undo", "close", "late", "settle"]
    ref: RunRef
    generation: int
    step_id: str | None = None
    index: int = 0
    queue: str = ""
    limit_ms: int = 0
    fence: int = 0


Publish = tuple[Dispatch, ...]


@dataclass(frozen=True, slots=True)
class Created:
    """The run is new. publish: the plan message."""

    version: int
    publish: Publish


@dataclass(frozen=True, slots=True)
class Exists:
    """The run was accepted before, with the same submission."""

    status: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """The run exists with another submission."""


@dataclass(frozen=True, slots=True)
class PlanGranted:
    """The right to plan. limit_ms: how long one call of the planner may take."""

    fence: int
    attempt: int
    lease_ms: int
    lease_end: int
    limit_ms: int
    stop_grace_ms: int
    policy_text: str
    policy_hash: str
    context_hash: str
    version: int
    session_id: str | None
    request_id: str
    planner: str


@dataclass(frozen=True, slots=True)
class Granted:
    """The right to run one attempt. inputs: step id -> JSON text of the results that the params name."""

    fence: int
    attempt: int
    lease_ms: int
    lease_end: int
    limit_ms: int
    stop_grace_ms: int
    effect: str
    index: int
    token: str
    step_text: str
    inputs: dict[str, str]
    policy_text: str
    policy_hash: str
    context_hash: str
    plan_id: str
    version: int
    session_id: str | None
    request_id: str
    attempt_group: int


@dataclass(frozen=True, slots=True)
class UndoGranted:
    """The right to undo a step once. step: as when it was granted to be done, with the undo's own fence and attempt.

    done_text: JSON text of its result, None for a step whose effect is in doubt. done_fence: of its last attempt.
    """

    step: Granted
    done_text: str | None
    done_fence: int


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody holds the lease, or nobody has ended it yet."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The step was committed before, under this fence."""

    fence: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The run is not in the state this asks for: nothing may start."""

    status: str


@dataclass(frozen=True, slots=True)
class NotDue:
    """What was asked for is not the next move from this status."""

    status: str


@dataclass(frozen=True, slots=True)
class OtherGeneration:
    """The run has been started over since the message was sent."""

    generation: int


@dataclass(frozen=True, slots=True)
class UnknownRun:
    """No such run (or step) here."""


@dataclass(frozen=True, slots=True)
class CloseFirst:
    """The last claim is proven dead; its effect row must be closed and the claim expired before a new one."""

    fence: int
    effect: str
    token: str


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The last attempt to plan lost its worker. Its claim is to be ended."""

    attempts: int


@dataclass(frozen=True, slots=True)
class InputsTooLarge:
    """The results its params name exceed the cap: the step has failed."""

    bytes: int
    limit: int
    publish: Publish


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease runs until then."""

    lease_end: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Somebody ended the claim: whatever the holder does now is refused."""


@dataclass(frozen=True, slots=True)
class StopNow:
    """The claim is still held, but its run is ending: stop at the next chance."""

    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The step is completed. last: nothing of the run moves any more without `settle`."""

    publish: Publish
    last: bool
    version: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another claim, or none, is the current one. Nothing was written."""

    current: int


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Tried again at that time. publish: steps that take the freed place meanwhile."""

    at_ms: int
    publish: Publish = ()


@dataclass(frozen=True, slots=True)
class Again:
    """The step is dispatched once more."""

    publish: Publish


@dataclass(frozen=True, slots=True)
class Failed:
    """The step has failed for good; its run is ending."""

    publish: Publish


@dataclass(frozen=True, slots=True)
class Skipped:
    """The run was ending; nothing of this step has happened."""

    publish: Publish


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Its effect may have happened; its run is ending."""

    publish: Publish


@dataclass(frozen=True, slots=True)
class UndoGivenUp:
    """The step could not be undone. A dead letter is owed; the other undos go on."""

    publish: Publish


@dataclass(frozen=True, slots=True)
class TooOften:
    """Handed back too often: the step has failed."""

    publish: Publish


@dataclass(frozen=True, slots=True)
class Ended:
    """The claim of that fence counts as lapsed, the death of its holder as proven."""

    fence: int


@dataclass(frozen=True, slots=True)
class Other:
    """The claim is somebody else's, or there is none."""


@dataclass(frozen=True, slots=True)
class NotLapsed:
    """The holder has renewed meanwhile."""

    lease_end: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """The plan is stored; the run is running."""

    publish: Publish
    total: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The plan is admitted already."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The run has ended as dead_lettered."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The run is closed. ended_at is the same however often it is asked."""

    status: str
    reason: str
    version: int
    generation: int
    ended_at: int


@dataclass(frozen=True, slots=True)
class Compensating:
    """Nothing of the run runs any more, and what its steps did is being undone. publish: the first undos."""

    publish: Publish


@dataclass(frozen=True, slots=True)
class Owing:
    """Nothing of the run runs any more, and what its steps did is to be undone, which has not begun."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something of the run still moves."""

    status: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The run has left `due`."""


@dataclass(frozen=True, slots=True)
class Republish:
    """The message is taken for lost."""

    publish: Publish
    checks: int


@dataclass(frozen=True, slots=True)
class Later:
    """The backlog is long, the message not lost: looked at again then."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Due:
    """A member of `due` whose time has come. step_id None: the run itself (its planning, deadline or end)."""

    ref: RunRef
    step_id: str | None


@dataclass(frozen=True, slots=True)
class Resting:
    """No pass ran for a while: holders get one lease to renew before anybody is reclaimed."""

    until_ms: int
