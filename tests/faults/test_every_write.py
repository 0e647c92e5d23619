"""A process dies at a write, before it or after it; so for each write of a run's life, whatever its end.

What comes of the run must be what comes of it without a death, and every effect what its class promises.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.ids import RunRef
from tests.support.deaths import Freezer, When
from tests.support.mortals import Loss, Mortals, mortals
from tests.support.servers import Server
from tests.support.stories import PASSES, STORIES, Story, of_effects, scene, told

DRAWN = 6  # writes of each story, where not all of them have their turn
PAIRS = 10  # of each story and loss
WHEN: tuple[When, ...] = ("before", "after")


@pytest.fixture
def installed(
    redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mortals]:
    with mortals(redis_server, namespace, tmp_path, monkeypatch, Mortals) as made:
        yield made


LOSSES = ["child", pytest.param("host", marks=pytest.mark.full)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", STORIES)
def test_whoever_dies_at_a_write_changes_nothing_of_the_end(
    installed: Mortals, name: str, loss: Loss, request: pytest.FixtureRequest
) -> None:
    """A child at each of them, with --full; else at some, drawn anew each time."""
    story = STORIES[name]
    installed.loss = loss
    ref, writes = told(installed, story)
    assert judged(installed, story, ref, deaths=0) == []
    assert len(writes) > 5
    every_one = loss == "child" and request.config.getoption("--full")
    for index, write in places(writes) if every_one else some(places(writes)):
        for when in WHEN:
            ref, _ = told(installed, story, (index, when))
            wrong = judged(installed, story, ref, deaths=1)
            assert not wrong, f"dead {when} {index} {write}: {wrong}\n{scene(installed, ref)}"


def places(writes: list[str]) -> list[tuple[int, str]]:
    """Each write with its number, without those of passes that find nothing."""
    return [(index, write) for index, write in enumerate(writes) if write not in PASSES]


def some(places: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """As many as there is time for."""
    return random.sample(places, min(DRAWN, len(places)))


@pytest.mark.full
@pytest.mark.parametrize("loss", ["child", "host"])
@pytest.mark.parametrize("name", STORIES)
def test_two_deaths_change_nothing_either(installed: Mortals, name: str, loss: Loss) -> None:
    """Also at what was begun to get over the first: pairs at random, the seed is in the message."""
    story, seed = STORIES[name], random.randrange(10**6)
    drawn = random.Random(seed)
    installed.loss = loss
    _, writes = told(installed, story)
    for _ in range(PAIRS):
        first, later = drawn.randrange(len(writes)), drawn.randrange(1, len(writes))
        fatal = ((first, drawn.choice(WHEN)), (first + later, drawn.choice(WHEN)))
        ref, _ = told(installed, story, *fatal)
        wrong = judged(installed, story, ref, deaths=2)
        assert not wrong, f"seed {seed}, dead at {fatal}: {wrong}\n{scene(installed, ref)}"


@pytest.mark.full
@pytest.mark.parametrize("name", STORIES)
def test_whoever_freezes_at_a_write_and_wakes_when_all_is_over_changes_nothing(installed: Mortals, name: str) -> None:
    """At some writes of each story, drawn anew each time."""
    story = STORIES[name]
    installed.loss = "host"
    _, writes = told(installed, story)
    for index, write in some(places(writes)):
        for when in WHEN:
            freezer = Freezer((index, when))
            ref, _ = told(installed, story, freezer=freezer)
            freezer.wake()
            installed.rest()
            wrong = judged(installed, story, ref, deaths=1)
            assert not wrong, f"frozen {when} {index} {write}: {wrong}\n{scene(installed, ref)}"


@pytest.mark.full
@pytest.mark.parametrize("action", ["wakes", "wakes_and_raises"])
def test_whoever_dies_while_something_comes_late_it_is_undone_or_a_person_is_told(
    installed: Mortals, action: str
) -> None:
    """A process is frozen until its run was undone and had ended, and then acts."""
    writes = came_late(installed, action)
    assert accounted_for(installed) == (1, 1, "told" if action == "wakes" else "unheard of")
    late = [place for place in places(writes) if place[0] >= installed.world.woken]
    assert len(late) > 5
    for index, write in late:
        for when in WHEN:
            came_late(installed, action, (index, when))
            done, undone, known = accounted_for(installed)
            assert done == undone or (done, undone, known) in UNDONE_BY_NOBODY, f"dead {when} {index} {write}: {known}"


# its undo was begun once, and is a letter; or the process itself died before it could tell, which nobody can mend
UNDONE_BY_NOBODY = [(1, 0, "given up"), (1, 0, "unheard of")]


def came_late(mortals: Mortals, action: str, *fatal: tuple[int, When]) -> list[str]:
    mortals.world.meanwhile = mortals.rest
    mortals.submitted({"action": action, "params": {"x": 1}}, fatal=fatal)
    mortals.rest()
    mortals.doors.fatal, mortals.world.meanwhile = frozenset(), None
    return list(mortals.doors.passed)


def accounted_for(mortals: Mortals) -> tuple[int, int, str]:
    """How often the newest run's step was done and undone, and what a person knows of it."""
    (run,) = mortals.ledger.listed(1)
    letters = mortals.ledger.letters(100, run_id=run.run_id)
    reasons = [letter.reason for letter in letters]
    assert len(reasons) == len(set(reasons)), reasons
    known = "given up" if "undo" in {letter.kind.value for letter in letters} else "unheard of"
    if known == "unheard of" and "late_effect" in reasons:
        known = "told"
    return mortals.world.count("do", "s0"), mortals.world.count("undo", "s0"), known


# ---- what must hold


def judged(mortals: Mortals, story: Story, ref: RunRef, *, deaths: int) -> list[str]:
    """All that is wrong with a run that has come to rest."""
    row, state = mortals.row(ref), mortals.store.views.run(ref)
    allowed = story.ends(deaths)
    wrong = [] if row.status in allowed else [f"it is {row.status}, not {allowed}"]
    if state is None or (state.status, state.version) != (row.status, row.version):
        wrong.append(f"the store says {state}, the ledger {row.status} {row.version}")
    return [*wrong, *_versions(mortals, ref), *of_effects(mortals, story, ref), *_letters(mortals, row.status, ref)]


def _versions(mortals: Mortals, ref: RunRef) -> Iterator[str]:
    events = mortals.store.views.events(ref)
    if [event.version for event in events] != list(range(1, len(events) + 1)):
        yield f"versions {[event.version for event in events]}"


def _letters(mortals: Mortals, status: str, ref: RunRef) -> Iterator[str]:
    letters = [
        (letter.kind.value, letter.step_id, letter.reason) for letter in mortals.ledger.letters(100, run_id=ref.run_id)
    ]
    owed = {"dead_lettered": "plan", "compensation_failed": "undo"}.get(status)
    if owed and owed not in [kind for kind, _, _ in letters]:
        yield f"no letter about a run that is {status}: {letters}"
    if len(letters) != len(set(letters)):
        yield f"the same letter twice: {letters}"
