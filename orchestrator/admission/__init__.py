"""The door. Whatever a planner answers becomes an admitted plan here, or a refusal that says what and where.

    validate_handoff(raw, …) -> Admission      a planner's answer, with all that may surround a plan
    readmit(text, …) -> Admission              a plan that was admitted and stored before
    PayloadDrift                               the only thing either raises

Both are pure: bytes, a frozen catalogue, a policy and a hash decide. Time and memory grow with the length of the
answer only.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from orchestrator.admission.catalogue import ActionSpec, Catalogue
from orchestrator.admission.check import (
    MAX_DEPTH,
    Draft,
    StepDraft,
    code_fault,
    found_text,
    read_plan,
    read_value,
    written_out,
)
from orchestrator.admission.fields import CommandLine, PlainUUID, Referable, WorkspacePath
from orchestrator.admission.plain import PlainPlan, plainly
from orchestrator.admission.refusal import MAX_ISSUES, Kind, PayloadDrift
from schemas.canonical import NotCanonical, canonical_text, plain_text, sha256_hex
from schemas.ids import step_token, token_of
from schemas.issues import Issue
from schemas.plan import ExecutionPlan, ResolvedStep, Step
from schemas.policy import Policy

__all__ = [
    "MAX_ISSUES",
    "ActionSpec",
    "Admission",
    "AdmittedStep",
    "Catalogue",
    "CommandLine",
    "Issue",
    "Kind",
    "PayloadDrift",
    "PlainUUID",
    "Referable",
    "WorkspacePath",
    "readmit",
    "validate_handoff",
]


@dataclass(frozen=True, slots=True)
class AdmittedStep:
    """One step, nothing left to default.

    refs: ids of the steps whose results the params name; text: the step's canonical JSON; token: its fingerprint.
    """

    index: int
    id: str
    action: str
    params: dict[str, Any]
    needs: tuple[str, ...]
    refs: tuple[str, ...]
    text: str
    token: str
    spec: ActionSpec


@dataclass(frozen=True)
class Admission:
    """An admitted plan. extracted: it was wrapped in something. plan_id: the planner's own name for it; models repeat
    themselves, so nothing may be keyed by it.

    What can be refused no more is written out when it is first asked for.
    """

    plan_id: str
    context_hash: str
    extracted: bool
    written: Callable[[], tuple[AdmittedStep, ...]] = field(repr=False, compare=False)

    @cached_property
    def steps(self) -> tuple[AdmittedStep, ...]:
        """The steps, nothing left to default."""
        return self.written()

    @cached_property
    def plan_text(self) -> str:
        """The canonical plan. Its steps are canonical already, and its own keys are put in canonical order here."""
        head = plain_text({"context_hash": self.context_hash, "plan_id": self.plan_id})
        return f'{head[:-1]},"steps":[{",".join(step.text for step in self.steps)}]}}'

    @cached_property
    def plan_hash(self) -> str:
        """SHA-256 of plan_text."""
        return sha256_hex(self.plan_text)

    @property
    def plan(self) -> ExecutionPlan:
        """The plan as its model."""
        written = tuple(Step(action=one.action, params=one.params, id=one.id, needs=one.needs) for one in self.steps)
        return ExecutionPlan(plan_id=self.plan_id, context_hash=self.context_hash, steps=written)


def validate_handoff(
    raw: bytes | str,
    *,
    catalogue: Catalogue,
    policy: Policy,
    context_hash: str | None,
    finish_reason: str | None = None,
) -> Admission:
    """Admit a planner's answer or raise PayloadDrift.

    context_hash: of the run's context; None leaves the comparison out. finish_reason: why the model stopped, in its
    provider's word; None where there is no model.
    """
    return _admit(raw, policy.plan_bytes, catalogue, policy, context_hash, finish_reason)


def readmit(plan_text: str, *, catalogue: Catalogue, policy: Policy, context_hash: str | None) -> Admission:
    """Judge a stored plan again, by today's catalogue. Written out in full it may exceed the cap for answers."""
    return _admit(plan_text, None, catalogue, policy, context_hash, None)


def _admit(
    raw: bytes | str,
    max_bytes: int | None,
    catalogue: Catalogue,
    policy: Policy,
    context_hash: str | None,
    finish_reason: str | None,
) -> Admission:
    found = found_text(raw, max_bytes, finish_reason)
    plain = plainly(found, catalogue, policy, context_hash, MAX_DEPTH)
    if plain is not None:
        return Admission(plain.plan_id, plain.context_hash, found.extracted, lambda: _written_plainly(plain))
    draft = read_plan(found.text, read_value(found), catalogue, policy.max_steps)
    steps = _written(draft, draft.judge(policy, context_hash))
    return Admission(draft.plan.plan_id, draft.plan.context_hash, found.extracted, lambda: steps)


def _written_plainly(plan: PlainPlan) -> tuple[AdmittedStep, ...]:
    return tuple(_plain_step(plan.plan_id, step, spec) for step, spec in plan.steps())


def _plain_step(plan_id: str, step: ResolvedStep, spec: ActionSpec) -> AdmittedStep:
    fingerprint = sha256_hex(plain_text({"action": step.action, "params": step.params}))
    return AdmittedStep(
        index=step.index,
        id=step.id,
        action=step.action,
        params=step.params,
        needs=step.needs,
        refs=(),
        text=plain_text(step.as_json()),
        token=token_of(plan_id, step.index, fingerprint),
        spec=spec,
    )


def _written(draft: Draft, resolved: tuple[ResolvedStep, ...]) -> tuple[AdmittedStep, ...]:
    plan_id = draft.plan.plan_id
    return tuple(_admitted(plan_id, step, one) for step, one in zip(resolved, draft.steps, strict=True))


def _admitted(plan_id: str, step: ResolvedStep, draft: StepDraft) -> AdmittedStep:
    complete = replace(step, params=written_out(draft, step.index))
    try:
        text = canonical_text(complete.as_json(), exact_integers=True)
    except NotCanonical as fault:  # the given params have a canonical form, so it must be a default
        raise code_fault(draft, step.index, fault) from None
    return AdmittedStep(
        index=step.index,
        id=step.id,
        action=step.action,
        params=complete.params,
        needs=step.needs,
        refs=draft.result_ids(),
        text=text,
        token=step_token(plan_id, step.index, step.action, complete.params),
        spec=draft.spec,
    )
