"""What goes into the ledger and what comes out of it. Times are milliseconds since the epoch."""

from dataclasses import dataclass

from schemas.dead_letter import DeadLetterKind, DeadLetterStatus
from schemas.run import hash_of_kept
from schemas.states import RunStatus


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """All that is needed to build a run again from nothing.

    session: the run's session key (16 hex digits or "-"); submission_text, policy_text: canonical JSON;
    submission_hash: of what the submission says; deadline_ms: relative to acceptance; planner: None for a ready plan;
    namespace: of the installation that accepted it, empty where that was not noted yet; callback: the URL that is
    told of its end.
    """

    run_id: str
    session: str
    session_id: str | None
    request_id: str
    principal: str
    submission_hash: str
    submission_text: str
    policy_text: str
    policy_hash: str
    context_hash: str
    deadline_ms: int
    planner: str | None
    namespace: str
    callback: str | None


@dataclass(frozen=True, slots=True)
class LedgerRun(AcceptedRun):
    """A run as the ledger knows it. version: of its end, 0 before; plan_hash: of its newest plan."""

    accepted_at: int
    generation: int
    status: RunStatus
    reason: str | None
    version: int
    ended_at: int | None
    plan_hash: str | None

    def is_of(self, submission_hash: str) -> bool:
        """Whether it was submitted with the content of this hash. Its own may be of an older way to hash."""
        return submission_hash == self.submission_hash or submission_hash == hash_of_kept(self.submission_text)


@dataclass(frozen=True, slots=True)
class ListedRun:
    """What a list tells of a run."""

    run_id: str
    session: str
    session_id: str | None
    request_id: str
    planner: str | None
    accepted_at: int
    generation: int
    status: RunStatus
    reason: str | None
    ended_at: int | None


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are looked for; None asks for nothing. ended: those that have an end, or (False) that have none.

    status: of an end; since, until: accepted at or after, before; action: of any of the run's plans; error: kind of an
    error that the run ended with; namespace: of whose runs.
    """

    ended: bool | None = None
    status: RunStatus | None = None
    session_id: str | None = None
    planner: str | None = None
    action: str | None = None
    error: str | None = None
    since: int | None = None
    until: int | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class ListedLetter:
    """What a list tells of a dead letter. fingerprint: the same for those that say the same."""

    id: str
    kind: DeadLetterKind
    run_id: str | None
    step_id: str | None
    reason: str
    created_at: int
    status: DeadLetterStatus
    fingerprint: str
    action: str | None
    planner: str | None
    session_id: str | None


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are looked for; None asks for nothing. since, until: written at or after, before; namespace: of
    whose letters.
    """

    kind: DeadLetterKind | None = None
    status: DeadLetterStatus | None = None
    fingerprint: str | None = None
    action: str | None = None
    planner: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    since: int | None = None
    until: int | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters that say the same."""

    fingerprint: str
    count: int
    newest_at: int
    oldest_at: int
    newest: ListedLetter


@dataclass(frozen=True, slots=True)
class LetterDecision:
    """What a person decided about a letter. kind: replay or drop; details_text: a JSON object of how it is done;
    namespace: of the installation that carries it out; outcome: what came of it, None before.
    """

    id: str
    letter_id: str
    namespace: str
    kind: str
    details_text: str | None
    made_by: str
    reason: str | None
    created_at: int
    outcome: str | None = None
    done_at: int | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Somebody has decided about the letter before: this. None: there is no such letter (any more)."""

    by: LetterDecision | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many runs and letters went."""

    runs: int
    letters: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """created: by this call. run: the row that stands; a caller that finds it ended must not start it again."""

    created: bool
    run: LedgerRun


@dataclass(frozen=True, slots=True)
class ConflictingSubmission:
    """The run's identity is taken by another submission."""

    run_id: str
    submission_hash: str


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """The plan of one generation. plan_text: canonical JSON; planner: its name, None for a ready plan."""

    run_id: str
    generation: int
    plan_hash: str
    plan_text: str
    planner: str | None
    created_at: int


@dataclass(frozen=True, slots=True)
class AdmittedPlan:
    """The steps of a plan with limits and queues, as JSON, and for how long holders of them may act unheard."""

    plan_text: str
    silence_ms: int


@dataclass(frozen=True, slots=True)
class PlannerAnswer:
    """One answer of a planner, unjudged. number: 0 for the first of a generation, then one for each repair.

    raw_text: the answer as a JSON string, so that any text can be kept; details_text: a JSON object of what is known
    about how it came to be (prompt, model, tokens).
    """

    run_id: str
    generation: int
    number: int
    planner: str
    raw_text: str
    details_text: str
    created_at: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person ordered, in which generation of the run; outcome is what the store answered, None before.

    step_id: the step it is about, if it is about one; details_text: a JSON object of what else the order says.
    """

    id: str
    run_id: str
    generation: int
    kind: str
    step_id: str | None
    details_text: str | None
    made_by: str
    reason: str | None
    created_at: int
    outcome: str | None
    done_at: int | None


@dataclass(frozen=True, slots=True)
class DecisionOver:
    """The decision has been carried out, or never was there: nothing was written."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The memory the state store must remember: another epoch there means that it forgot."""

    namespace: str
    epoch: str
    shards: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its version; data_text: a JSON object."""

    entity_id: str
    version: int
    data_text: str
    updated_at: int


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One step's change of a record; before_text: the object it found, None where there was none; undone_version: the
    version that took the change back, None while it stands."""

    run_id: str
    step_id: str
    entity_id: str
    version_before: int
    version_after: int
    before_text: str | None
    undone_version: int | None
    created_at: int
