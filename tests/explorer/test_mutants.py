"""Each guard taken away is seen: by what comes of it, or, where nothing wrong comes of it within the bounds, by the
model that every call is held against.
"""

from pathlib import Path

import pytest

from tests.explorer.mutants import CODE, SCRIPTS, Mutant
from tests.explorer.scenarios import explored
from tests.support.servers import Server

RULES = {
    *("facts", "every_end", "touched", "close_first", "void", "idem_maybe", "generation", "probe3"),
    *("late_test", "lapsed_runs", "undo_guard", "cancel_keeps", "keep_touched", "close_before_fail", "undo_key"),
}
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
    assert {mutant.rule for mutant in (*SCRIPTS, *CODE)} - {""} == RULES
