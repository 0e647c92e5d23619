"""Dead letters: first the ledger, which keeps the whole of it, then the bell on the queue, which says it is there."""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from orchestrator import dispatch
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.store import Store
from orchestrator.store.views import StepState
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit
from orchestrator.telemetry.text import WHOLE, redacted, without_secrets
from schemas.canonical import sha256_hex
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.ids import RunRef
from schemas.policy import OnDoubt
from schemas.states import EffectClass, Fact, RunStatus, StepStatus

SHOWN_BYTES: Final = 64 * 1024
SHOWN_ATTEMPTS: Final = 200
DEEPEST: Final = 100  # levels of a letter; below them is nothing that a person would read
MOST_LETTERS: Final = 10_000  # as many as a plan can have steps
UNKNOWN_ACTION: Final = "unknown_action"  # the kind of error of a step that no worker could run
_TOLD: Final = ("attempt", "fence", "worker_id", "outcome")


@dataclass(frozen=True, slots=True)
class Exhaustion:
    """Why a step that lost its worker, or found none, is given up on, and what is known of its attempts."""

    generation: int
    reason: str
    content: dict[str, Any]


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

    dedup_key: what was given up on, and in which generation; a repeat keeps the first letter and rings again. A letter
    is read by people: secrets are taken out of it, and nothing else. Raises what the ledger raises; a bell that cannot
    be rung is only logged, for the letter is what counts.
    """
    letter = DeadLetter(
        id=str(uuid4()),
        kind=kind,
        run_id=ref.run_id if ref else None,
        step_id=step_id,
        reason=without_secrets(reason),
        created_at=time.time_ns() // 1_000_000,
        content=redacted(dict(content), DEEPEST, WHOLE),
    )
    letter_id = ledger.write_letter(letter, dedup_key)
    if letter_id == letter.id:  # ours is the one that stands
        emit(events.LetterWritten(kind.value, letter_id))
    dispatch.ring(app, letter.model_copy(update={"id": letter_id}).bell())
    return letter_id


def about_step(
    app: App,
    ledger: Ledger,
    ref: RunRef,
    step_id: str,
    generation: int,
    reason: str,
    content: Mapping[str, Any],
    cause: str = "given_up",
) -> str:
    """Keep a letter about a step that was given up on; answers its id.

    A step is given up on once in a generation, whoever finds out and however often: the first letter stays.
    """
    dedup_key = step_key(ref.run_id, step_id, generation, cause)
    return write(app, ledger, DeadLetterKind.STEP, reason, dedup_key, content, ref, step_id)


def step_key(run_id: str, step_id: str, generation: int, cause: str = "given_up") -> str:
    """What makes two letters about a step the same one."""
    return f"step:{run_id}:{step_id}:{generation}:{cause}"


def story(store: Store, ref: RunRef, step: StepState) -> dict[str, Any]:
    """What a letter about a step tells: the action, and each attempt as the store remembers it."""
    attempts = [
        {"event": event.event, "at": event.at, **{name: event.fields.get(name) for name in _TOLD}}
        for event in store.views.events(ref)
        if event.fields.get("step_id") == step.id
    ]
    return {"action": step.action, "effect": step.effect, "attempts": attempts[-SHOWN_ATTEMPTS:]}


def exhaustion(store: Store, ref: RunRef, step: StepState, known: Fact) -> Exhaustion | None:
    """The letter that is owed if the store ends the step's claim now: its worker is lost, and it is tried no more.

    known: what closing its effect row answered. None: it landed, it goes on, a person is asked, or its run ends anyway.
    """
    run = store.views.run(ref)
    if run is None or run.status != RunStatus.RUNNING or known is Fact.LANDED:
        return None
    doubtful = step.effect == EffectClass.ONCE and known is Fact.MAYBE
    asked = doubtful and run.on_doubt == OnDoubt.WAIT
    if asked or not (doubtful or step.attempt >= step.max_attempts):
        return None
    return Exhaustion(run.generation, "in_doubt" if doubtful else "retry_exhausted", story(store, ref, step))


def unsupported(action: str, generation: int) -> Exhaustion:
    """The letter about a step that no worker could run."""
    return Exhaustion(generation, f"no worker supports {action}", {"action": action, "generation": generation})


def report_unsupported(app: App, store: Store, ledger: Ledger, ref: RunRef, generation: int) -> None:
    """Write those letters that a run which ends still owes: whoever gave the last attempt back may have died since."""
    failed = [step_id for step_id, text in store.views.errors(ref).items() if _is_unsupported(text)]
    letters = ledger.letters(MOST_LETTERS, kind=DeadLetterKind.STEP, run_id=ref.run_id) if failed else ()
    told = {(letter.step_id, letter.reason, letter.content.get("generation")) for letter in letters}
    for step_id in failed:
        step = store.views.step(ref, step_id)
        given_up = step is not None and is_given_up(store, ref, step)
        owed = unsupported(step.action, generation) if step and given_up else None
        if owed is not None and (step_id, owed.reason, generation) not in told:
            about_step(app, ledger, ref, step_id, generation, owed.reason, owed.content)


def is_given_up(store: Store, ref: RunRef, step: StepState) -> bool:
    """Whether the step ended by itself. One that was in doubt, undone meanwhile or not, may also have been cut off by
    the end of its run.
    """
    if step.status == StepStatus.FAILED:
        return True
    run = store.views.run(ref)
    if run is None:
        return False
    waits = run.status == RunStatus.RUNNING and step.status == StepStatus.IN_DOUBT
    return waits or run.reason == f"in_doubt:{step.id}"


def _is_unsupported(error_text: str) -> bool:
    return bool(json.loads(error_text).get("kind") == UNKNOWN_ACTION)


def planners_exhaustion(store: Store, ref: RunRef) -> Exhaustion | None:
    """The same for the last attempt to plan a run, whose worker is lost."""
    run = store.views.run(ref)
    if run is None or run.status != RunStatus.PLANNING or run.plan.attempt < run.plan.tries:
        return None
    if run.plan.lease_end > store.now_ms() and not run.plan.dead:
        return None
    content = {"planner": run.planner, "attempts": [], "workers_lost": run.plan.attempt}
    return Exhaustion(run.generation, "retry_exhausted", content)


def plan_key(run_id: str, generation: int) -> str:
    """What makes two letters about the planning of a run the same one."""
    return f"plan:{run_id}:{generation}"


def unreadable(app: App, ledger: Ledger, queue: str, headers: Mapping[str, Any], body: str | bytes, reason: str) -> str:
    """Keep a message that no task can be given; answers the letter's id. Delivered again, it is the same letter."""
    raw = body if isinstance(body, bytes) else body.encode("utf-8", "surrogateescape")
    content = {"queue": queue, "headers": repr(dict(headers))[:SHOWN_BYTES], "bytes": len(raw), **_shown(raw)}
    # also by why: without an id, what is no message at all and one with a bad header may have the same bytes
    name = sha256_hex(f"{queue} {headers.get('id')} {reason} {sha256_hex(raw)}")
    return write(app, ledger, DeadLetterKind.MESSAGE, reason, f"message:{name}", content)


def _shown(raw: bytes) -> dict[str, str]:
    """The beginning of a body: as text where it is text."""
    start = raw[:SHOWN_BYTES]
    try:
        return {"body": start.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(start).decode()}
