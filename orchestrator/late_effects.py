"""What came late and is not undone yet: its message was lost, or whoever had the effect died before sending one.

The ledger keeps what is owed, in the transaction that refused the landing, or that heard that an attempt which somebody
else had ended did not land. A supervisor looks at it again and again: has the step been undone, so that a worker is to
undo this too? One that began and has not come back by the end of its time is given up, with a letter; so is what the
state store has forgotten. Nothing more is owed of a step that is not undone when its run has ended.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator import dead_letters, dispatch
from orchestrator.compensation import GivenUp
from orchestrator.dispatch import App
from orchestrator.errors import LedgerUnavailable, StoreUnavailable
from orchestrator.ledger import Late, Ledger
from orchestrator.recalled import Reads
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Dispatch
from orchestrator.store.views import RunState, StepState
from orchestrator.supervisors.passes import AT_ONCE, Counts, tell_failed
from orchestrator.telemetry.logs import identity
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef, undo_key
from schemas.states import RUN_TERMINAL, EffectClass, StepStatus

NAME = "late-effects"
REASON = "late_effect"
UNDO_REASON = "a late effect of"  # what reasons of letters about undos begin with here
LOST = {"kind": "worker_lost", "message": "the worker that undid it was lost"}
FORGOTTEN = {"kind": "forgotten", "message": "the state store has forgotten the run"}


class Next(StrEnum):
    """What is to be done about a late effect."""

    WAIT = "wait"
    SEND = "send"
    GIVE_UP = "give up"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Seen:
    """A late effect, its step and its run."""

    late: Late
    ref: RunRef
    run: RunState
    step: StepState


def look(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass over late effects that nobody has touched for as long as a message may take to be claimed."""
    untouched_since = ledger.now_ms() - round(settings.dispatch_check_s * 1000)
    total = Counts()
    for late in ledger.late.owed(untouched_since, AT_ONCE, store.keys.namespace):
        with identity(run_id=late.run_id, step_id=late.step_id):
            total += _attend(app, store, ledger, late)
    return total


def _attend(app: App, store: Store, ledger: Ledger, late: Late) -> Counts:
    """Whatever one is met with, the others have their turn; and it does not stand in front of them again at once."""
    try:
        sent = attend(app, store, ledger, late)
    except (StoreUnavailable, LedgerUnavailable):
        raise
    except Exception as error:  # noqa: BLE001  # it is told, and looked at again later
        tell_failed(NAME, error)
        _wait(ledger, late)
        return Counts(taken=1, failed=1)
    return Counts(taken=1, moved=int(sent > 0), sent=sent)


def attend(app: App, store: Store, ledger: Ledger, late: Late) -> int:
    """See to one of them; answers how many messages were sent."""
    if not store.admin.is_whole(store.keys.shard_of(late.run_id)):
        _wait(ledger, late)  # what an old copy says is not so
        return 0
    seen = find(store, ledger, late)
    if seen is None:
        _attend_unseen(app, ledger, late)
        return 0
    if is_news(seen):
        tell(app, ledger, seen.ref, seen.run.generation, seen.step, late.fence)
    todo = next_for(seen, ledger.now_ms())
    if todo is Next.NOTHING:
        ledger.late.end(late)
    elif todo is Next.GIVE_UP:
        give_up(app, ledger, late, given_up(store, seen.ref, seen.step, late.fence, LOST))
    else:
        _wait(ledger, late)
    if todo is not Next.SEND:
        return 0
    return dispatch.publish(app, (message(seen.ref, seen.run.generation, seen.step, late),))


def _attend_unseen(app: App, ledger: Ledger, late: Late) -> None:
    """The state store does not have the run: it has let one go that ended, or it has lost one that has not."""
    row = ledger.run(late.run_id)
    if row is not None and row.ended_at is None:
        _wait(ledger, late)
    else:
        give_up(app, ledger, late, forgotten(late))


def _wait(ledger: Ledger, late: Late) -> None:
    if not late.begun:  # a row that is open says since when it has been
        ledger.late.postpone(late)


def next_for(seen: Seen, now_ms: int) -> Next:
    """Undoing goes on by itself while the run moves; whoever undoes the step then sees that there is more."""
    if seen.step.status != StepStatus.COMPENSATED:
        return Next.NOTHING if seen.run.status in RUN_TERMINAL else Next.WAIT
    if not seen.late.begun:
        return Next.SEND
    over = seen.late.updated_at + seen.step.limit_ms + seen.run.stop_grace_ms
    return Next.GIVE_UP if now_ms > over else Next.WAIT


def find(store: Store, ledger: Ledger, late: Late) -> Seen | None:
    """The step and its run, as long as the state store knows them."""
    row = ledger.run(late.run_id)
    if row is None:
        return None
    ref = RunRef(row.run_id, row.session)
    run, step = store.views.run(ref), store.views.step(ref, late.step_id)
    return None if run is None or step is None else Seen(late, ref, run, step)


def message(ref: RunRef, generation: int, step: StepState, late: Late) -> Dispatch:
    """The message that has it undone. The fence is beyond that of every attempt whose effect may have come."""
    fence = max(late.fence, step.fence)
    return Dispatch("late", ref, generation, step.id, step.index, step.queue, step.limit_ms, fence)


def is_news(seen: Seen) -> bool:
    """Whether a person is to hear of it. Idempotent effects need no letter. Of what nobody is sure, only what nobody
    has looked after when the run is over: it was neither taken back, nor is it one with what another attempt did under
    the same key.
    """
    effect, status = seen.step.effect, seen.step.status
    if effect == EffectClass.IDEMPOTENT:
        return False
    looked_after = status == StepStatus.COMPENSATED or (effect, status) == (EffectClass.KEYED, StepStatus.COMPLETED)
    return seen.late.sure or (seen.run.status in RUN_TERMINAL and not looked_after)


def tell(app: App, ledger: Ledger, ref: RunRef, generation: int, step: StepState, fence: int) -> None:
    """The letter that whoever had the effect may not have lived to write."""
    if not is_told(ledger, ref, step.id):
        content = {"action": step.action, "effect": step.effect, "fence": fence, "kind": "do"}
        dead_letters.about_step(app, ledger, ref, step.id, generation, REASON, content, cause="late:do")


def is_told(ledger: Ledger, ref: RunRef, step_id: str) -> bool:
    """Whether there is such a letter."""
    letters = ledger.letters(dead_letters.MOST_LETTERS, kind=DeadLetterKind.STEP, run_id=ref.run_id)
    return any((letter.step_id, letter.reason) == (step_id, REASON) for letter in letters)


def tell_all(app: App, views: Reads, ledger: Ledger, ref: RunRef, generation: int) -> None:
    """The letters about refused landings that undoing the run took over before a supervisor saw them."""
    for step_id in ledger.late.refused(ref.run_id):
        step = views.step(ref, step_id)
        if step is not None and step.effect != EffectClass.IDEMPOTENT:
            tell(app, ledger, ref, generation, step, step.fence)


def give_up(app: App, ledger: Ledger, late: Late, letter: GivenUp) -> None:
    """Write the letter, and look no more."""
    row = ledger.run(late.run_id)
    ref = RunRef(row.run_id, row.session) if row else None
    kind = DeadLetterKind.UNDO
    dead_letters.write(app, ledger, kind, letter.reason, letter.dedup_key, letter.content, ref, late.step_id)
    ledger.late.end(late)


def given_up(store: Store, ref: RunRef, step: StepState, fence: int, error: Mapping[str, str]) -> GivenUp:
    """What a letter says of a late effect that could not be undone. One for a fence, whoever writes it."""
    text = store.views.step_text(ref, step.id)
    content: dict[str, Any] = {
        "action": step.action,
        "effect": step.effect,
        "fence": fence,
        "in_doubt": True,
        "error": dict(error),
        "idempotency_key": late_key(ref.run_id, step, fence),
        "step": json.loads(text) if text else None,
    }
    reason = f"{UNDO_REASON} {step.id} ({step.action}) could not be undone: {error['message']}"
    return GivenUp(reason, dedup_key(ref.run_id, step.id, fence), content)


def forgotten(late: Late) -> GivenUp:
    """The same where nothing but the row is left."""
    reason = f"{UNDO_REASON} {late.step_id} could not be undone: {FORGOTTEN['message']}"
    content = {"fence": late.fence, "in_doubt": True, "error": FORGOTTEN}
    return GivenUp(reason, dedup_key(late.run_id, late.step_id, late.fence), content)


def late_key(run_id: str, step: StepState, fence: int) -> str:
    """The idempotency key under which it is undone: not that of any undo before, which is used up."""
    return f"{undo_key(run_id, step.id, step.group)}:late:{fence}"


def dedup_key(run_id: str, step_id: str, fence: int) -> str:
    """What makes two letters about a late effect of a step the same one."""
    return f"late:{run_id}:{step_id}:{fence}"
