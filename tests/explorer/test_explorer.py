"""Two workers, a supervisor, a duplicate and a crash between any two operations: every state, once, on the real thing.

docs/explorer.md says what is seen and what is not. Each exploration prints its states and edges (`pytest -rP`).
"""

from pathlib import Path

import pytest

from tests.explorer.moves import Bounds
from tests.explorer.scenarios import Scenario, explored
from tests.explorer.search import Found
from tests.support.servers import Server

CLASSES = ("pure", "idempotent", "transactional", "keyed", "once")
EFFECTS = CLASSES[1:]
TWICE, RAISING, CANCELLED = Bounds(1, 1), Bounds(1, 0, 1), Bounds(1, 0, 0, 1)
RETRIED, ANSWERED = Bounds(1, 0, 0, 1, 0, 1), Bounds(1, 0, 0, 0, 1)

IN_PASSING = Scenario(("transactional",), TWICE)  # in every test run; the others with --full
EVERYTHING = (
    *(Scenario((effect,), TWICE, 2) for effect in CLASSES),
    *(Scenario((effect,), TWICE, 1) for effect in CLASSES),
    *(Scenario((effect,), RAISING, attempts) for effect in CLASSES for attempts in (1, 2)),
    *(Scenario((effect,), CANCELLED, attempts) for effect in CLASSES for attempts in (1, 2)),
    *(Scenario((effect, "fails"), Bounds(1, 0), 1) for effect in EFFECTS),
    Scenario(("transactional", "fails"), TWICE, 1),
    Scenario(("keyed",), CANCELLED, 1, deadline=True),
    Scenario(("transactional",), Bounds(2, 0), 2),
    Scenario(("keyed",), Bounds(2, 0), 1),
    Scenario(("keyed", "pure", "keyed"), Bounds(0, 0, 0, 1), 1),
    Scenario(("pure", "transactional"), Bounds(1, 0), 1, abreast=True),
    Scenario(("keyed",), RETRIED, 1, on_failure="stop"),
    Scenario(("once",), ANSWERED, 1, on_failure="stop", on_doubt="wait"),
    Scenario(("keyed",), Bounds(1, 0), 1, probed=True),
    Scenario(("once",), Bounds(1, 0), 2, probed=True),
)
READ_BY_READ = (Scenario(("keyed",), Bounds(1, 0), 2), Scenario(("transactional",), TWICE, 2))


def test_whatever_happens_to_a_transactional_step_it_is_applied_once(
    redis_server: Server, namespace: str, tmp_path: Path
) -> None:
    found = explored(IN_PASSING, redis_server, namespace, tmp_path)
    seen(IN_PASSING, found)
    assert found.states > 1000


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", [each for each in EVERYTHING if each != IN_PASSING], ids=str)
def test_whatever_happens_every_effect_is_what_its_class_promises(
    redis_server: Server, namespace: str, tmp_path: Path, scenario: Scenario
) -> None:
    seen(scenario, explored(scenario, redis_server, namespace, tmp_path))


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", READ_BY_READ, ids=str)
def test_the_same_where_others_come_in_between_any_two_reads(
    redis_server: Server, namespace: str, tmp_path: Path, scenario: Scenario
) -> None:
    seen(scenario, explored(scenario, redis_server, namespace, tmp_path, finest=True))


def test_nothing_is_explored_twice() -> None:
    assert IN_PASSING in EVERYTHING
    assert len(set(EVERYTHING)) == len(EVERYTHING)


def seen(scenario: Scenario, found: Found) -> None:
    print(f"{scenario}: {found}")  # noqa: T201  (for who asks how much is seen)
    told = [f"{what}\n    " + "\n    ".join(way) for what, way in found.violations.items()]
    assert not told, "\n".join(told)
    assert found.whole, "more states than are explored"
    assert found.ends > 1
