"""Two thousand runs of every shape and effect class in one storm: processes are killed and frozen, connections cut,
messages doubled, the server restarted, all at moments that are drawn. The seed is printed; with it

    python -m tests.support.storm --seed N

draws the same storm again."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.storm import shapes
from tests.support.storm.forecast import TROUBLES, UPSETS, USUAL
from tests.support.throwaway import ThrowAway
from tests.support.waiting import eventually

LONGEST_S = 1500  # where others work too; it takes about four minutes on two cores
CLASSES = {"pure", "idempotent", "transactional", "keyed", "once"}


MEMORY = Path("/dev/shm")  # a folder of this test's own is made there


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[ThrowAway]:
    """In memory where there is such a folder: what a killed process has written is there all the same, and the ledger
    of so many runs waits for no disk."""
    if not os.access(MEMORY, os.W_OK):
        yield from _in(tmp_path)
        return
    with TemporaryDirectory(prefix="mandor-storm-", dir=MEMORY) as folder:
        yield from _in(Path(folder))


def _in(folder: Path) -> Iterator[ThrowAway]:
    made = ThrowAway(folder)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.full
@pytest.mark.timeout(LONGEST_S + 60)
def test_two_thousand_runs_in_a_storm(storm: ThrowAway) -> None:
    seed = random.randrange(10**6)
    storm.start("tests.support.storm", "--seed", str(seed), "--runs", str(USUAL), "--json")
    code = storm.process.wait(LONGEST_S)
    print(storm.screen)  # noqa: T201  # pytest shows it where the test fails: the seed, and what does not hold
    assert code == 0
    told = json.loads(storm.screen.splitlines()[-1])
    assert_nothing_was_lost(told["certificate"])
    assert_it_was_a_storm(told)
    eventually(lambda: storm.left() == {}, timeout_s=30, what="the end of all processes")


def assert_nothing_was_lost(said: dict[str, Any]) -> None:
    assert (said["verdict"], sum(said["runs"].values())) == ("passed", USUAL)
    assert [said[sort] for sort in ("duplicates", "losses", "stuck", "other")] == [0, 0, 0, 0]


def assert_it_was_a_storm(told: dict[str, Any]) -> None:
    """Every trouble came, and met somebody; every shape and class was there."""
    faults, figures = told["scenarios"][0]["faults"], told["storm"]
    assert {*TROUBLES, *UPSETS} <= faults.keys()
    assert faults["cancelled"] > 0
    assert set(told["certificate"]["effects"]) == CLASSES
    assert {shape for shape, _, _ in (name.partition(" ") for name in figures["ends_by_shape"])} == set(shapes.SHARES)
    assert figures["claims_lost"] > USUAL / 40
    assert figures["ordered"]["die"] > 0
