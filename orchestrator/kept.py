"""What a run that is started over keeps: completed steps, as far as the ledger can show what they did."""

from collections.abc import Sequence
from typing import Final

from orchestrator.errors import DecisionRefused
from orchestrator.ledger import Ledger
from orchestrator.store.views import StepState
from schemas.states import EffectClass, StepStatus

# a pure step did nothing; an idempotent one may have gone without its row while the ledger was away
SHOWN: Final = frozenset({EffectClass.TRANSACTIONAL, EffectClass.KEYED, EffectClass.ONCE})


def refuse_lost(ledger: Ledger, run_id: str, steps: Sequence[StepState]) -> None:
    """DecisionRefused if a completed step's effect is not in the ledger, or is there of another action or other params:
    later steps would build on what nobody can show, and undo.
    """
    kept = [step for step in steps if step.status == StepStatus.COMPLETED and EffectClass(step.effect) in SHOWN]
    if not kept:
        return
    beyond = any(step.effect == EffectClass.TRANSACTIONAL for step in kept)
    landed = (ledger.transactional if beyond else ledger.effects).landed(run_id)
    for step in kept:
        if landed.get(step.id) != step.token:
            what = "of another action or other params" if step.id in landed else "gone"
            message = f"step {step.id} is completed, but its effect in the ledger is {what}"
            raise DecisionRefused(message, path="run_id", hint="was an older ledger restored? submit the run again")
