"""The door. Whatever a planner answers becomes an admitted plan here, or a refusal that says what and where.

    validate_handoff(raw, …) -> Admission      a planner's answer, with all that may surround a plan
    readmit(text, …) -> Admission              a plan that was admitted and stored before
    PayloadDrift                               the only thing either raises

Both are pure: bytes, a frozen catalogue, a policy and a hash decide. Time and memory grow with the length of the
answer only.
"""

from dataclasses import dataclass, replace
from typing import Any

from orchestrator.admission.catalogue import ActionSpec, Catalogue
from orchestrator.admission.check import Draft, StepDraft, code_fault, read_plan, read_text, written_out
from orchestrator.admission.fields import CommandLine, PlainUUID, Referable, WorkspacePath
from orchestrator.admission.refusal import MAX_ISSUES, Kind, PayloadDrift
from schemas.canonical import NotCanonical, canonical_text, sha256_hex
from schemas.ids import step_token
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


@dataclass(frozen=True, slots=True)
class Admission:
    """An admitted plan. plan_hash: SHA-256 of plan_text, which is canonical. extracted: it was wrapped in something."""

    plan: ExecutionPlan
    steps: tuple[AdmittedStep, ...]
    plan_text: str
    plan_hash: str
    extracted: bool

    @property
    def plan_id(self) -> str:
        """The planner's own name for the plan. Models repeat themselves: nothing may be keyed by it."""
        return self.plan.plan_id


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
    found, value = read_text(raw, max_bytes, finish_reason)
    draft = read_plan(found.text, value, catalogue, policy.max_steps)
    resolved = draft.judge(policy, context_hash)
    return _admission(draft, resolved, found.extracted)


def _admission(draft: Draft, resolved: tuple[ResolvedStep, ...], extracted: bool) -> Admission:
    plan_id = draft.plan.plan_id
    steps = tuple(_admitted(plan_id, step, one) for step, one in zip(resolved, draft.steps, strict=True))
    text = _plan_text(draft.plan, steps)
    return Admission(_resolved_plan(draft.plan, steps), steps, text, sha256_hex(text), extracted)


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


def _resolved_plan(plan: ExecutionPlan, steps: tuple[AdmittedStep, ...]) -> ExecutionPlan:
    written = tuple(Step(action=step.action, params=step.params, id=step.id, needs=step.needs) for step in steps)
    return plan.model_copy(update={"steps": written})


def _plan_text(plan: ExecutionPlan, steps: tuple[AdmittedStep, ...]) -> str:
    """The canonical plan. Its steps are canonical already, and its own keys are put in canonical order here."""
    head = canonical_text({"context_hash": plan.context_hash, "plan_id": plan.plan_id})
    return f'{head[:-1]},"steps":[{",".join(step.text for step in steps)}]}}'
