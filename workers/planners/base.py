"""What every kind of planner gives back."""

from dataclasses import dataclass

from workers.outcomes import PermanentError


@dataclass(frozen=True, slots=True)
class Answer:
    """raw: the planner's text, unjudged. finish_reason: why a model stopped; None where none was asked."""

    raw: str
    finish_reason: str | None = None


class PlannerInputInvalid(PermanentError):
    """The submission's context does not fit the planner's model. `path` begins with `context`."""

    kind = "planner_input_invalid"
