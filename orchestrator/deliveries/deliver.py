"""One attempt to tell the end of a run: claim, post, note.

Killed before the claim, nothing has happened; between claim and note, the row is held until the attempt's time is over
and then posted again, under the same id; behind the note, it is done. The attempt is counted with the claim, so what
kills its worker each time is given up like everything else.
"""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from orchestrator import dead_letters
from orchestrator.deliveries import schedule, signature
from orchestrator.deliveries.guard import read_allowed
from orchestrator.deliveries.schedule import Answer
from orchestrator.dispatch import App
from orchestrator.errors import ConfigError, LedgerError
from orchestrator.ledger import Delivery, DeliveryState, Due, Ledger, Outcome
from orchestrator.settings import Settings
from orchestrator.telemetry import callbacks
from orchestrator.telemetry.logs import bind, emit
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef

if TYPE_CHECKING:
    from orchestrator.deliveries.post import Poster

SETTING: Final = "MANDOR_WEBHOOK_SECRETS"
HINT: Final = f"set {SETTING}, e.g. to the output of `echo whsec_$(openssl rand -base64 32)`"
MARGIN_S: Final = 30.0  # beyond the time of the post: two transactions, at a ledger that lets others go first


def hold_s(given: Settings) -> float:
    """How long an attempt may have a delivery in hand."""
    return given.webhook_timeout_s + MARGIN_S


def keys_of(given: Settings) -> tuple[bytes, ...]:
    """What callbacks are signed with. ConfigError: nothing is set."""
    keys = signature.read_keys(given.webhook_secrets.get_secret_value())
    if not keys:
        raise ConfigError("callbacks are signed, and no secret is set", path=SETTING, hint=HINT)
    return keys


def poster_of(given: Settings) -> "Poster":
    """Posts where this installation may."""
    from orchestrator.deliveries.post import Poster  # with libraries that only who posts needs

    return Poster(read_allowed(given.webhook_allowed), given.webhook_timeout_s)


def deliver(app: App, ledger: Ledger, given: Settings, due: Due) -> Outcome | None:
    """Make an attempt, unless somebody else does. Answers what came of it. ConfigError: nothing was begun."""
    keys = keys_of(given)
    delivery = ledger.deliveries.claim(due, round(hold_s(given) * 1000))
    if delivery is None:
        return None
    _name_the_run(ledger, delivery)
    answer = _attempt(delivery, given, keys)
    outcome = schedule.outcome(answer, delivery.number, given, ledger.now_ms())
    if outcome.state is DeliveryState.GIVEN_UP:
        _give_up(app, ledger, given, delivery, outcome, answer)
    elif ledger.deliveries.note(delivery, outcome):
        _tell(delivery, outcome)
    return outcome


def _name_the_run(ledger: Ledger, delivery: Delivery) -> None:
    """Every line of a run's life has its whole identity. The attempt is counted: it is made, whatever is said of it."""
    bind(run_id=delivery.run_id)
    with suppress(LedgerError):
        row = ledger.run(delivery.run_id)
        if row is not None:
            bind(session_id=row.session_id, request_id=row.request_id)


def _attempt(delivery: Delivery, given: Settings, keys: tuple[bytes, ...]) -> Answer:
    if delivery.number > given.webhook_attempts:
        return _last_known(delivery)
    headers = signature.headers(delivery.id, int(time.time()), delivery.body_text, keys)
    return poster_of(given).post(delivery.url, headers, delivery.body_text)


def _last_known(delivery: Delivery) -> Answer:
    """What is known last, from this attempt's forerunners: fewer may be allowed than when they were made."""
    if delivery.error is None:
        return Answer(error="none_left", why="no attempt is left, and nothing is known of the last one")
    return Answer(delivery.status_code, delivery.error, why="" if delivery.status_code else delivery.error)


def _give_up(app: App, ledger: Ledger, given: Settings, delivery: Delivery, outcome: Outcome, answer: Answer) -> None:
    tried = min(delivery.number, given.webhook_attempts)
    reason = f"the callback was given up after {tried} attempt{'s' if tried > 1 else ''}: {answer}"
    letter = dead_letters.compose(DeadLetterKind.DELIVERY, reason, _content(delivery, outcome), RunRef(delivery.run_id))
    # a run that was pruned may come again, under the same id
    dedup_key = f"delivery:{delivery.id}:{delivery.created_at}:{delivery.attempts}"
    letter_id = ledger.deliveries.give_up(delivery, outcome, letter, dedup_key, given.namespace)
    if letter_id is not None:
        _tell(delivery, outcome)
        dead_letters.announce(app, letter, letter_id)


def _content(delivery: Delivery, outcome: Outcome) -> dict[str, Any]:
    return {
        "delivery_id": delivery.id,
        "generation": delivery.generation,
        "url": delivery.url,
        "attempts": delivery.attempts,
        "status_code": outcome.status_code,
        "error": outcome.error,
    }


def _tell(delivery: Delivery, outcome: Outcome) -> None:
    said = (delivery.id, delivery.number, outcome.status_code)
    if outcome.state is DeliveryState.DELIVERED:
        emit(callbacks.CallbackSent(*said))
    elif outcome.due_at is not None:
        emit(callbacks.CallbackFailed(*said, outcome.error or "", outcome.due_at))
    else:
        emit(callbacks.CallbackOver(*said, outcome.error or "", outcome.state.value))
