"""Facts about making a plan: planners, models, answers, the door's verdict. Of the kind of telemetry.events."""

from dataclasses import dataclass

from orchestrator.telemetry.events import Occurrence


@dataclass(frozen=True, slots=True)
class PlannerCalled(Occurrence):
    """A planner starts to think."""

    event = "planner.called"
    planner: str
    attempt: int


@dataclass(frozen=True, slots=True)
class PlannerAnswered(Occurrence):
    """A planner gave a text, which admission has yet to judge."""

    event = "planner.answered"
    planner: str
    duration_ms: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AnswerRefused(Occurrence):
    """The door refused a planner's answer, and the planner may mend it; number: 0 for its first answer."""

    event = "answer.refused"
    level = "warning"
    number: int
    issues: int
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelCalled(Occurrence):
    """A model answered; tokens are what its provider counted, 0 where it did not say."""

    event = "model.called"
    provider: str
    model: str
    finish_reason: str
    duration_ms: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ModelFailed(Occurrence):
    """A model was asked and gave no answer."""

    event = "model.failed"
    level = "warning"
    provider: str
    kind: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class PlannerFailed(Occurrence):
    """A planner raised or ran out of time."""

    event = "planner.failed"
    level = "warning"
    planner: str
    kind: str
    will_retry: bool
    where: str | None = None
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class PlanAdmitted(Occurrence):
    """A plan passed the door; extracted: it was found inside other text."""

    event = "plan.admitted"
    plan_id: str
    steps: int
    extracted: bool


@dataclass(frozen=True, slots=True)
class PlanRejected(Occurrence):
    """A planner's answer was refused; letter_id: where its whole story is kept."""

    event = "plan.rejected"
    level = "warning"
    issues: int
    paths: tuple[str, ...]
    letter_id: str | None = None
    kinds: tuple[str, ...] = ()
