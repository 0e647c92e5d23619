"""Hostile plans of the corpus by whole workers, of root and of a stranger, on each rung; see tests/support/fence.py.

This file is named to pytest by who puts up the fence, and is not found otherwise.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

from schemas.policy import Rung
from tests.fenced import commands, files, records, runs
from tests.fenced.deaths import DEATHS
from tests.fenced.fleet import CASES, Fleet, Scene, fleet, harmless
from tests.support.bait import MARK
from tests.support.fence import furnish
from tests.support.misled import GONE, kills
from tests.support.processes import rss_kb
from tests.support.scraping import family, probed, scraped
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
FLEETS: Final = [(user, rung) for user in ("root", "stranger") for rung in (Rung.BUBBLEWRAP, Rung.NAMESPACES)]
FIRST: Final = ("mr-14", "met-01")  # they need a worker that has done nothing yet
NAMES: Final = sorted((*FIRST, *CASES, *DEATHS))
AT_ONCE: Final = 12
ALL_S: Final = 400.0
GROWN_KB: Final = 50 << 10
__all__ = ["commands", "files"]  # whose cases are played, as those of the others


@dataclass(frozen=True)
class Look:
    """A worker before or after. outside: the state of the bait; rss: of each of its processes the memory, in KiB.

    rungs: those that it has run commands on.
    """

    outside: dict[str, Any]
    pids: list[int]
    rss: dict[int, int]
    rungs: set[str]


@dataclass(frozen=True)
class Played:
    """verdicts: of each case. livez: what was answered meanwhile. sandboxes_failed: lines of the log, until those cases
    came that have a sandbox fail.
    """

    fleet: Fleet
    verdicts: dict[str, "Future[None]"]
    before: Look
    after: Look
    livez: set[int]
    sandboxes_failed: list[str]


@pytest.fixture(scope="module")
def fence() -> None:
    furnish(MARK)


@pytest.fixture(scope="module", params=FLEETS, ids="-".join)
def played(request: pytest.FixtureRequest, fence: None, server_kind: str) -> Iterator[Played]:
    with fleet(server_kind, *request.param) as made:
        delivered = records.twice(made)
        made.start()
        for name in NAMES:
            made.bait.another_canary(name)
        verdicts = {
            "mr-14": judged(made, "mr-14", partial(records.once, run_id=delivered[0], entity=delivered[1])),
            "met-01": judged(made, "met-01", runs.be_many),
        }
        before = look(made)
        others, livez = all_at_once(made)
        verdicts |= others
        eventually(lambda: sorted(made.worker.pids()) == before.pids, what="the worker's own processes alone")
        after = look(made)
        failed = sandboxes_failed(made)
        verdicts |= {name: judged(made, name, play) for name, play in DEATHS.items()}
        yield Played(made, verdicts, before, after, livez, failed)


def look(made: Fleet) -> Look:
    pids = sorted(made.worker.pids())
    rungs = set(family(scraped(made.worker.url), "mandor_commands_total"))
    return Look(made.bait.state(), pids, {pid: rss_kb(pid) for pid in pids}, rungs)


def sandboxes_failed(made: Fleet) -> list[str]:
    """What any worker has said of that so far."""
    return [line for line in made.system.processes.lines() if "sandbox.failed" in line]


def all_at_once(made: Fleet) -> tuple[dict[str, "Future[None]"], set[int]]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = {name: pool.submit(play_one, made, name, play) for name, play in CASES.items()}
        livez: set[int] = set()
        eventually(lambda: asked(made, livez, verdicts), timeout_s=ALL_S, every_s=1.0)
    return verdicts, livez


def asked(made: Fleet, livez: set[int], verdicts: dict[str, "Future[None]"]) -> bool:
    """Ask the worker how it is; whether all is over."""
    livez.add(probed(made.worker.url, "/livez")[0])
    return all(one.done() for one in verdicts.values())


def judged(made: Fleet, name: str, play: Callable[[Scene], None]) -> "Future[None]":
    with ThreadPoolExecutor(1) as alone:
        return alone.submit(play_one, made, name, play)


def play_one(made: Fleet, name: str, play: Callable[[Scene], None]) -> None:
    scene = Scene(made, name)
    with harmless(scene):
        play(scene)


@pytest.mark.parametrize("name", NAMES)
def test_a_case_does_no_harm_by_whole_workers(played: Played, name: str) -> None:
    played.verdicts[name].result()


def test_all_that_lies_outside_is_as_it_was(played: Played) -> None:
    assert played.after.outside == played.before.outside


def test_the_worker_has_lost_nobody_and_has_no_zombie(played: Played) -> None:
    assert played.after.pids == played.before.pids
    assert played.livez == {200}


def test_all_commands_ran_on_one_rung(played: Played) -> None:
    assert played.after.rungs == {played.fleet.rung}


def test_no_sandbox_failed_but_where_a_case_has_it_fail(played: Played) -> None:
    assert played.sandboxes_failed == []
    assert sandboxes_failed(played.fleet), "it would have been seen"


def test_it_has_not_grown(played: Played) -> None:
    grown = {pid: played.after.rss[pid] - had for pid, had in played.before.rss.items()}
    assert max(grown.values()) < GROWN_KB, grown


def test_every_signal_was_for_its_own(played: Played) -> None:
    sent = kills(played.fleet.bait.folder).read_text().splitlines()
    assert [line for line in sent if line.startswith("os.killpg") and line.endswith("its child")]
    assert not [line for line in sent if line.endswith(GONE)]


def test_no_line_is_forged_or_tells_a_secret(played: Played) -> None:
    lines = played.fleet.system.processes.lines()
    assert len(lines) > 100
    assert not [line for line in lines if line.lstrip().startswith(("2026-01-01T", "ERROR forged"))]
    assert not [line for line in lines if MARK in line or played.fleet.password in line]
    ours = [line for line in lines if line.startswith("{")]
    assert all(json.loads(line)["event"] for line in ours)
    assert not [line for line in ours if runs.RAW.search(line)]


def test_no_run_is_there_that_nobody_asked_for(played: Played) -> None:
    listed = played.fleet.system.installed.ledger.listed(1000)
    assert {one.run_id for one in listed} == played.fleet.runs
