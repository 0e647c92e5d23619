"""A run from outside: what is submitted, and what is shown of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from schemas.base import Generation, Hash, Moment, RunId, StepId, Strict, listed
from schemas.callback import Callback
from schemas.canonical import MAX_DEPTH, NotCanonical, canonical_bytes, canonical_text, hash_of, parse_json, sha256_hex
from schemas.issues import Issue, Located, issues_of
from schemas.policy import PolicyRequest, Seconds
from schemas.states import RunStatus, StepStatus


@dataclass(frozen=True, slots=True)
class SubmissionLimits:
    """How large a submission may be, and which settings say so."""

    goal_bytes: int = 256 * 1024
    plan_bytes: int = 1024 * 1024
    goal_setting: str = "MANDOR_GOAL_BYTES"
    plan_setting: str = "MANDOR_PLAN_BYTES"


DEFAULT_LIMITS: Final = SubmissionLimits()


class SubmissionInvalid(ValueError):
    """A submission that is refused; `issues` has every reason, each with its path."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        super().__init__("; ".join(map(str, issues)))
        self.issues = tuple(issues)


Label = Annotated[str, Field(min_length=1, max_length=256)]
Status = Annotated[RunStatus, Field(strict=False)]
StepWord = Annotated[StepStatus, Field(strict=False)]
PlannerName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,127}\z")]


def _read_context(value: Any, info: ValidationInfo) -> Any:
    """The object, also where its text was sent: from here on nobody knows how that was spelt."""
    if value is None:
        return None
    if not isinstance(value, dict | str):
        raise Located("not_an_object", "a context is an object, or the JSON text of one")
    _check_goal_size(info.data.get("goal"), value, info.context)
    return context_object(value)


class Submission(Strict):
    """A request for a run: a goal for a planner, or a ready plan as JSON text.

    context: it may be sent as JSON text, and is what context_hash is about. deadline_s: shorthand for the policy's.
    callback: the URL that is told of the end; whether this installation posts there is judged where the run is
    accepted. The size limits are checked where a submission enters, by read_submission.
    """

    goal: Annotated[str, Field(min_length=1)] | None = None
    context: Annotated[dict[str, Any] | None, BeforeValidator(_read_context)] = None
    planner: PlannerName | None = None
    plan: Annotated[str, Field(min_length=1)] | None = None
    session_id: Label | None = None
    request_id: Label | None = None
    policy: PolicyRequest | None = None
    deadline_s: Seconds | None = None
    callback: Callback | None = None

    @field_validator("goal")
    @classmethod
    def _goal_fits(cls, value: str | None, info: ValidationInfo) -> str | None:
        _check_goal_size(value, None, info.context)
        return value

    @field_validator("plan")
    @classmethod
    def _plan_fits(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.context is not None:
            _check_size(len(value.encode()), info.context.plan_bytes, info.context.plan_setting)
        return value

    @model_validator(mode="after")
    def _one_way_to_a_plan(self) -> Self:
        if self.planner is None and self.plan is None:
            raise Located("planner_missing", "name a planner, or give a ready plan as `plan`", "planner")
        if self.planner is not None and self.plan is not None:
            raise Located("planner_and_plan", "a ready plan needs no planner; give one of the two", "planner")
        return self

    def context_value(self) -> dict[str, Any]:
        """The context as the planner gets it; no context is the empty object."""
        return self.context or {}

    def context_hash(self) -> str:
        """The hash a plan must carry to be admitted for this submission."""
        return hash_of(self.context_value())

    def document(self) -> dict[str, Any]:
        """What was sent, without what was left out, or said nothing."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "policy"}
        if self.policy is not None:
            fields["policy"] = self.policy.model_dump(mode="json", exclude_defaults=True)
        return _said(fields)


def read_submission(fields: Mapping[str, Any], limits: SubmissionLimits = DEFAULT_LIMITS) -> Submission:
    """The submission of a message's keyword arguments, or SubmissionInvalid.

    A limit that is exceeded is named together with the setting that says so.
    """
    try:
        return Submission.model_validate_json(canonical_bytes(dict(fields)), context=limits)
    except NotCanonical as refusal:
        raise SubmissionInvalid([Issue(refusal.path, refusal.kind, refusal.message)]) from None
    except ValidationError as refusal:
        raise SubmissionInvalid(issues_of(refusal)) from None


def submission_text(submission: Submission) -> str:
    """The submission as canonical JSON, as the ledger keeps it. Read it with Submission.model_validate_json."""
    return canonical_text(submission.document())


def submission_hash(submission: Submission) -> str:
    """What tells a repeated request from another one under the same request_id."""
    return sha256_hex(submission_text(submission))


def hash_of_kept(text: str) -> str:
    """The same of a submission that the ledger keeps. Older ones bear a context, and a hash, as it was spelt."""
    fields = json.loads(text)
    return hash_of(_said({**fields, "context": context_object(fields.get("context"))}))


def _said(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value != {}}


def context_object(context: dict[str, Any] | str | None) -> dict[str, Any]:
    """The object a context stands for, or NotCanonical."""
    if not isinstance(context, str):
        return context or {}
    value = parse_json(context, max_bytes=len(context) * 4, max_depth=MAX_DEPTH - 1)  # one less within a submission
    if not isinstance(value, dict):
        raise NotCanonical("not_an_object", "a context given as text is the JSON text of an object")
    return value


def _check_goal_size(goal: str | None, context: dict[str, Any] | str | None, limits: SubmissionLimits | None) -> None:
    """Goal and context share one limit. A stored submission, read back, is held to none."""
    if limits is None:
        return
    text = canonical_text(context) if isinstance(context, dict) else context or ""
    _check_size(len((goal or "").encode()) + len(text.encode()), limits.goal_bytes, limits.goal_setting)


def _check_size(size: int, limit: int, setting: str) -> None:
    if size > limit:
        raise Located("too_large", f"{size} bytes, at most {limit} are allowed; {setting} sets the limit")


class SubmitAnswer(Strict):
    """What a submission is answered with. created: false when the same request was there before."""

    run_id: RunId
    status: Status
    created: bool


class ErrorView(Strict):
    """Why a step failed. path: the param or setting it is about, where there is one."""

    kind: str
    message: str
    path: str | None


class StepView(Strict):
    """One step as `run show` prints it. status: the step's, or STALE while its lease has lapsed unnoticed.
    attempt_group: how often a person gave it a new key.
    """

    id: StepId
    index: int
    action: str
    status: StepWord | Literal["STALE"]
    attempt: int
    attempt_group: int
    fence: int | None
    step_token: str
    policy_hash: Hash | None
    needs: Annotated[tuple[StepId, ...], BeforeValidator(listed)]
    result: Any
    error: ErrorView | None
    dispatched_at: Moment | None
    started_at: Moment | None
    ended_at: Moment | None


class CompensationView(Strict):
    """The undoing of one step. attempt, fence: of the undoing, not of the step. error: of its last failed attempt."""

    step_id: StepId
    action: str
    status: StepWord
    attempt: int
    fence: int | None
    error: ErrorView | None
    started_at: Moment | None
    ended_at: Moment | None


class LetterView(Strict):
    """A dead letter of the run, for `mandor dlq show`. status: whether anybody has dealt with it."""

    id: str
    kind: str
    step_id: StepId | None
    reason: str
    status: str = "open"


class LimitsView(Strict):
    """The limits of an action's steps, as they were fixed when the plan was admitted."""

    attempts: int
    timeout_s: float
    lease_s: float
    backoff_s: float
    backoff_max_s: float


class ArtifactView(Strict):
    """A file of a run that was kept: its path in the workspace; place: host and folder of the copy. left_out: why there
    is none.
    """

    path: str
    place: str
    bytes: int
    sha256: Hash | None
    left_out: str | None = None


class CallbackView(Strict):
    """Telling the run's end to the URL that was submitted. state: waits_for_end, pending, delivered, disabled (answered
    with 410) or given_up; id: the same for each attempt. status_code, error: of the last attempt, unless its host has
    answered another since; due_at: of the next.
    """

    url: str
    state: str
    id: str | None = None
    generation: Generation | None = None
    attempts: int = 0
    status_code: int | None = None
    error: str | None = None
    due_at: Moment | None = None
    done_at: Moment | None = None


class RunView(Strict):
    """A run as `run show` prints it. version: grows by one with each transition. error: why no plan was made.

    ended_by: when it will have ended at the latest, while it has not. policy: as it was accepted, which is what
    policy_hash is of. limits: of each action in the plan, by the policy and what the action declares. artifacts: of the
    newest generation that left any. callback: of the newest end that the ledger knows.
    """

    run_id: RunId
    session_id: str | None
    request_id: str
    status: Status
    reason: str | None
    version: int
    generation: Generation
    plan_id: str | None
    plan_hash: Hash | None
    context_hash: Hash
    policy_hash: Hash
    created_at: Moment
    ended_at: Moment | None
    steps: Annotated[tuple[StepView, ...], BeforeValidator(listed)]
    compensations: Annotated[tuple[CompensationView, ...], BeforeValidator(listed)] = ()
    dead_letters: Annotated[tuple[LetterView, ...], BeforeValidator(listed)] = ()
    error: ErrorView | None = None
    ended_by: Moment | None = None
    policy: dict[str, Any] = Field(default_factory=dict)
    limits: dict[str, LimitsView] = Field(default_factory=dict)
    artifacts: Annotated[tuple[ArtifactView, ...], BeforeValidator(listed)] = ()
    callback: CallbackView | None = None


class RunLine(Strict):
    """A run as `run list` prints it. source: who said the status; the ledger knows a run's beginning and end only."""

    run_id: RunId
    status: Status
    reason: str | None
    planner: str | None
    session_id: str | None
    request_id: str
    generation: Generation
    created_at: Moment
    ended_at: Moment | None
    source: Literal["store", "ledger"]


class EventView(Strict):
    """One transition of a run, a line of `run events`. steps: those it moved; details: what else is known of it."""

    version: int
    at: Moment
    event: str
    step_id: StepId | None
    attempt: int | None
    fence: int | None
    worker_id: str | None
    policy_hash: Hash | None
    steps: Annotated[tuple[StepId, ...], BeforeValidator(listed)] = ()
    details: dict[str, str] = Field(default_factory=dict)
