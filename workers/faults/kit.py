"""Plays the scenarios: a home of its own, an installation in it, a rehearsal, then one scenario after the other.

Nothing of the caller's installation is used, and nothing is left: the home goes, its processes with it, whatever ends
this program. What needs the installation's settings is imported once they are this process's own.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import mkfifo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import MandorError
from orchestrator.local import EmbeddedServer, surroundings
from orchestrator.local.interrupts import Interrupts
from workers.faults import example, hands, log
from workers.faults.report import Outcome, Report, judge
from workers.faults.scene import Scene
from workers.faults.titles import TITLES

if TYPE_CHECKING:
    from workers.faults.floor import Driven, Floor

LEASE_S: Final = 3.0
SWEEP_S: Final = 0.5
HASTE: Final = {
    "lease_s": LEASE_S,
    "sweep_s": SWEEP_S,
    "stop_grace_s": 1,
    "dispatch_check_s": 1,
    "backoff_s": 0.2,
    "audit_s": 1,
    "term_grace_s": 5,
}
QUIET: Final = {
    "metrics": "false",
    "control_port": 0,
    "planner_port": 0,
    "steps_port": 0,
    "supervise_port": 0,
    "log_format": "json",
}
EXAMPLE: Final = "workers.faults.example"
REHEARSAL_S: Final = 60.0


class RehearsalFailed(MandorError):
    """What is to be driven does not succeed when nothing is done to it."""

    kind = "rehearsal_failed"


@dataclass(frozen=True, slots=True)
class Options:
    """What to play. actions: modules, separated by commas, None for the kit's example; planner, plan, context: as a
    submission has them. keep: leave the home where it is.
    """

    scenarios: tuple[str, ...]
    seed: int
    actions: str | None = None
    planner: str | None = None
    plan: str | None = None
    context: dict[str, Any] | None = None
    keep: bool = False

    @property
    def driven(self) -> str:
        """What is driven, in words."""
        return self.actions or "the kit's own example"


def play(options: Options, on_outcome: Callable[[Outcome], None]) -> Report:
    """Play and judge. on_outcome: told of each scenario as soon as it is judged. MandorError: it could not begin."""
    interrupts = Interrupts()
    interrupts.install()
    with _home(options, interrupts) as home, _installation(options, home, interrupts) as floor:
        _rehearse(floor, options)
        outcomes = []
        for name in options.scenarios:
            outcomes.append(_outcome(floor, Scene(name, options.seed)))
            on_outcome(outcomes[-1])
    bound_ms = round(1000 * (LEASE_S + 2 * SWEEP_S))
    return Report(options.seed, options.driven, bound_ms, tuple(outcomes))


# ---- the installation


@contextmanager
def _home(options: Options, interrupts: Interrupts) -> Iterator[Path]:
    with interrupts.held():
        home = Path(tempfile.mkdtemp(prefix="mandor-faults-"))
    try:
        yield home
    finally:
        interrupts.ignore()
        if options.keep:
            print(f"kept in {home}", file=sys.stderr)  # noqa: T201
        else:
            shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _installation(options: Options, home: Path, interrupts: Interrupts) -> Iterator["Floor"]:
    """Server and processes, all gone at the end of the block."""
    for name in ("logs", "tmp"):
        (home / name).mkdir()
    mkfifo(home / log.PIPE)
    server, processes = EmbeddedServer(home / "server"), hands.Hands(home / "logs", interrupts)
    try:
        with interrupts.held():
            server.start()
            processes.guard(server.pid)
        env = environment(options, home, server.url)
        surroundings.move_into(env)
        _set_up()
        inside = {**env, log.FOLDER: str(home)}
        processes.start([hands.witness_command(home), *hands.commands(inside)])
        yield _floor(options, home, server, processes)
    finally:
        interrupts.ignore()
        processes.kill_all()
        group = server.pid
        server.stop()
        processes.forget(group)
        processes.end()


def environment(options: Options, home: Path, redis_url: str) -> dict[str, str]:
    """What every process is started with: nothing of the caller's installation, all of ours."""
    named = {"home": home, "redis_url": redis_url, "embedded": "true", "actions": options.actions or EXAMPLE}
    # what a killed worker leaves in the folder of temporary files goes with the home
    return {**surroundings.clean(**named, **HASTE, **QUIET), "TMPDIR": str(home / "tmp")}


def _set_up() -> None:
    """What `mandor ledger upgrade` does."""
    from orchestrator import verification
    from orchestrator.ledger import open_ledger
    from orchestrator.settings import settings
    from workers.registry import load_actions

    settings.cache_clear()
    given = settings()
    load_actions(given)
    verification.upgrade(open_ledger(given.ledger), given)


def _floor(options: Options, home: Path, server: EmbeddedServer, processes: hands.Hands) -> "Floor":
    from workers.faults.floor import Floor

    return Floor(home, server, processes, _driven(options))


def _driven(options: Options) -> "Driven":
    from workers.faults.floor import Driven

    if options.planner is None and options.plan is None:
        return Driven(planner=example.PLANNER)
    return Driven(options.planner, options.plan, options.context or {})


# ---- playing


def _rehearse(floor: "Floor", options: Options) -> None:
    """One run to which nothing is done: it must succeed, and shows which steps there are."""
    scene = Scene("rehearsal", options.seed)
    runs = floor.announce(scene, 1)
    floor.submit(runs)
    floor.until_over(scene)
    view = floor.lookup.run(runs[0].run_id)
    if view.status != "succeeded":
        why = next((f"{step.id}: {step.error.message}" for step in view.steps if step.error), view.reason)
        raise RehearsalFailed(
            f"without any fault the run is {view.status}: {why}", hint="mend the plan or its actions first"
        )
    floor.steps = floor.store.views.steps(floor.lookup.ref(floor.lookup.find(view.run_id)))


def _outcome(floor: "Floor", scene: Scene) -> Outcome:
    """Play one scenario and judge it. What could not be played is a failure too."""
    from workers.faults.facts import gather
    from workers.faults.scenes.all import SCENES

    began, title, error = time.monotonic(), TITLES[scene.name], None
    floor.until(floor.hands.all_ready, "everybody is ready", hands.READY_S)
    try:
        SCENES[scene.name](floor, scene)
    except MandorError as wrong:
        error = f"{wrong.kind}: {wrong.message}"
    floor.order([])
    floor.let_go(floor.holding(scene))
    return _judged(gather, floor, scene, title, time.monotonic() - began, error)


def _judged(
    gather: Callable[..., Sequence[Any]], floor: "Floor", scene: Scene, title: str, seconds: float, error: str | None
) -> Outcome:
    from dataclasses import replace

    try:
        outcome = judge(scene, title, gather(floor, scene), seconds)
    except MandorError as wrong:
        outcome = Outcome(scene.name, title, round(seconds, 1), error=f"{wrong.kind}: {wrong.message}")
    return replace(outcome, error=error or outcome.error)
