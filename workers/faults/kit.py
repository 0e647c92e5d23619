"""Plays the scenarios: an installation that is thrown away, a rehearsal in it, then one scenario after the other."""

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from orchestrator.errors import MandorError
from orchestrator.local.interrupts import Interrupts
from workers.faults.driven import EXAMPLE, Audit, Driven, find_audit
from workers.faults.hands import READY_S
from workers.faults.installation import LEASE_S, SWEEP_S, Installation, temporary_home
from workers.faults.rehearsal import rehearse
from workers.faults.report import Outcome, Report, judge
from workers.faults.scene import Scene
from workers.faults.titles import TITLES

if TYPE_CHECKING:
    from workers.faults.floor import Floor

REHEARSAL_S: Final = 300.0
RECOVERY_S: Final = 60.0
BOUND_MS: Final = round(1000 * (LEASE_S + 2 * SWEEP_S))
TIMES: Final = 4  # a run with faults may take so many times as long as one without, besides what recovery takes


@dataclass(frozen=True, slots=True)
class Options:
    """What to play. actions: modules, separated by commas, None for the kit's example; planner, plan, context: as a
    submission has them. audit: `module:function` that is asked after each scenario what is wrong with the world
    outside. keep: leave the home where it is.
    """

    scenarios: tuple[str, ...]
    seed: int
    actions: str | None = None
    planner: str | None = None
    plan: str | None = None
    context: dict[str, Any] | None = None
    audit: str | None = None
    keep: bool = False

    @property
    def subject(self) -> str:
        """What is driven, in words."""
        return self.actions or self.planner or ("a plan" if self.plan else "the kit's own example")

    @property
    def driven(self) -> Driven:
        """The same as runs are submitted."""
        if self.planner is None and self.plan is None:
            return Driven()
        return Driven(self.planner, self.plan, self.context or {})


class Screen(Protocol):
    """Where it is told."""

    def during(self, what: str) -> AbstractContextManager[None]:
        """Inside the block this goes on."""

    def judged(self, outcome: Outcome) -> None:
        """A scenario is over."""


def play(options: Options, screen: Screen) -> Report:
    """Play and judge. MandorError: it could not begin."""
    interrupts = Interrupts()
    interrupts.install()
    outcomes = []
    with (
        temporary_home(interrupts, keep=options.keep) as home,
        Installation(home, options.actions or EXAMPLE, interrupts) as installation,
    ):
        with screen.during("starting server and workers, then one run without faults"):
            floor = installation.start(options.driven)
            audit = find_audit(options.audit)
            _rehearse(floor, options)
        for name in options.scenarios:
            with screen.during(f"{name}: {TITLES[name]}"):
                outcomes.append(_outcome(floor, Scene(name, options.seed), audit))
            screen.judged(outcomes[-1])
    return Report(options.seed, options.subject, BOUND_MS, tuple(outcomes))


def _rehearse(floor: "Floor", options: Options) -> None:
    """It shows how long a run takes, too."""
    began, scene = time.monotonic(), Scene("rehearsal", options.seed)
    floor.patience_s = REHEARSAL_S
    floor.announce(scene, 1)
    rehearse(floor, scene)
    floor.run_s = time.monotonic() - began
    floor.patience_s = RECOVERY_S + TIMES * floor.run_s


def _outcome(floor: "Floor", scene: Scene, audit: Audit) -> Outcome:
    """Play one scenario and judge it. What could not be played is a failure too."""
    began, title = time.monotonic(), TITLES[scene.name]
    error = _played(floor, scene)
    seconds = round(time.monotonic() - began, 1)
    try:
        return replace(_judged(floor, scene, audit, seconds), error=error)
    except MandorError as wrong:
        return Outcome(scene.name, title, seconds, error=error or _said(wrong))


def _played(floor: "Floor", scene: Scene) -> str | None:
    """Play it; answers why it could not be."""
    from workers.faults.scenes.all import SCENES

    try:
        floor.until(floor.hands.all_ready, "everybody is ready", READY_S)
        SCENES[scene.name](floor, scene)
        floor.note_missed(scene)
    except MandorError as wrong:
        return _said(wrong)
    finally:
        floor.order([])
        floor.let_go(floor.holding(scene))
    return None


def _judged(floor: "Floor", scene: Scene, audit: Audit, seconds: float) -> Outcome:
    from workers.faults.facts import gather

    facts = gather(floor, scene)
    complaints = tuple(audit(scene.run_ids()))
    return judge(scene, TITLES[scene.name], facts, seconds, complaints, BOUND_MS)


def _said(wrong: MandorError) -> str:
    return f"{wrong.kind}: {wrong.message}"
