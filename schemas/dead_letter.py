"""Letters about what was given up on, and the short message that says there is one."""

import json
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, model_validator

from schemas.base import Moment, RunId, StepId, Strict

BELL_BYTES: Final = 2048
CUT_MARK: Final = "…"


class DeadLetterKind(StrEnum):
    """What was given up on."""

    MESSAGE = "message"
    SUBMISSION = "submission"
    PLAN = "plan"
    STEP = "step"
    UNDO = "undo"
    DELIVERY = "delivery"


class DeadLetterStatus(StrEnum):
    """What a person has done with the letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    DROPPED = "dropped"


LetterId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}\z")]


class DeadLetter(Strict):
    """The whole record, as the ledger keeps it."""

    id: LetterId
    kind: DeadLetterKind
    run_id: RunId | None
    step_id: StepId | None
    reason: str
    created_at: Moment
    status: DeadLetterStatus = DeadLetterStatus.OPEN
    content: dict[str, Any] = Field(default_factory=dict)


class Bell(Strict):
    """Says that a letter was written, and where. At most 2 KiB of JSON, whichever way JSON is written."""

    id: LetterId
    kind: DeadLetterKind
    run: RunId | None
    step: StepId | None
    reason: str
