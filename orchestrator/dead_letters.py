"""Dead letters: first the ledger, which keeps the whole of it, then the bell on the queue, which says it is there."""

import base64
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from orchestrator import dispatch, stars
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.recalled import Reads
from orchestrator.settings import settings
from orchestrator.store.views import StepState
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit
from orchestrator.telemetry.text import WHOLE, redacted, without_secrets
from schemas.canonical import sha256_hex
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.ids import RunRef
from schemas.states import RunStatus, StepStatus

SHOWN_BYTES: Final = 64 * 1024
SHOWN_ATTEMPTS: Final = 200
DEEPEST: Final = 100  # levels of a letter; below them is nothing that a person would read
MOST_LETTERS: Final = 10_000  # as many as a plan can have steps
UNKNOWN_ACTION: Final = "unknown_action"  # the kind of error of a step that no worker could run
WORKER_LOST: Final = "worker_lost"
OWED: Final = frozenset({UNKNOWN_ACTION, WORKER_LOST, "step_timeout"})  # of steps about which a letter may be owed
PLANNER_FAILED: Final = "planner_failed"  # why such a run has ended
_TOLD: Final = ("attempt", "fence", "worker_id", "outcome")


@dataclass(frozen=True, slots=True)
class Exhaustion:
    """Why a step that lost its worker, found none, or got no answer, is given up on, and what is known of its attempts.
    cause: tells it from other letters about the step.
    """

    generation: int
    reason: str
    content: dict[str, Any]
    cause: str = "given_up"


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
    letter = compose(kind, reason, content, ref, step_id)
    letter_id = ledger.write_letter(letter, dedup_key, settings().namespace)
    announce(app, letter, letter_id)
    return letter_id


def compose(
    kind: DeadLetterKind,
    reason: str,
    content: Mapping[str, Any],
    ref: RunRef | None = None,
    step_id: str | None = None,
) -> DeadLetter:
    """A letter that is still to be kept."""
    shown = redacted(dict(content), DEEPEST, WHOLE)
    return DeadLetter(
        id=str(uuid4()),
        kind=kind,
        run_id=ref.run_id if ref else None,
        step_id=step_id,
        reason=without_secrets(reason),
        created_at=time.time_ns() // 1_000_000,
        content=shown | stars.told_apart(content, shown),
    )


def announce(app: App, letter: DeadLetter, letter_id: str) -> None:
    """Ring for a letter that lies in the ledger, where it may be another one that was kept before."""
    if letter_id == letter.id:  # ours is the one that stands
        emit(events.LetterWritten(letter.kind.value, letter_id))
    dispatch.ring(app, letter.model_copy(update={"id": letter_id}).bell())


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


def story(views: Reads, ref: RunRef, step: StepState) -> dict[str, Any]:
    """What a letter about a step tells: the action, and each attempt as the store remembers it."""
    attempts = [
        {"event": event.event, "at": event.at, **{name: event.fields.get(name) for name in _TOLD}}
        for event in views.events(ref)
        if event.fields.get("step_id") == step.id
    ]
    return {"action": step.action, "effect": step.effect, "attempts": attempts[-SHOWN_ATTEMPTS:]}


def exhaustions(views: Reads, ref: RunRef, step: StepState) -> Iterator[Exhaustion]:
    """The letters that are owed about a step which the store has given up: its last worker was lost, or nobody spoke.

    The store alone knows: whoever finds a lapsed lease, or a wait that is over, may be too late.
    """
    for known in step.given_up:
        content = {**story(views, ref, step), "generation": known.generation}
        if known.cause == "wait":
            content["waited_since"] = step.waiting_since
        yield Exhaustion(known.generation, known.why, content, known.cause)


def unsupported(action: str, generation: int) -> Exhaustion:
    """The letter about a step that no worker could run."""
    return Exhaustion(generation, f"no worker supports {action}", {"action": action, "generation": generation})


def report_given_up(app: App, views: Reads, ledger: Ledger, ref: RunRef, generation: int) -> None:
    """Write those letters about steps that a run which ends still owes: whoever ended the last attempt, or gave it
    back, may have died since."""
    failed = _failed(views, ref)
    told = _told(ledger, ref, DeadLetterKind.STEP) if failed else set()
    for step_id, kind in failed.items():
        step = views.step(ref, step_id)
        for owed in _owed(views, ref, step, kind, generation) if step else ():
            if owed.generation == generation and (step_id, owed.reason, generation) not in told:
                about_step(app, ledger, ref, step_id, generation, owed.reason, owed.content, owed.cause)


def _failed(views: Reads, ref: RunRef) -> dict[str, str]:
    """The kinds of errors of those steps about which a letter may be owed: after a wait, the one that ended the run."""
    run = views.run(ref)
    ended_by = (run.reason if run else "").partition(":")[2]
    kinds = {step_id: _kind(text) for step_id, text in views.errors(ref).items()}
    found = {step_id: kind for step_id, kind in kinds.items() if kind in OWED}
    return found | ({ended_by: kinds.get(ended_by, "")} if ended_by else {})


def _owed(views: Reads, ref: RunRef, step: StepState, kind: str, generation: int) -> Iterator[Exhaustion]:
    if kind == UNKNOWN_ACTION and is_given_up(views, ref, step):
        yield unsupported(step.action, generation)
    yield from exhaustions(views, ref, step)


def _told(ledger: Ledger, ref: RunRef, kind: DeadLetterKind) -> set[tuple[str | None, str, Any]]:
    letters = ledger.letters(MOST_LETTERS, kind=kind, run_id=ref.run_id)
    return {(letter.step_id, letter.reason, letter.content.get("generation")) for letter in letters}


def is_given_up(views: Reads, ref: RunRef, step: StepState) -> bool:
    """Whether the step ended by itself. One that was in doubt, undone meanwhile or not, may also have been cut off by
    the end of its run.
    """
    if step.status == StepStatus.FAILED:
        return True
    run = views.run(ref)
    if run is None:
        return False
    waits = run.status == RunStatus.RUNNING and step.status == StepStatus.IN_DOUBT
    return waits or run.reason == f"in_doubt:{step.id}"


def _kind(error_text: str | None) -> str:
    return str(json.loads(error_text or "{}").get("kind", ""))


def planners_exhaustion(views: Reads, ref: RunRef) -> Exhaustion | None:
    """The same for a run that the store has ended with the loss of its last planner's worker."""
    run = views.run(ref)
    if run is None or run.reason != PLANNER_FAILED or _kind(run.error_text) != WORKER_LOST:
        return None
    content = {"planner": run.planner, "attempts": [], "workers_lost": run.plan.attempt, "generation": run.generation}
    return Exhaustion(run.generation, "retry_exhausted", content)


def report_planner(app: App, views: Reads, ledger: Ledger, ref: RunRef) -> None:
    """Write the letter about its planner that a run which ends still owes."""
    owed = planners_exhaustion(views, ref)
    if owed is not None and (None, owed.reason, owed.generation) not in _told(ledger, ref, DeadLetterKind.PLAN):
        about_planner(app, ledger, ref, owed)


def about_planner(app: App, ledger: Ledger, ref: RunRef, owed: Exhaustion) -> None:
    """Keep the letter about a planner that lost its worker each time."""
    write(app, ledger, DeadLetterKind.PLAN, owed.reason, plan_key(ref.run_id, owed.generation), owed.content, ref)


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
