"""`./dev bench faults`: what is counted, what a step does, and what is said of those that cannot take part."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from benchmarks.faults import chords, outside
from benchmarks.faults.contest import Size, Verdicts
from benchmarks.faults.sides import CELERY, MANDOR, SIDES
from benchmarks.faults.verdicts import Count, Seen
from benchmarks.faults.work import END, PARTS, SENDING, SENT, SESSION, WORLDS, act, effects, said
from benchmarks.site import ROOT
from orchestrator.policies import FROM_BROKER
from schemas.ids import run_id_for
from workers.faults import log, orders
from workers.faults.installation import HASTE
from workers.faults.orders import Order

OWN = [said("r", part) for part in PARTS]


def counted(seen: Seen) -> Count:
    count = Count()
    count.add(seen)
    return count


def test_a_run_in_which_nothing_is_wrong_counts_for_nothing_but_its_time() -> None:
    count = counted(Seen("r", [1, 1, 1], "done", [OWN[2], OWN[0], OWN[1]], harmed_at=1000, ended_at=3500))
    assert count.words() == "clean; 2.5 s, 2.5 s at most"
    assert count.fields()["recovery_ms"] == [2500, 2500]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Seen("r", [3, 1, 2], "done", OWN), "3 doubled"),
        (Seen("r", [1, 0, 1], "done", OWN), "1 lost"),
        (Seen("r", [1, 0, 1], None), "1 lost, 1 stuck"),
        (Seen("r", [1, 0, 0], "failed", "dead_lettered"), "1 given up"),
        (Seen("r", [1, 1, 1], "done", OWN[:2]), "1 wrong"),
        (Seen("r", [1, 1, 1], "done", [OWN[0], OWN[0], OWN[2]]), "1 wrong"),
        (Seen("r", [1, 1, 1], "done", [*OWN[:2], said("another", PARTS[2])]), "1 wrong"),
        (Seen("r", [1, 1, 1], "done", {"status": "rejected"}), "1 wrong"),
    ],
)
def test_each_thing_that_is_wrong_is_counted(seen: Seen, words: str) -> None:
    assert counted(seen).words() == words


def test_all_haste_of_our_side_is_named() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| Mandor | the Procfile"))
    for name, seconds in HASTE.items():
        said = f"MANDOR_{name.upper()}={seconds:g}"
        assert said in MANDOR.settings
        assert f"`{said}`" in row


def test_the_table_marks_what_a_side_is_not_made_for_and_names_who_is_missing() -> None:
    found = Verdicts([CELERY, MANDOR], Size(1, ["S4"]), skipped={"relier": "no network"})
    for side in found.sides:
        found.counts[side.name, "S4", "blind"] = counted(Seen("r", [2, 1, 1], "done", OWN))
    text = "\n".join(found.lines())
    assert "| S4 a step outlasts lease and visibility timeout | 1 doubled † | 1 doubled |" in text
    assert "relier is left out: no network" in text
    assert found.fields()["mandor"]["S4"]["blind"]["doubled"] == 1


def test_what_cannot_be_installed_is_told(tmp_path: Path) -> None:
    why = outside.install(str(tmp_path / "no such package"), tmp_path / "libraries")
    assert why is not None
    assert "installation failed" in why


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With a pipe to which somebody listens."""
    os.mkfifo(tmp_path / log.PIPE)
    monkeypatch.setenv(log.FOLDER, str(tmp_path))
    listener = os.open(tmp_path / log.PIPE, os.O_RDWR)
    yield tmp_path
    os.close(listener)


def test_only_a_world_that_is_asked_or_knows_keys_has_an_effect_once(world: Path) -> None:
    for part, kind in zip(PARTS, WORLDS, strict=True):
        assert [act("r", part, kind), act("r", part, kind)] == [said("r", part)] * 2
    assert [effects(world, "r", part) for part in PARTS] == [2, 1, 1]
    assert effects(world, "another", "first") == 0


def test_a_step_can_be_stopped_between_asking_and_acting(world: Path) -> None:
    orders.put(world, [Order("o", "r", "first", "acting", "fail")])
    with pytest.raises(Exception, match="wants this step to fail"):
        act("r", "first", "asked")
    assert effects(world, "r", "first") == 0


@pytest.mark.parametrize("place", [SENDING, SENT])
def test_whoever_sends_the_body_of_a_chord_can_be_stopped(world: Path, place: str) -> None:
    orders.put(world, [Order("o", "r", END, place, "last")])
    app = Celery("watched", broker="memory://", backend="cache+memory://")

    def nothing() -> None:
        pass

    total, other = (app.task(nothing, name=name, shared=False) for name in ("total", "other"))
    chords.watch(total)
    other.apply_async(task_id="r")
    total.apply_async(task_id="another")
    assert not (world / orders.CARRIED_OUT / "o").exists()
    total.apply_async(task_id="r")
    assert (world / orders.CARRIED_OUT / "o").exists()


def test_each_side_knows_a_run_by_the_id_that_its_messages_bear() -> None:
    assert (CELERY.known_as("r"), MANDOR.known_as("r")) == ("r", run_id_for(FROM_BROKER, SESSION, "r"))
    assert [side.name for side in SIDES.values() if not side.sends] == ["relier"]


def test_it_is_told_why_a_run_was_given_up() -> None:
    found = Verdicts([CELERY], Size(1, ["S8"]))
    found.counts[CELERY.name, "S8", "asked"] = counted(Seen("r", [1, 1, 1], "failed", "TimeLimitExceeded(10)"))
    assert "given up by celery, S8, asked: 1 times TimeLimitExceeded(10)" in found.lines()
    assert found.fields()["celery"]["S8"]["asked"]["given_up_for"] == {"TimeLimitExceeded(10)": 1}
