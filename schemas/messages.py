"""What travels on the queues after submission: names only, never content."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from schemas.base import Generation, RunId, SessionKey, StepId, Strict
from schemas.callback import ID
from schemas.ids import RunRef


class _RunMessage(Strict):
    run_id: RunId
    session: SessionKey
    generation: Generation

    @property
    def ref(self) -> RunRef:
        """Where the run's state lies."""
        return RunRef(self.run_id, self.session)


class PlanMessage(_RunMessage):
    """Plan this run."""


class StepMessage(_RunMessage):
    """Run this step."""

    step_id: StepId


class UndoMessage(StepMessage):
    """Undo what this step did."""


class CloseMessage(StepMessage):
    """Find out what became of this step's lost attempt."""


class LateMessage(StepMessage):
    """Undo what this step did after it had been undone. fence: of the attempt that did it."""

    fence: Annotated[int, Field(ge=1)]


class SettleMessage(_RunMessage):
    """See whether this run has ended."""


class TickMessage(Strict):
    """Look after everything once: there is nothing to say besides."""


class DeliverMessage(Strict):
    """Tell this end of a run, if it was tried so often and no oftener."""

    delivery_id: Annotated[str, Field(pattern=rf"^(?:{ID.pattern})\z")]
    attempts: Annotated[int, Field(ge=0)]


class ReceiptStatus(StrEnum):
    """Whether this delivery ran the step or found it done."""

    EXECUTED = "executed"
    CACHED = "cached"


class Receipt(Strict):
    """What a step's task returns, which is its part of the chord."""

    step_id: StepId
    status: ReceiptStatus
    fence: int
