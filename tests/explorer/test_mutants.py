"""Each guard taken away is seen: by what comes of it, or, where nothing wrong comes of it within the bounds, by the
model that every call is held against.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import StoreRefused
from tests.explorer.guards import Guard, guards, unread
from tests.explorer.lawful import rules
from tests.explorer.missed import HOLDS, KNOWN, Elsewhere, known
from tests.explorer.mutants import CODE, SCRIPTS, Mutant
from tests.explorer.neighbour import NotMovedIn
from tests.explorer.scenarios import EVERYTHING, Scenario, explored
from tests.support.servers import Server

EXPLORED = {place for guard in guards() if isinstance(place := known(guard), Scenario)}
ELSEWHERE = {place.file for guard in guards() if isinstance(place := known(guard), Elsewhere)}
ROOT = Path(__file__).parents[2]
QUICK = ("a claim has no lease", "what is once is tried again in doubt", "the row of a lost attempt is not closed")


@pytest.mark.parametrize(
    "mutant", [each for each in (*SCRIPTS, *CODE) if each.name in QUICK], ids=lambda each: each.name
)
def test_a_guard_that_is_taken_away_is_missed(
    redis_server: Server, namespace: str, tmp_path: Path, mutant: Mutant
) -> None:
    is_seen(mutant, redis_server, namespace, tmp_path)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", [*SCRIPTS, *CODE], ids=lambda each: each.name)
def test_each_guard_that_is_taken_away_is_missed(
    redis_server: Server, namespace: str, tmp_path: Path, mutant: Mutant
) -> None:
    is_seen(mutant, redis_server, namespace, tmp_path)


def is_seen(mutant: Mutant, server: Server, namespace: str, folder: Path) -> None:
    with mutant.alive():
        found = explored(mutant.scenario, server, namespace, folder, modelled=mutant.by_model)
    print(f"{mutant.name}: {', '.join(found.violations)}")  # noqa: T201  (for who asks what is seen)
    assert found.violations, f"{found}"


def test_every_rule_of_the_protocol_that_can_be_switched_off_has_its_mutant() -> None:
    assert {mutant.rule for mutant in (*SCRIPTS, *CODE)} - {""} == rules()


def test_every_if_is_read() -> None:
    assert unread() == []


def test_every_guard_line_has_its_exploration_or_its_tests() -> None:
    found = list(guards())
    assert [str(guard) for guard in found if known(guard) is None] == []
    there = {(guard.script, guard.condition) for guard in found}
    assert [(script, text) for script, texts in KNOWN.items() for text in texts if (script, text) not in there] == []
    always = {(guard.script, guard.named) for guard in found if guard.always}
    assert [(script, text) for script, texts in HOLDS.items() for text in texts if (script, text) not in always] == []
    assert [file for file in ELSEWHERE if not (ROOT / file).is_file()] == []


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", sorted(EXPLORED - set(EVERYTHING), key=str), ids=str)
def test_with_all_guards_nothing_is_missed_there(
    redis_server: Server, namespace: str, tmp_path: Path, scenario: Scenario
) -> None:
    assert not explored(scenario, redis_server, namespace, tmp_path).violations


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("guard", [each for each in guards() if isinstance(known(each), Scenario)], ids=str)
def test_each_guard_line_that_is_taken_away_is_missed(
    redis_server: Server, namespace: str, tmp_path: Path, guard: Guard
) -> None:
    scenario = known(guard)
    assert isinstance(scenario, Scenario)
    with guard.away():
        try:
            found = explored(scenario, redis_server, namespace, tmp_path)
        except (StoreRefused, NotMovedIn) as error:  # the script itself ends in one, or does not do the least
            print(f"{guard}: {error!r}")  # noqa: T201
            return
    print(f"{guard}: {', '.join(found.violations)}; {found.seconds:.1f} s")  # noqa: T201
    assert found.violations, f"{found}"


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", sorted(ELSEWHERE))
def test_each_other_guard_line_that_is_taken_away_is_missed_by_the_tests_that_are_named(file: str) -> None:
    """In a process of its own, for one server and all guards that tests of this file miss: `without.py`."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.explorer.without", file)
    tests = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert tests.returncode == pytest.ExitCode.OK, tests.stdout
