"""The plan: what a planner emits, and the steps it means once defaults are filled in."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from schemas.base import ActionName, Hash, StepId, Strict, listed
from schemas.ids import PLAN_ID
from schemas.issues import Issue

MAX_STEPS: Final = 10_000
POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")


def _given(value: Any) -> Any:
    """Leaving a key out means its default; null means nothing the contract knows."""
    if value is None:
        raise ValueError("null is not allowed here; leave the key out")
    return value


def _plan_id(value: str) -> str:
    if PLAN_ID.fullmatch(value) is None:
        raise ValueError("not a UUID in its 36-character form")
    return value.lower()


def _pointer(value: str) -> str:
    if POINTER.fullmatch(value) is None:
        raise ValueError('not a JSON pointer: empty, or parts that each begin with "/"')
    return value


def _some(steps: "tuple[Step, ...]") -> "tuple[Step, ...]":
    # not a min_length: a step that is refused would be reported as a missing one, too
    if not steps:
        raise ValueError("a plan has at least one step")
    return steps


class ResultRef(Strict):
    """Stands for the result of an earlier step, or for the part of it that `path` points to."""

    result: StepId = Field(alias="$result")
    path: Annotated[str, AfterValidator(_pointer)]


class Step(Strict):
    """One step as written. id left out: s{index}. needs left out: the step before."""

    action: ActionName
    params: dict[str, Any]
    id: Annotated[StepId | None, BeforeValidator(_given)] = None
    needs: Annotated[tuple[str, ...] | None, BeforeValidator(listed), BeforeValidator(_given)] = None


class ExecutionPlan(Strict):
    """What a planner emits. context_hash names the context the plan was made for."""

    plan_id: Annotated[str, AfterValidator(_plan_id)]
    context_hash: Hash
    steps: Annotated[tuple[Step, ...], Field(max_length=MAX_STEPS), BeforeValidator(listed), AfterValidator(_some)]


@dataclass(frozen=True, slots=True)
class ResolvedStep:
    """A step with nothing left to default."""

    index: int
    id: str
    action: str
    params: dict[str, Any]
    needs: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The step as the canonical plan holds it."""
        return {"action": self.action, "params": self.params, "id": self.id, "needs": list(self.needs)}


class InvalidGraph(ValueError):
    """Steps whose ids or needs do not fit together; `issues` has every one of them."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        super().__init__("; ".join(map(str, issues[:5])))
        self.issues = tuple(issues)


def with_defaults(steps: Sequence[Step]) -> tuple[ResolvedStep, ...]:
    """Fill in ids and needs, or raise InvalidGraph. Linear in the number of steps and needs."""
    ids = [step.id or f"s{index}" for index, step in enumerate(steps)]
    issues = [*_repeated_ids(steps, ids), *_wrong_needs(steps, ids)]
    if issues:
        raise InvalidGraph(issues)
    return tuple(
        ResolvedStep(index, ids[index], step.action, step.params, _needs(step, index, ids))
        for index, step in enumerate(steps)
    )


def _needs(step: Step, index: int, ids: list[str]) -> tuple[str, ...]:
    if step.needs is not None:
        return step.needs
    return (ids[index - 1],) if index else ()


def _repeated_ids(steps: Sequence[Step], ids: list[str]) -> Iterator[Issue]:
    first: dict[str, int] = {}
    for index, step_id in enumerate(ids):
        other = first.setdefault(step_id, index)
        if other != index:
            kind = "which this step has by default" if steps[index].id is None else "which must be unique"
            yield Issue(f"steps.{index}.id", "duplicate_id", f"steps.{other} has the id {step_id!r} too, {kind}")


def _wrong_needs(steps: Sequence[Step], ids: list[str]) -> Iterator[Issue]:
    position = {step_id: index for index, step_id in reversed(list(enumerate(ids)))}
    for index, step in enumerate(steps):
        seen: set[str] = set()
        for place, need in enumerate(step.needs or ()):
            fault = _need_fault(need, position.get(need), index, seen)
            if fault:
                yield Issue(f"steps.{index}.needs.{place}", *fault)
            seen.add(need)


def _need_fault(need: str, target: int | None, index: int, seen: set[str]) -> tuple[str, str] | None:
    if target is None:
        return "unknown_step", f"no step has the id {need[:80]!r}"
    if target == index:
        return "needs_itself", "a step cannot wait for itself"
    if target > index:
        return "needs_later", f"{need!r} comes later; a step waits for earlier steps only"
    if need in seen:
        return "repeated_need", f"{need!r} is listed twice"
    return None
