"""What comes of an attempt."""

import pytest

from orchestrator.deliveries.schedule import REFUSED, Answer, outcome, pause_s
from orchestrator.ledger import DeliveryState
from orchestrator.settings import Settings

GIVEN = Settings()
NOW = 1_000_000
DAY_S = 86_400


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_delivered(status: int) -> None:
    assert outcome(Answer(status), 1, GIVEN, NOW).state is DeliveryState.DELIVERED


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 409, 429, 500, 503])
def test_all_else_is_tried_again_until_the_last(status: int) -> None:
    again = outcome(Answer(status, "status"), 1, GIVEN, NOW)
    assert again.state is DeliveryState.PENDING
    assert again.due_at is not None
    assert NOW + 7_500 <= again.due_at <= NOW + 12_500
    assert outcome(Answer(status, "status"), 9, GIVEN, NOW).state is DeliveryState.GIVEN_UP


def test_410_ends_it() -> None:
    assert outcome(Answer(410, "status"), 1, GIVEN, NOW).state is DeliveryState.DISABLED


def test_what_may_not_be_sent_is_given_up_at_once() -> None:
    assert outcome(Answer(error=REFUSED), 1, GIVEN, NOW).state is DeliveryState.GIVEN_UP


@pytest.mark.parametrize(("asked", "waits"), [(0.0, 10), (3600.0, 3600), (1e9, 28_800)])
def test_retry_after_is_honoured_up_to_the_longest_pause(asked: float, waits: float) -> None:
    again = outcome(Answer(503, "status", asked), 1, GIVEN, NOW)
    assert again.due_at is not None
    assert waits * 0.75 <= (again.due_at - NOW) / 1000 <= waits * 1.25


def test_the_attempts_are_spread_over_most_of_a_day() -> None:
    pauses = [[pause_s(number, GIVEN) for number in range(1, GIVEN.webhook_attempts)] for _ in range(50)]
    assert all(DAY_S / 2 < sum(each) < DAY_S * 1.1 for each in pauses)
    assert len({each[0] for each in pauses}) > 40
    assert pause_s(100, GIVEN) <= GIVEN.webhook_backoff_max_s * 1.25
