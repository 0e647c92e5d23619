"""What a run that is started over keeps: completed steps, as far as the ledger can show what they did, and the files of
its workspace.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from orchestrator import home
from orchestrator.errors import DecisionRefused
from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.startover import REPEATED
from orchestrator.store import Store
from orchestrator.store.new import plan_from_text
from orchestrator.store.views import StepState
from schemas.ids import RunRef
from schemas.states import EffectClass, StepStatus

# a pure step did nothing; an idempotent one may have gone without its row while the ledger was away
SHOWN: Final = frozenset({EffectClass.TRANSACTIONAL, EffectClass.KEYED, EffectClass.ONCE})
WRITES_FILE: Final = "create_file"
WITH_FILES: Final = {WRITES_FILE: "wrote", "run_command": "ran"}


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


def refuse_without_files(
    settings: Settings, ledger: Ledger, store: Store, ref: RunRef, steps: Iterable[StepState]
) -> None:
    """DecisionRefused if one of these completed steps worked in the run's workspace, and that is gone: by the ledger,
    or by what is to be seen here, where workspaces must be in this very home because the ledger is, too.

    A single file may have been moved or taken away by a later step, and is not missed here; nor is a workspace that a
    confined step of the users' own may never have opened.
    """
    run = store.views.run(ref)
    if run is None:
        return
    let_go = has_let_go(ledger, ref.run_id, run.generation)
    if not let_go and (settings.ledger_url or home.has_workspace(settings.home, ref.run_id)):
        return
    worked = _worked_with_files(ledger, ref.run_id, run.generation, steps)
    for step in (step for step in worked if let_go or step.action in WITH_FILES):
        message = f"step {step.id} is completed, but the workspace in which it {_what(store, ref, step)} is gone"
        hint = f"do it again with {_again(step)}, or submit the run again"
        raise DecisionRefused(message, path="run_id", hint=hint)


def step_without_files(ledger: Ledger, run_id: str, generation: int, steps: Iterable[StepState]) -> StepState | None:
    """The first of these completed steps that worked in the run's workspace, if the ledger knows that to be gone.

    Asked once the decision to start over is written down: from then on nobody lets the files go.
    """
    found = _worked_with_files(ledger, run_id, generation, steps)
    return next(found, None) if has_let_go(ledger, run_id, generation) else None


def has_let_go(ledger: Ledger, run_id: str, generation: int) -> bool:
    """Whether the files that the run had in this generation have gone. What it had before it has done again since."""
    return ledger.files.gone(run_id) == generation


def _worked_with_files(ledger: Ledger, run_id: str, generation: int, steps: Iterable[StepState]) -> Iterator[StepState]:
    """The completed ones that wrote there, or may have: what they do was said to be confined to it."""
    text = ledger.history.admitted_plan(run_id, generation)
    confined = {step.id for step in plan_from_text(text).steps if step.confined} if text else set()
    done = (step for step in steps if step.status == StepStatus.COMPLETED)
    return (step for step in done if step.action in WITH_FILES or step.id in confined)


def _what(store: Store, ref: RunRef, step: StepState) -> str:
    """`wrote report.txt`."""
    did = WITH_FILES.get(step.action, "worked")
    if step.action != WRITES_FILE:
        return did
    return f"{did} {json.loads(store.views.result(ref, step.id) or '{}').get('path') or 'a file'}"


def _again(step: StepState) -> str:
    """What has it done once more."""
    named = f"--from {step.id}"
    return named if EffectClass(step.effect) in REPEATED else f"{named} --new-key {step.id}"
