"""Dead letters: first the ledger, which keeps the whole of it, then the bell on the queue, which says it is there."""

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from orchestrator import dispatch
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.ids import RunRef


def write(
    app: App,
    ledger: Ledger,
    kind: DeadLetterKind,
    reason: str,
    dedup_key: str,
    content: Mapping[str, Any],
    ref: RunRef | None = None,
    step_id: str | None = None,
) -> str:
    """Keep a letter and ring; answers its id.

    dedup_key: what was given up on, and in which generation; a repeat keeps the first letter and rings again. Raises
    what the ledger raises; a bell that cannot be rung is only logged, for the letter is what counts.
    """
    letter = DeadLetter(
        id=str(uuid4()),
        kind=kind,
        run_id=ref.run_id if ref else None,
        step_id=step_id,
        reason=reason,
        created_at=time.time_ns() // 1_000_000,
        content=dict(content),
    )
    letter_id = ledger.write_letter(letter, dedup_key)
    emit(events.LetterWritten(kind.value, letter_id))
    dispatch.ring(app, letter.model_copy(update={"id": letter_id}).bell())
    return letter_id
