"""Plays the scenarios: an installation that is thrown away, a rehearsal in it, then one scenario after the other."""

import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

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

Answer = TypeVar("Answer")
REHEARSAL_S: Final = 300.0
RECOVERY_S: Final = 60.0
BOUND_MS: Final = round(1000 * (LEASE_S + 2 * SWEEP_S))
TIMES: Final = 4  # a run with faults may take so many times as long as one without, besides what recovery takes


class AuditFailed(MandorError):
    """What was asked about the world outside has given no answer that could be used."""

    kind = "audit_failed"


@dataclass(frozen=True, slots=True)
class Options:
    """What to play. actions: modules, separated by commas, None for the kit's example; planner, plan, context: as a
    submission has them. audit: `module:function` that is asked after each scenario what is wrong with the world
    outside. keep: leave the home where it is. call: what no other call's runs have in their names.
    """

    scenarios: tuple[str, ...]
    seed: int
    actions: str | None = None
    planner: str | None = None
    plan: str | None = None
    context: dict[str, Any] | None = None
    audit: str | None = None
    keep: bool = False
    call: str = field(default_factory=lambda: secrets.token_hex(4))

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
    """Play and judge. What users' own code prints meanwhile goes to standard error. MandorError: it could not begin."""
    with redirect_stdout(sys.stderr):
        return _play_all(options, screen)


def _play_all(options: Options, screen: Screen) -> Report:
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
                outcomes.append(_outcome(floor, Scene(name, options.seed, options.call), audit))
            screen.judged(outcomes[-1])
    return Report(options.seed, options.subject, BOUND_MS, tuple(outcomes), options.call)


def _rehearse(floor: "Floor", options: Options) -> None:
    """It shows how long a run takes, too."""
    began, scene = time.monotonic(), Scene("rehearsal", options.seed, options.call)
    floor.patience_s = REHEARSAL_S
    floor.announce(scene, 1)
    rehearse(floor, scene)
    floor.run_s = time.monotonic() - began
    floor.patience_s = RECOVERY_S + TIMES * floor.run_s


def _outcome(floor: "Floor", scene: Scene, audit: Audit) -> Outcome:
    """Play one scenario and judge it. What cannot be played or looked at is a failure too, and no end of the others."""
    from workers.faults.facts import gather

    began, title, errors = time.monotonic(), TITLES[scene.name], list[str]()
    _tried(errors, lambda: _play(floor, scene))
    seconds = round(time.monotonic() - began, 1)
    facts = _tried(errors, lambda: gather(floor, scene))
    complaints = _tried(errors, lambda: asked(audit, scene.run_ids())) if scene.run_ids() else ()
    error = "; ".join(errors) or None
    if facts is None:
        return Outcome(scene.name, title, seconds, error=error)
    return replace(judge(scene, title, facts, seconds, complaints or (), BOUND_MS), error=error)


def _tried(errors: list[str], work: Callable[[], Answer]) -> Answer | None:
    """What it answers. None: it raised, and that is noted; of what nobody has foreseen the traceback is shown, too."""
    try:
        return work()
    except MandorError as wrong:
        errors.append(f"{wrong.kind}: {wrong.message}")
    except Exception as wrong:  # noqa: BLE001  # a user's code, or ours, over one of many scenarios
        traceback.print_exception(wrong)
        errors.append(f"{type(wrong).__name__}: {wrong}")
    return None


def _play(floor: "Floor", scene: Scene) -> None:
    from workers.faults.scenes.all import SCENES

    try:
        floor.until(floor.hands.all_ready, "everybody is ready", READY_S)
        SCENES[scene.name](floor, scene)
        floor.note_missed(scene)
    finally:
        floor.order([])
        floor.let_go(floor.holding(scene))


def asked(audit: Audit, run_ids: list[str]) -> tuple[str, ...]:
    """What is wrong outside. AuditFailed: its answer is no texts."""
    found: object = audit(run_ids)
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise AuditFailed(f"--audit answered {found!r}, where texts are wanted, one for each thing that is wrong")
    return tuple(str(one) for one in found)
