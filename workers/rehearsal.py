"""What the steps of an admitted plan would do, and under which terms, with nothing of it being done."""

from dataclasses import dataclass

from orchestrator.admission import Admission, AdmittedStep
from schemas.policy import ActionLimits, Policy
from workers.failures import message_of
from workers.newplan import STEPS_QUEUE, limits_of
from workers.registry import Registry


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """One step. approval: a person must agree before it starts. would: what its action says it would do, None where it
    says nothing; why: then, because of what; failed: it was asked, and its code raised.
    """

    step: AdmittedStep
    limits: ActionLimits
    queue: str
    approval: bool
    would: str | None
    why: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Said:
    would: str | None = None
    why: str | None = None
    failed: bool = False


def rehearse(plan: Admission, policy: Policy, registry: Registry) -> list[Rehearsed]:
    """Each step under this policy, in the plan's order."""
    return [_rehearsed(step, policy, registry) for step in plan.steps]


def _rehearsed(step: AdmittedStep, policy: Policy, registry: Registry) -> Rehearsed:
    said = _asked(step, registry)
    return Rehearsed(
        step=step,
        limits=limits_of(step.spec, policy),
        queue=step.spec.queue or STEPS_QUEUE,
        approval=step.action in policy.approvals,
        would=said.would,
        why=said.why,
        failed=said.failed,
    )


def _asked(step: AdmittedStep, registry: Registry) -> _Said:
    foresee = registry.find_action(step.action).foresee
    if foresee is None:
        return _Said(why="its action has no simulate")
    if step.refs:
        return _Said(why=f"its params name results of {', '.join(step.refs)}, which are not known yet")
    params = step.spec.reader.read(step.params, ()).params
    assert params is not None, "the door has read them"
    try:
        return _Said(would=str(foresee(params)))
    except (Exception, SystemExit) as fault:  # noqa: BLE001  (users' code; the others are told all the same)
        return _Said(why=f"its simulate raised {message_of(fault)}", failed=True)
