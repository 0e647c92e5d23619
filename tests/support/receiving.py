"""What a worker does with a message, without Celery."""

from typing import Any

from orchestrator import dead_letters, progress
from orchestrator.ledger import Ledger
from orchestrator.store.replies import Dispatch
from schemas.messages import CloseMessage, LateMessage, PlanMessage, StepMessage, UndoMessage
from workers import closing, execution, late, planning, undo
from workers.services import Letter, Services


def receive(message: Dispatch, services: Services, app: Any) -> None:
    """One message of ours, to its end."""
    ref, generation = message.ref, message.generation
    of_run: dict[str, Any] = {"run_id": ref.run_id, "session": ref.session, "generation": generation}
    of_step = {**of_run, "step_id": message.step_id}
    match message.kind:
        case "plan":
            planning.plan_run(PlanMessage(**of_run), services)
        case "settle":
            progress.settle(app, services.store, services.ledger, ref, generation)
        case "step":
            execution.run_step(StepMessage(**of_step), services)
        case "undo":
            undo.run_undo(UndoMessage(**of_step), services)
        case "close":
            closing.close_lost(CloseMessage(**of_step), services)
        case _:
            late.undo_late(LateMessage(**of_step, fence=message.fence), services)


def write(letter: Letter, app: Any, ledger: Ledger) -> str:
    """A worker's letter, as workers.tasks has it written."""
    given = (letter.kind, letter.reason, letter.dedup_key, letter.content, letter.ref, letter.step_id)
    return dead_letters.write(app, ledger, *given)
