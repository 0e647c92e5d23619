"""Two workers, a supervisor, a duplicate and a crash between any two operations: every state, once, on the real thing.

docs/explorer.md says what is seen and what is not. Each exploration prints its states and edges (`pytest -rP`).
"""

from pathlib import Path

import pytest

from tests.explorer.scenarios import (
    BY_TWO,
    BY_TWO_IN_PASSING,
    EVERYTHING,
    IN_PASSING,
    LARGE_BY_TWO,
    READ_BY_READ,
    TOGETHER,
    Scenario,
    explored,
)
from tests.explorer.search import Found
from tests.support.servers import Server


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


def test_two_settle_at_once_while_others_supervise_and_the_step_is_applied_once(
    redis_server: Server, namespace: str, tmp_path: Path
) -> None:
    seen(BY_TWO_IN_PASSING, explored(BY_TWO_IN_PASSING, redis_server, namespace, tmp_path))


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", [each for each in BY_TWO if each != BY_TWO_IN_PASSING], ids=str)
def test_the_same_where_any_two_settle_or_supervise_at_once(
    redis_server: Server, namespace: str, tmp_path: Path, scenario: Scenario
) -> None:
    seen(scenario, explored(scenario, redis_server, namespace, tmp_path))


@pytest.mark.full
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", [*(each for each in TOGETHER if each not in EVERYTHING), *LARGE_BY_TWO], ids=str)
def test_the_same_with_all_that_may_go_wrong_in_one_run(
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
    assert BY_TWO_IN_PASSING in BY_TWO
    assert len({*EVERYTHING, *BY_TWO, *LARGE_BY_TWO}) == len(EVERYTHING) + len(BY_TWO) + len(LARGE_BY_TWO)


def seen(scenario: Scenario, found: Found) -> None:
    print(f"{scenario}: {found}")  # noqa: T201  (for who asks how much is seen)
    told = [f"{what}\n    " + "\n    ".join(way) for what, way in found.violations.items()]
    assert not told, "\n".join(told)
    assert found.whole, "more states than are explored"
    assert found.ends > 1
