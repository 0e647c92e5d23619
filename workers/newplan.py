"""An admitted plan as the store takes it: each step with its queue and its limits, fixed from here on. Pure."""

from orchestrator import names
from orchestrator.admission import Admission, AdmittedStep
from orchestrator.admission.catalogue import ActionSpec
from orchestrator.settings import Settings
from orchestrator.store.new import NewPlan, NewStep
from schemas.policy import ActionLimits, Policy

STEPS_QUEUE = "steps"


def new_plan(admission: Admission, policy: Policy, settings: Settings) -> NewPlan:
    """The plan under the run's policy."""
    return NewPlan(
        plan_id=admission.plan_id,
        plan_hash=admission.plan_hash,
        max_parallel=policy.max_parallel,
        inputs_bytes=policy.inputs_bytes,
        steps=tuple(_new_step(step, policy, settings) for step in admission.steps),
    )


def limits_of(spec: ActionSpec, policy: Policy) -> ActionLimits:
    """An action's limits under a policy."""
    return policy.limits_for(spec.name, spec.limits)


def _new_step(step: AdmittedStep, policy: Policy, settings: Settings) -> NewStep:
    spec = step.spec
    limits = limits_of(spec, policy)
    return NewStep(
        id=step.id,
        index=step.index,
        action=step.action,
        effect=spec.effect.value,
        text=step.text,
        token=step.token,
        needs=step.needs,
        refs=step.refs,
        queue=names.queue(settings.prefix, spec.queue or STEPS_QUEUE),
        max_attempts=limits.attempts,
        lease_ms=_ms(limits.lease_s),
        limit_ms=_ms(limits.timeout_s),
        backoff_ms=_ms(limits.backoff_s),
        backoff_max_ms=_ms(limits.backoff_max_s),
        approval=spec.name in policy.approvals,
        probe=spec.has_probe,
        confined=spec.confined is not False,
        compensation=spec.has_compensation,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
