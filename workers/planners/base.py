"""What every kind of planner gives back."""

from collections.abc import Mapping
from dataclasses import dataclass

from workers.outcomes import PermanentError


@dataclass(frozen=True, slots=True)
class Answer:
    """raw: the planner's text, unjudged. The rest is None where no model was asked.

    finish_reason: why the model stopped, in its provider's word; model: which one answered; prompt: what it was sent,
    by role; tokens: what was counted, `input` and `output`.
    """

    raw: str
    finish_reason: str | None = None
    model: str | None = None
    prompt: Mapping[str, str] | None = None
    tokens: Mapping[str, int] | None = None


class PlannerInputInvalid(PermanentError):
    """The submission's context does not fit the planner's model. `path` begins with `context`."""

    kind = "planner_input_invalid"
