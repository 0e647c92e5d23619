"""Whoever publishes is killed, on either side of each message; and so is who accepts a submission."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.store.views import StepState
from workers.faults.floor import Floor
from workers.faults.orders import Order
from workers.faults.parts import OPENED_FIRST, has_effect, has_probe, has_undo, needed_by
from workers.faults.scene import SUCCEEDED, UNDONE, Scene, Wanted

SIDES: Final = ("sending", "sent")
ACCEPTED: Final = (("submit", "accepting"), ("submit", "accepted"))
LONG_MS: Final = 30_000  # an attempt with a shorter limit does not live to be woken


@dataclass(frozen=True, slots=True)
class Ended:
    """A run, and what is ordered for it."""

    run: Wanted
    orders: tuple[Order, ...]


def around_publishes(floor: Floor, scene: Scene) -> None:
    """S12. One run for each message of a run's life and each side of its publish; whoever sends it dies there. Two
    kinds are sent only about attempts that are frozen: their runs come first, the others when those have ended.
    """
    asked, late = _asked_after(floor, scene), _come_late(floor, scene)
    others = [*_to_success(floor, scene), *_to_undoing(floor, scene)]
    floor.order(order for ended in (*asked, *late, *others) for order in ended.orders)
    _play_frozen(floor, scene, [ended.run for ended in (*asked, *late)])
    floor.send(ended.run for ended in others)
    floor.until_over(scene)
    floor.until_late_is_undone()
    for act in floor.ordered(scene):
        if act.details["deed"] == "die":
            scene.fault(f"killed {act.details['place']} {act.step_id}", act.run_id, at=act.at)


def _play_frozen(floor: Floor, scene: Scene, runs: list[Wanted]) -> None:
    """Their attempts hold behind their effects, freeze, and wake when all of these runs are over."""
    floor.send(runs)
    floor.until(lambda: len(floor.holding(scene)) == len(runs), "an attempt of each held")
    frozen = floor.freeze_holding(scene)
    floor.until(lambda: all(floor.is_over(run.run_id) for run in runs), "the end of runs with frozen attempts")
    floor.thaw(frozen)


def _to_success(floor: Floor, scene: Scene) -> Iterable[Ended]:
    """The submission, and the messages of a run that succeeds."""
    messages = ["plan", "settle", *(f"step:{step.id}" for step in floor.steps)]
    deaths = [*ACCEPTED, *((message, side) for message in messages for side in SIDES)]
    runs = floor.announce(scene, len(deaths))
    return [Ended(run, (_dies(run, *death),)) for run, death in zip(runs, deaths, strict=True)]


def _to_undoing(floor: Floor, scene: Scene) -> Iterable[Ended]:
    """Those of a run that fails in the end."""
    done = [step.id for step in needed_by(floor.steps, floor.steps[-1]) if has_effect(step)]
    deaths = [(f"undo:{step_id}", side) for step_id in done for side in SIDES]
    runs = floor.announce(scene, len(deaths), UNDONE)
    return [Ended(run, (_dies(run, *death), _fails(floor, run))) for run, death in zip(runs, deaths, strict=True)]


def _asked_after(floor: Floor, scene: Scene) -> Iterable[Ended]:
    """`close`: a supervisor has the action asked what became of an attempt."""
    step = next((step for step in floor.steps if has_probe(step) and step.limit_ms >= LONG_MS), None)
    return _frozen(floor, scene, "close", step, SUCCEEDED)


def _come_late(floor: Floor, scene: Scene) -> Iterable[Ended]:
    """`late`: an attempt has its effect when its step has been undone."""
    done = [step for step in needed_by(floor.steps, floor.steps[-1]) if has_undo(step) and not has_probe(step)]
    step = next((step for step in done if step.effect in OPENED_FIRST and step.limit_ms >= LONG_MS), None)
    return _frozen(floor, scene, "late", step, UNDONE)


def _frozen(floor: Floor, scene: Scene, message: str, step: StepState | None, ends: frozenset[str]) -> Iterable[Ended]:
    if step is None:
        return []
    runs, found = floor.announce(scene, len(SIDES), ends), list[Ended]()
    for run, side in zip(runs, SIDES, strict=True):
        holds = Order(f"{run.run_id}.{step.id}", run.run_id, step.id, "acted", "hold")
        fails = (_fails(floor, run),) if ends is UNDONE else ()
        found.append(Ended(run, (holds, _dies(run, f"{message}:{step.id}", side), *fails)))
    return found


def _fails(floor: Floor, run: Wanted) -> Order:
    return Order(f"{run.run_id}.fail", run.run_id, floor.steps[-1].id, "began", "fail")


def _dies(run: Wanted, message: str, place: str) -> Order:
    return Order(f"{run.run_id}.{message}.{place}", run.run_id, message, place, "die")


PUBLISHED: Final[dict[str, Callable[[Floor, Scene], None]]] = {"S12": around_publishes}
