"""Letters about what was given up on, and the short message that says there is one."""

import json
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from schemas.base import Moment, RunId, StepId, Strict

BELL_BYTES: Final = 2048
REASON_BYTES: Final = 1536
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
Kind = Annotated[DeadLetterKind, Field(strict=False)]
Status = Annotated[DeadLetterStatus, Field(strict=False)]


def _writable(text: str) -> str:
    """Reasons quote other people's errors: halves of surrogate pairs, which no database takes, are shown as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


Reason = Annotated[str, BeforeValidator(lambda text: _writable(text) if isinstance(text, str) else text)]


def cut_reason(text: str) -> str:
    """As much of the reason as fits into a bell together with the longest other fields."""
    if len(_escaped(text)) <= REASON_BYTES:
        return text
    kept, size = 0, len(_escaped(CUT_MARK))
    for character in text:
        size += len(_escaped(character))
        if size > REASON_BYTES:
            break
        kept += 1
    return text[:kept] + CUT_MARK


def _escaped(text: str) -> str:
    """The text as the longest JSON writer puts it: everything beyond ASCII as escapes of six bytes."""
    return json.dumps(text)[1:-1]


class DeadLetter(Strict):
    """The whole record, as the ledger keeps it. content depends on the kind."""

    id: LetterId
    kind: Kind
    run_id: RunId | None
    step_id: StepId | None
    reason: Reason
    created_at: Moment
    status: Status = DeadLetterStatus.OPEN
    content: dict[str, Any] = Field(default_factory=dict)

    def bell(self) -> "Bell":
        """The message that announces the letter."""
        return Bell(id=self.id, kind=self.kind, run=self.run_id, step=self.step_id, reason=self.reason)


class Bell(Strict):
    """Says that a letter was written, and where. A reason that would make it longer than BELL_BYTES is cut."""

    id: LetterId
    kind: Kind
    run: RunId | None
    step: StepId | None
    reason: Annotated[Reason, AfterValidator(cut_reason)]
