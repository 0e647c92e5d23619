"""What comes of an attempt: delivered, once more later, not wanted any more, or given up. No clock, no service."""

import random
from dataclasses import dataclass
from typing import Final

from orchestrator.ledger import DeliveryState, Outcome
from orchestrator.settings import Settings

GROWTH: Final = 4  # nine attempts from 10 s on are spread over most of a day
JITTER: Final = 0.25  # ends of many runs that failed together come again apart
GONE: Final = 410
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back from an attempt. error: a word, where it was no 2xx; retry_after_s: what the server asked for;
    why: for people.
    """

    status_code: int | None = None
    error: str | None = None
    retry_after_s: float = 0.0
    why: str = ""

    def __str__(self) -> str:
        return self.why or (f"status {self.status_code}" if self.status_code else self.error or "")


def outcome(answer: Answer, number: int, given: Settings, now_ms: int) -> Outcome:
    """What comes of the attempt of this number in its round."""
    if answer.error is None:
        return Outcome(DeliveryState.DELIVERED, answer.status_code)
    said = (answer.status_code, answer.error)
    if answer.status_code == GONE:
        return Outcome(DeliveryState.DISABLED, *said)
    if answer.error == REFUSED or number >= given.webhook_attempts:
        return Outcome(DeliveryState.GIVEN_UP, *said)
    wait_s = max(pause_s(number, given), min(answer.retry_after_s, given.webhook_backoff_max_s))
    return Outcome(DeliveryState.PENDING, *said, now_ms + round(wait_s * 1000))


def pause_s(number: int, given: Settings) -> float:
    """From the end of this attempt to the next one."""
    grown = given.webhook_backoff_s * float(GROWTH ** min(number - 1, 32))
    return min(grown, given.webhook_backoff_max_s) * random.uniform(1 - JITTER, 1 + JITTER)
