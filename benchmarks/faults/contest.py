"""The contest: each scenario on each side in turn, in rounds, each on an installation of its own."""

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.faults import outside
from benchmarks.faults.scenes import SCENES
from benchmarks.faults.sides import SIDES, Side
from benchmarks.faults.verdicts import Count, Seen
from benchmarks.faults.work import PARTS, WORLDS, effects
from benchmarks.faults.yard import Yard, stand
from orchestrator.errors import MandorError
from workers.faults.scene import Scene

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """How often, and what."""

    rounds: int
    scenes: Sequence[str]


FULL: Final = Size(rounds=2, scenes=tuple(SCENES))
QUICK: Final = Size(rounds=1, scenes=("S1", "S8"))


@dataclass
class Verdicts:
    """What came of it. skipped: sides that could not take part, and why; unplayed: what could not be done to whom."""

    sides: list[Side]
    size: Size
    skipped: dict[str, str] = field(default_factory=dict)
    unplayed: list[str] = field(default_factory=list)
    counts: dict[tuple[str, str, str], Count] = field(default_factory=dict)
    contest: str = "faults"

    def fields(self) -> dict[str, Any]:
        """`faults.mandor.S1.blind.doubled` is a number."""
        found: dict[str, Any] = {}
        for (side, scene, world), count in self.counts.items():
            found.setdefault(side, {}).setdefault(scene, {})[world] = count.fields()
        settings = {side.name: side.settings for side in self.sides}
        about = {"rounds": self.size.rounds, "celery": version("celery"), "settings": settings}
        return {"about": about, "skipped": self.skipped, "unplayed": self.unplayed, **found}

    def lines(self) -> Iterator[str]:
        """A table for each world, with a row for each scenario; then how each side was set."""
        for world in WORLDS:
            yield f"{WORLDS[world]}; of the runs in {self.size.rounds} rounds:"
            yield ""
            yield from self._table(world)
            yield ""
        yield "seconds: from the interruption to the end of a run that succeeded, median and longest"
        yield "†: its documentation says that it is not made for this, or says nothing of it"
        yield from (f"{side.name}: {side.settings}" for side in self.sides)
        yield from (f"{name} is left out: {why}" for name, why in self.skipped.items())
        yield from self._given_up()
        yield from self.unplayed

    def _given_up(self) -> Iterator[str]:
        """What is told of runs that were given up: a limit that strikes on a busy machine is no fault of a guard."""
        for (side, scene, world), count in self.counts.items():
            for why, times in count.given_up_for.items():
                yield f"given up by {side}, {scene}, {world}: {times} times {why}"

    def _table(self, world: str) -> Iterator[str]:
        yield "| | " + " | ".join(side.name for side in self.sides) + " |"
        yield "|---" * (len(self.sides) + 1) + "|"
        for scene in self.size.scenes:
            cells = [self._cell(side, scene, world) for side in self.sides]
            yield f"| {scene} {SCENES[scene][0]} | " + " | ".join(cells) + " |"

    def _cell(self, side: Side, scene: str, world: str) -> str:
        mark = " †" if scene in side.not_promised else ""
        count = self.counts.get((side.name, scene, world))
        return f"{count.words()}{mark}" if count else "-"


def hold(names: Collection[str], size: Size, say: Say) -> Verdicts:
    """All of it. What cannot be installed is left out, and said."""
    with tempfile.TemporaryDirectory(prefix="mandor-bench-") as folder:
        libraries = Path(folder)
        skipped = {name: why for name in names if (why := _missing(SIDES[name], libraries))}
        found = Verdicts([SIDES[name] for name in names if name not in skipped], size, skipped)
        for number in range(1, size.rounds + 1):
            for scene in size.scenes:
                for side in found.sides:
                    say(f"round {number}, {scene}, {side.name}")
                    _play(found, side, Scene(scene, number), libraries / side.name)
        return found


def _missing(side: Side, libraries: Path) -> str | None:
    return outside.install(side.package, libraries / side.name) if side.package else None


def _play(found: Verdicts, side: Side, scene: Scene, libraries: Path) -> None:
    try:
        with stand(side, libraries) as yard:
            SCENES[scene.name][1](yard, scene)
            yard.hear_all()
            seen = list(_seen(yard, scene))
    except MandorError as wrong:
        found.unplayed.append(f"{scene.name} could not be done to {side.name} in round {scene.seed}: {wrong.message}")
        return
    for wanted, run in zip(scene.runs, seen, strict=True):
        found.counts.setdefault((side.name, scene.name, wanted.fields["world"]), Count()).add(run)


def _seen(yard: Yard, scene: Scene) -> Iterator[Seen]:
    harmed = {fault.run_id: fault.at for fault in scene.faults if fault.interrupts}  # the last one counts
    for run in scene.runs:
        end, result, at = yard.ends.get(run.run_id, (None, None, None))
        times = [effects(yard.folder, run.run_id, part) for part in PARTS]
        yield Seen(run.run_id, times, end, result, harmed.get(run.run_id), at)
