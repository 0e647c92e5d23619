"""What a run that is started over keeps: completed steps, as far as the ledger can show what they did, and the files of
its workspace.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from orchestrator import home
from orchestrator.errors import DecisionRefused
from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.views import StepState
from schemas.ids import RunRef
from schemas.states import EffectClass, StepStatus

# a pure step did nothing; an idempotent one may have gone without its row while the ledger was away
SHOWN: Final = frozenset({EffectClass.TRANSACTIONAL, EffectClass.KEYED, EffectClass.ONCE})
WRITES_FILE: Final = "create_file"


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


def refuse_without_files(settings: Settings, store: Store, ref: RunRef, steps: Iterable[StepState]) -> None:
    """DecisionRefused if one of these completed steps wrote a file, and the run's workspace is gone.

    Looked for where workspaces must be in this very home: where the ledger is, too. A single file may have been moved
    or taken away by a later step, and is not missed here.
    """
    if settings.ledger_url or home.has_workspace(settings.home, ref.run_id):
        return
    for step in steps:
        if step.status == StepStatus.COMPLETED and step.action == WRITES_FILE:
            written = json.loads(store.views.result(ref, step.id) or "{}").get("path", "a file")
            message = f"step {step.id} is completed, but the workspace in which it wrote {written} is gone"
            hint = f"do it again with --from {step.id}, or submit the run again"
            raise DecisionRefused(message, path="run_id", hint=hint)
