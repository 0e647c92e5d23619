"""Dead letters: first the ledger, which keeps the whole of it, then the bell on the queue, which says it is there."""

import base64
import time
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from orchestrator import dispatch
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit
from schemas.canonical import sha256_hex
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.ids import RunRef

SHOWN_BYTES: Final = 64 * 1024


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


def unreadable(app: App, ledger: Ledger, queue: str, headers: Mapping[str, Any], body: str | bytes, reason: str) -> str:
    """Keep a message that no task can be given; answers the letter's id. Delivered again, it is the same letter."""
    raw = body if isinstance(body, bytes) else body.encode("utf-8", "surrogateescape")
    content = {"queue": queue, "headers": repr(dict(headers))[:SHOWN_BYTES], "bytes": len(raw), **_shown(raw)}
    name = sha256_hex(f"{headers.get('id')} {sha256_hex(raw)}")
    return write(app, ledger, DeadLetterKind.MESSAGE, reason, f"message:{name}", content)


def _shown(raw: bytes) -> dict[str, str]:
    """The beginning of a body: as text where it is text."""
    start = raw[:SHOWN_BYTES]
    try:
        return {"body": start.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(start).decode()}
