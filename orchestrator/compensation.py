"""What a person is told of a step that could not be undone.

The letter is written by whoever hears that an undo was given up: the worker, or the supervisor that ended its claim. A
crash in between leaves none, and so a run that ends as compensation_failed is held back until the ledger has a letter
for each of its steps.
"""

import json
from dataclasses import dataclass
from typing import Any

from orchestrator import dead_letters
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.recalled import Reads
from orchestrator.store.views import StepState
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef, undo_key
from schemas.states import StepStatus


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What the letter says. dedup_key: the same for whoever writes it."""

    reason: str
    dedup_key: str
    content: dict[str, Any]


def was_given_up(step: StepState, fence: int) -> bool:
    """Whether this undo stands as given up. Whoever ended it may come to write its letter only when a person has had it
    begun again, for which there had to be one; about the undo that is under way by then nothing is to be told.
    """
    return step.status == StepStatus.COMPENSATION_FAILED and step.undo is not None and step.undo.fence == fence


def given_up(views: Reads, ref: RunRef, step: StepState) -> GivenUp:
    """The step, what it did, and why that could not be undone."""
    error = json.loads(views.undo_error(ref, step.id) or "{}")
    result, text = views.result(ref, step.id), views.step_text(ref, step.id)
    fence, attempts = (step.undo.fence, step.undo.attempt) if step.undo else (0, 0)
    content = {
        "action": step.action,
        "effect": step.effect,
        "in_doubt": result is None,
        "fence": fence,
        "attempts": attempts,
        "error": error,
        "idempotency_key": undo_key(ref.run_id, step.id, step.group),
        "step": json.loads(text) if text else None,
        "result": json.loads(result) if result else None,
    }
    return GivenUp(_reason(step, error), f"undo:{ref.run_id}:{step.id}:{fence}", content)


def _reason(step: StepState, error: dict[str, Any]) -> str:
    message = error.get("message") or "its worker was lost each time"
    if error.get("kind") == "no_compensation":
        return str(message)
    return f"{step.id} ({step.action}, {step.effect}) could not be undone: {message}"


def report(app: App, views: Reads, ledger: Ledger, ref: RunRef, step: StepState) -> None:
    """Write the letter of one step."""
    letter = given_up(views, ref, step)
    kind = DeadLetterKind.UNDO
    dead_letters.write(app, ledger, kind, letter.reason, letter.dedup_key, letter.content, ref, step.id)


def report_all(app: App, views: Reads, ledger: Ledger, ref: RunRef) -> None:
    """Write the letters that a run which ends as compensation_failed still owes."""
    letters = ledger.letters(dead_letters.MOST_LETTERS, kind=DeadLetterKind.UNDO, run_id=ref.run_id)
    written = {(letter.step_id, letter.content.get("fence")) for letter in letters}
    for step in views.steps(ref):
        fence = step.undo.fence if step.undo else 0
        if step.status == StepStatus.COMPENSATION_FAILED and (step.id, fence) not in written:
            report(app, views, ledger, ref, step)
