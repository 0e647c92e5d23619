"""What the store is asked to keep: a run, and its plan's steps. Texts are canonical JSON, which it never reads."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be accepted. Texts are canonical JSON and never read by the store."""

    submission_hash: str
    request_id: str
    session_id: str | None
    principal: str
    policy_text: str
    policy_hash: str
    context_hash: str
    planner: str
    on_failure: str
    deadline_ms: int
    queue: str
    limit_ms: int
    stop_grace_ms: int
    lease_ms: int
    tries: int
    backoff_ms: int
    backoff_max_ms: int
    on_doubt: Literal["end", "wait"] = "end"
    wait_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step of an admitted plan. text: canonical JSON of the whole step; refs: steps whose results its params name;
    approval: a person must agree before it starts; probe: its action can be asked what became of a lost attempt;
    confined: what it does may lie in its run's workspace, by its declaration; compensation: something undoes what it
    did. The ledger alone keeps these two, and where they are not known they are False.
    """

    id: str
    index: int
    action: str
    effect: str
    text: str
    token: str
    needs: tuple[str, ...]
    refs: tuple[str, ...]
    queue: str
    max_attempts: int
    lease_ms: int
    limit_ms: int
    backoff_ms: int
    backoff_max_ms: int
    approval: bool = False
    probe: bool = False
    confined: bool = False
    compensation: bool = False


@dataclass(frozen=True, slots=True)
class NewPlan:
    """An admitted plan. inputs_bytes: cap on the sum of the results that one step names."""

    plan_id: str
    plan_hash: str
    max_parallel: int
    inputs_bytes: int
    steps: tuple[NewStep, ...]


def plan_as_text(plan: NewPlan) -> str:
    """A plan as the ledger keeps it, to build its run again."""
    return json.dumps(asdict(plan), ensure_ascii=False)


def plan_from_text(text: str) -> NewPlan:
    """The plan that was kept, perhaps by a newer release: what that says besides is left out."""
    said: dict[str, Any] = json.loads(text)
    steps = tuple(NewStep(**_tupled(_known(NewStep, step))) for step in said["steps"])
    return NewPlan(**_known(NewPlan, {**said, "steps": steps}))


def _known(kind: type[Any], said: dict[str, Any]) -> dict[str, Any]:
    return {field.name: said[field.name] for field in fields(kind) if field.name in said}


def _tupled(step: dict[str, Any]) -> dict[str, Any]:
    return {**step, "needs": tuple(step["needs"]), "refs": tuple(step["refs"])}


def step_words(step: NewStep) -> tuple[str | int, ...]:
    """One step as the sixteen words that admit_plan takes."""
    return (
        step.id,
        step.index,
        step.action,
        step.effect,
        step.text,
        step.token,
        ",".join(step.needs),
        ",".join(step.refs),
        step.queue,
        step.max_attempts,
        step.lease_ms,
        step.limit_ms,
        step.backoff_ms,
        step.backoff_max_ms,
        "needed" if step.approval else "",
        int(step.probe),
    )
