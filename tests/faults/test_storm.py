"""Two thousand runs of every shape and effect class in one storm: processes are killed and frozen, connections cut,
messages doubled, the server restarted, all at moments that are drawn. The seed is printed; with it

    python -m tests.support.storm --seed N

draws the same storm again."""

import json
import os
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.storm import shapes
from tests.support.storm.__main__ import SLOTS
from tests.support.storm.forecast import TROUBLES, UPSETS, USUAL, forecast
from tests.support.throwaway import ThrowAway
from tests.support.waiting import eventually
from workers.faults.hands import STEP_WORKERS

LONGEST_S = 1500  # where others work too; it takes about four minutes on two cores
SHORT_S = 480  # a minute and a half with others beside it
FEW = 80
IN_CALM = 3 * SLOTS * len(STEP_WORKERS)  # runs that fill every slot, three times at least
LOST_IN_CALM = 2 * SLOTS  # all that a killed worker held, and all that a frozen one did
STORM = ("tests.support.storm", "--seed")
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


@pytest.mark.soak
@pytest.mark.full
@pytest.mark.timeout(LONGEST_S + 60)
def test_two_thousand_runs_in_a_storm(storm: ThrowAway) -> None:
    assert_it_was_a_storm(nothing_is_lost(storm, USUAL, LONGEST_S))


@pytest.mark.full
@pytest.mark.timeout(SHORT_S + 60)
def test_a_short_storm(storm: ThrowAway) -> None:
    """Of the same kind, where nobody has the time for the whole: not every trouble comes."""
    told = nothing_is_lost(storm, FEW, SHORT_S)
    assert told["storm"]["claims_lost_in_calm"] >= LOST_IN_CALM


def nothing_is_lost(storm: ThrowAway, runs: int, within_s: float) -> dict[str, Any]:
    """Blow one with so many runs; answers what it tells."""
    storm.start(*STORM, str(random.randrange(10**6)), "--runs", str(runs), "--json")
    code = storm.process.wait(within_s)
    print(storm.screen)  # noqa: T201  # pytest shows it where the test fails: the seed, and what does not hold
    assert code == 0
    told: dict[str, Any] = json.loads(storm.screen.splitlines()[-1])
    said = told["certificate"]
    in_calm = told["storm"]["runs_in_calm"]
    assert (said["verdict"], sum(said["runs"].values())) == ("passed", runs + in_calm)
    assert in_calm >= IN_CALM
    assert [said[sort] for sort in ("duplicates", "losses", "stuck", "other")] == [0, 0, 0, 0]
    eventually(lambda: storm.left() == {}, timeout_s=30, what="the end of all processes")
    return told


def assert_it_was_a_storm(told: dict[str, Any]) -> None:
    """Every trouble came, and met somebody; every shape and class was there."""
    faults, figures = told["scenarios"][0]["faults"], told["storm"]
    assert {*TROUBLES, *UPSETS} <= faults.keys()
    assert faults["cancelled"] > 0
    assert set(told["certificate"]["effects"]) == CLASSES
    assert {shape for shape, _, _ in (name.partition(" ") for name in figures["ends_by_shape"])} == set(shapes.SHARES)
    assert figures["claims_lost"] > USUAL / 40
    assert figures["claims_lost_in_calm"] >= LOST_IN_CALM  # what is excused proves nothing
    assert figures["ordered"]["die"] > 0


SABOTAGED = 60


@pytest.mark.soak
@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_build_without_its_guards_does_not_come_through(storm: ThrowAway) -> None:
    """What may have happened is done again, and what is to be undone is undone in words only."""
    seed = next(seed for seed in count(random.randrange(10**6)) if senders_die(seed))
    storm.start(*STORM, str(seed), "--runs", str(SABOTAGED), "--json", "--also", "tests.support.sabotage")
    code = storm.process.wait(270)
    print(storm.screen)  # noqa: T201
    assert code == 1
    (scenario,) = json.loads(storm.screen.splitlines()[-1])["scenarios"]
    assert {one["invariant"] for one in scenario["violations"]} >= {"I6", "I10", "audit"}
    assert scenario["error"] is None


def senders_die(seed: int) -> bool:
    """Whether two letters at least are sent by somebody who dies behind that, in runs that nobody cancels."""
    drawn = forecast(seed, SABOTAGED)
    going = {run.run_id for run in drawn.runs if run.cancel_s is None}
    letters = [order for order in drawn.orders if (order.step_id, order.place, order.deed) == ("send", "acted", "die")]
    return sum(order.run_id in going for order in letters) >= 2
