"""What a planner works with: the goal, its context, and the means to write a plan down."""

import math
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python

from orchestrator.admission.catalogue import Catalogue
from orchestrator.admission.repair import Refusal
from schemas.issues import issues_of
from schemas.plan import ExecutionPlan, Step
from schemas.policy import Policy
from workers.outcomes import PermanentError


class PlanMistake(PermanentError):
    """Planner code that wrote something that cannot be a plan. `path` is the argument or param at fault."""

    kind = "plan_mistake"


@dataclass(frozen=True)
class PlanContext:
    """One call of a planner. context_text: the run's initial context as JSON; context_hash: of its canonical form.

    catalogue: the actions there are. repair: the answer that was refused last, for planners that declare `repairs`;
    None for a first answer. call_key names this call, the same when it is repeated after a crash: what the provider
    of a model may de-duplicate by. until is the end of the time, on the clock of `time.monotonic`.
    """

    run_id: str
    session_id: str | None
    goal: str | None
    context_text: str
    context_hash: str
    policy: Policy
    catalogue: Catalogue = field(default_factory=Catalogue)
    repair: Refusal | None = None
    call_key: str = ""
    until: float = math.inf

    def seconds_left(self) -> float:
        """How long the planner may still take."""
        return max(0.0, self.until - time.monotonic())

    @cached_property
    def context(self) -> Any:
        """The initial context, parsed; None where the submission had none."""
        return from_json(self.context_text)

    def plan(self, *steps: Any) -> ExecutionPlan:
        """A plan of these steps, each made by `step`, for this run's context, under a new plan id."""
        for place, one in enumerate(steps):
            if not isinstance(one, Step):
                message = f"argument {place + 1} is a {type(one).__name__}, not a step"
                raise PlanMistake(message, path=f"steps.{place}", hint='build it with step("action.name", …)')
        if not steps:
            raise PlanMistake(
                "a plan has at least one step", path="steps", hint="raise PermanentError to refuse a goal"
            )
        return ExecutionPlan(plan_id=str(uuid.uuid4()), context_hash=self.context_hash, steps=steps)


def step(
    action: str,
    params: Mapping[str, Any] | BaseModel | None = None,
    /,
    *,
    id: str | None = None,  # noqa: A002  (the plan's own word)
    needs: Iterable[str] | None = None,
    **fields: Any,
) -> Step:
    """One step of a plan: `step("payments.charge", id="charge", needs=["check"], card=card, cents=990)`.

    params: instead of, or under, the keyword params; for those that are called `id` or `needs`. needs left out: the
    step waits for the one before it; `needs=[]`: for none. Values may be models, UUIDs, dates and whatever else has
    a plain JSON form. Raises PlanMistake.
    """
    if isinstance(needs, str):
        raise PlanMistake("needs is a text", path="needs", hint=f"write needs=[{needs!r}]")
    given: dict[str, Any] = {"action": action, "params": {**_given(params), **_plain(fields)}}
    if id is not None:
        given["id"] = id
    if needs is not None:
        given["needs"] = tuple(needs)
    try:
        return Step.model_validate(given)
    except ValidationError as refusal:
        first = issues_of(refusal)[0]
        hint = 'for example step("payments.charge", id="charge", needs=["check"], cents=990)'
        raise PlanMistake(f"step({action!r}): {first.message}", path=first.path, hint=hint) from None


def _given(params: Mapping[str, Any] | BaseModel | None) -> dict[str, Any]:
    if isinstance(params, BaseModel):
        return params.model_dump(mode="json", by_alias=True)
    return _plain(params or {})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in values.items():
        try:
            plain[key] = to_jsonable_python(value, by_alias=True)
        except PydanticSerializationError as wrong:
            raise PlanMistake(str(wrong), path=f"params.{key}", hint="pass values that JSON can carry") from None
    return plain
