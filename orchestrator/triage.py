"""What people do about dead letters: replay them, as they are or otherwise, and drop them.

    look  ->  ledger: the letter is replayed, by whom, how  ->  carry out  ->  ledger: what came of it

The ledger says first who replays a letter, and how; of several at once one is first, and the others are told who. From
then on anybody who comes by carries it out: whoever decided, whoever asks again, a supervisor. If it turns out that it
cannot be done, the letter is open again, and the decision keeps why.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from orchestrator import outcomes, replays
from orchestrator.decisions import Desk
from orchestrator.errors import DecisionRefused, LedgerUnavailable, MandorError, NotBuiltYet, NotFound, StoreError
from orchestrator.ledger import Ledger, LetterDecision, LetterFilter, ListedLetter, Taken
from orchestrator.replays import AS_IT_WAS, Wish
from orchestrator.telemetry import decided
from orchestrator.telemetry.logs import emit, identity
from schemas.dead_letter import DeadLetter, DeadLetterStatus

PAGE: Final = 200
REPLAY: Final = "replay"


@dataclass(frozen=True, slots=True)
class Dealt:
    """A decision about a letter and what came of it. made: by this call; else somebody was first, `by`, at `at_ms`.

    outcome: a word, and behind a colon what it is about; None: it is kept, and not carried out yet. run_id, step_id:
    what goes on by it.
    """

    letter_id: str
    letter_kind: str
    decision: str
    by: str
    at_ms: int
    made: bool
    outcome: str | None
    run_id: str | None
    step_id: str | None

    @property
    def word(self) -> str:
        return (self.outcome or "").partition(":")[0]

    @property
    def carried_out(self) -> bool:
        """Whether what was decided has come about."""
        return self.word in replays.CARRIED_OUT or self.word == "dropped"


def find(desk: Desk, letter_id: str) -> DeadLetter:
    """The letter. NotFound: there is none of this id in this namespace."""
    letter = desk.ledger.letter(letter_id, desk.store.keys.namespace)
    if letter is None:
        raise NotFound(f"no dead letter {letter_id}", path="letter_id", hint="`mandor dlq list` shows what there is")
    return letter


def open_letter(desk: Desk, letter_id: str) -> DeadLetter:
    """A letter that nobody has dealt with. DecisionRefused: somebody has; it names who, when, and what came of it."""
    letter = find(desk, letter_id)
    if letter.status is not DeadLetterStatus.OPEN:
        raise _too_late(letter, _last(desk, letter))
    return letter


def wanted(ledger: Ledger, asked: LetterFilter) -> Iterator[ListedLetter]:
    """All letters that are asked for, newest first, read page by page."""
    before: str | None = None
    while page := ledger.triage.listed(PAGE, before, asked):
        yield from page
        before = page[-1].id


# ---- replayed


def replay(desk: Desk, letter_id: str, by: str, reason: str | None = None, wish: Wish = AS_IT_WAS) -> Dealt:
    """Do again what a letter is about, once. Somebody who was first is told, unless something else is wished.

    DecisionRefused, SubmissionRefused: it cannot be done so; nothing was decided. NotFound: no such letter. StoreError:
    it is decided, and carried out when that is mended.
    """
    letter = find(desk, letter_id)
    if letter.status is not DeadLetterStatus.OPEN:
        return _told(desk, letter, _last(desk, letter), wish)
    details = json.dumps(replays.look(desk, letter, wish), ensure_ascii=True)
    made = desk.ledger.triage.replay(letter.id, desk.store.keys.namespace, by, reason, details)
    if isinstance(made, Taken):
        return _told(desk, letter, _there(made.by, letter), wish)
    emit(decided.LetterDecided(made.kind, made.made_by, letter.id))
    try:
        return _dealt(letter, made, carry_out(desk, letter, made), made_now=True)
    except NotBuiltYet:  # it is kept until then, like all that waits for the store, which is not away for others
        return _dealt(letter, made, None, made_now=True)
    except StoreError as away:
        away.also("the decision is kept, and carried out when this is mended")
        raise


def foresee(desk: Desk, letter_id: str, wish: Wish = AS_IT_WAS) -> str:
    """What a replay would do, in words. Refused as by `replay`; nothing is written."""
    letter = open_letter(desk, letter_id)
    details = replays.look(desk, letter, wish)
    if details["way"] == "submit":
        return f"submit run {details['run_id']}"
    if details["way"] == "post":
        return f"post callback {details['delivery_id']} again"
    if details["way"] == "undo":
        return f"undo step {letter.step_id} of run {letter.run_id} again"
    return f"start run {letter.run_id} over, from generation {details['generation']}"


def carry_out(desk: Desk, letter: DeadLetter, decision: LetterDecision) -> str:
    """Do what was decided, if it has not been done; answers the outcome. Repeated, it changes nothing."""
    with identity(run_id=letter.run_id, step_id=letter.step_id):
        outcome = replays.carry_out(desk, letter, decision)
        refused = outcome.startswith("refused:")
        if desk.ledger.triage.done(decision, outcome, reopen=refused):
            emit(decided.LetterDone(decision.kind, decision.made_by, letter.id, outcome.partition(":")[0]))
    return outcome


def carry_out_pending(desk: Desk, decision: LetterDecision) -> None:
    """What a supervisor does with a decision whose maker did not come to its end."""
    letter = desk.ledger.letter(decision.letter_id)
    if letter is not None:
        carry_out(desk, letter, decision)


def _told(desk: Desk, letter: DeadLetter, first: LetterDecision, wish: Wish) -> Dealt:
    """What somebody else has decided. Should they have died over it, it is finished here."""
    if first.kind != REPLAY or (wish and not _wishes_the_same(desk, letter, first, wish)):
        raise _too_late(letter, first)
    outcome = first.outcome or _finished(desk, letter, first)
    return _dealt(letter, first, outcome, made_now=False)


def _wishes_the_same(desk: Desk, letter: DeadLetter, first: LetterDecision, wish: Wish) -> bool:
    try:
        return bool(json.loads(first.details_text or "{}") == replays.look(desk, letter, wish))
    except MandorError:  # it would be refused by now
        return False


def _finished(desk: Desk, letter: DeadLetter, first: LetterDecision) -> str | None:
    try:
        return carry_out(desk, letter, first)
    except (StoreError, LedgerUnavailable):
        return None


def _dealt(letter: DeadLetter, decision: LetterDecision, outcome: str | None, *, made_now: bool) -> Dealt:
    word, _, about = (outcome or "").partition(":")
    run_id = about if word == "submitted" else letter.run_id if word in replays.CARRIED_OUT else None
    step_id = letter.step_id if word in replays.CARRIED_OUT - {"submitted"} else None
    who = (decision.kind, decision.made_by, decision.created_at, made_now)
    return Dealt(letter.id, letter.kind.value, *who, outcome, run_id, step_id)


def _last(desk: Desk, letter: DeadLetter) -> LetterDecision:
    return _there(next(reversed(desk.ledger.triage.decisions(letter.id)), None), letter)


def _there(decision: LetterDecision | None, letter: DeadLetter) -> LetterDecision:
    if decision is None:
        raise NotFound(f"dead letter {letter.id} has been deleted meanwhile", path="letter_id")
    return decision


def _too_late(letter: DeadLetter, first: LetterDecision) -> DecisionRefused:
    at = datetime.fromtimestamp(first.created_at / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    did = "replayed" if first.kind == REPLAY else "dropped"
    came = ""
    if first.kind == REPLAY and first.outcome:
        came = f"; what came of it: {outcomes.of_letter(first.outcome, letter.run_id, letter.step_id)}"
    why = f" ({first.reason})" if first.reason else ""
    message = f"this letter was {did} by {first.made_by} at {at}{why}{came}"
    return DecisionRefused(message, path="letter_id", hint=f"see `mandor dlq show {letter.id}`")


# ---- dropped


def foresee_drop(desk: Desk, letter_id: str) -> str:
    """What dropping would do, in words. Refused as by `drop`; nothing is written."""
    return f"drop the letter: {open_letter(desk, letter_id).reason}"


def drop(desk: Desk, letter_id: str, by: str, reason: str) -> Dealt:
    """Say that nothing is to be done about a letter. DecisionRefused: it was dealt with, or no reason is given."""
    letter = find(desk, letter_id)
    if not reason.strip():
        raise DecisionRefused("say why nothing is to be done about it", path="reason", hint="--reason TEXT")
    made = desk.ledger.triage.drop(letter.id, desk.store.keys.namespace, by, reason)
    if isinstance(made, Taken):
        raise _too_late(letter, _there(made.by, letter))
    emit(decided.LetterDecided(made.kind, made.made_by, letter.id))
    return _dealt(letter, made, made.outcome, made_now=True)
