"""What the steps of a plan are good for: which of them a harm can be done to."""

from collections.abc import Sequence
from typing import Final

from orchestrator.store.views import StepState
from schemas.policy import policy_of
from schemas.states import EffectClass
from workers import undo
from workers.registry import registry

OPENED_FIRST: Final = (EffectClass.KEYED, EffectClass.ONCE)  # their rows are opened before they act


def needed_by(steps: Sequence[StepState], last: StepState) -> list[StepState]:
    """All that is certainly completed when this one begins."""
    by_id, found, ahead = {step.id: step for step in steps}, set[str](), list(last.needs)
    while ahead:
        step_id = ahead.pop()
        if step_id not in found:
            found.add(step_id)
            ahead += by_id[step_id].needs
    return [step for step in steps if step.id in found]


def beside(steps: Sequence[StepState], step: StepState) -> list[StepState]:
    """Those that become ready together with this one."""
    return [other for other in steps if other.id != step.id and other.needs == step.needs]


def has_effect(step: StepState) -> bool:
    """Whether it is to be undone, if its run is."""
    return step.effect != EffectClass.PURE


def has_undo(step: StepState) -> bool:
    """Whether its action can do so."""
    return has_effect(step) and registry.find_action(step.action).undo is not None


def is_confined(action: str, policy_text: str, result_text: str | None) -> bool:
    """Whether a step with this result may be undone by the end of its run's workspace."""
    return undo.is_confined(registry.find_action(action).spec, policy_of(policy_text), result_text)


def has_probe(step: StepState) -> bool:
    """Whether its action can be asked what became of an attempt that may have acted."""
    return step.effect in OPENED_FIRST and registry.find_action(step.action).ask is not None
