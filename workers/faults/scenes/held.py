"""Steps that take too long: longer than everybody's patience, frozen, or without an end."""

from collections.abc import Callable
from typing import Final

from schemas.run import StepView
from workers.faults import broker
from workers.faults.floor import Floor
from workers.faults.hands import SLOTS, STEP_WORKERS
from workers.faults.log import Act
from workers.faults.orders import Order
from workers.faults.scene import Scene, Wanted
from workers.faults.scenes.lost import hold_anywhere

LEASES: Final = 2.2  # so many of them a long step takes
GIVEN_BACK_S: Final = 1.0  # how often the broker takes the visibility timeout for over
HANG_LIMIT_S: Final = 4.0
CATCH_UP_S: Final = 2.0


def outlasts(floor: Floor, scene: Scene) -> None:
    """S4. The broker gives each message back again and again meanwhile; nothing of it may start a second attempt."""
    runs = floor.announce(scene, 2)
    chosen = {run.run_id: long_enough(floor, scene) for run in runs}
    seconds = LEASES * floor.settings.lease_s
    floor.order(Order(f"{run.run_id}.long", run.run_id, chosen[run.run_id], "began", "last", seconds) for run in runs)
    floor.submit(runs)
    _give_back_meanwhile(floor, scene, chosen, seconds)
    floor.until_over(scene)
    for run_id, step_id in chosen.items():
        attempts = next(step.attempt for step in floor.lookup.run(run_id).steps if step.id == step_id)
        scene.expect(attempts == 1, f"{step_id} of {run_id} took {attempts} attempts, though its worker was alive")


def long_enough(floor: Floor, scene: Scene) -> str:
    """A step whose time limit lets it outlast its lease."""
    fitting = [step.id for step in floor.steps if step.limit_ms > 1000 * (LEASES + 0.5) * floor.settings.lease_s]
    return scene.draw.choice(fitting or [step.id for step in floor.steps])


def _give_back_meanwhile(floor: Floor, scene: Scene, chosen: dict[str, str], seconds: float) -> None:
    floor.until(lambda: len(floor.ordered(scene)) == len(chosen), "the long steps at work")
    for _ in range(int(seconds / GIVEN_BACK_S)):
        broker.give_back(floor.app)
        for run_id, step_id in chosen.items():
            scene.nuisance("message given back", run_id, step_id)
        floor.pause(GIVEN_BACK_S)


def frozen(floor: Floor, scene: Scene) -> None:
    """S5. Woken as soon as others have what it had; then again, when every run is over."""
    _freeze(floor, scene, until_over=False)
    _freeze(floor, scene, until_over=True)


def _freeze(floor: Floor, scene: Scene, *, until_over: bool) -> None:
    hold_anywhere(floor, scene, floor.announce(scene, SLOTS * len(STEP_WORKERS)))
    worker = floor.fullest(scene)
    floor.hands.freeze(worker)
    scene.fault(f"{worker} frozen", "")  # what does not hold may be under way in it, too
    asleep = {act: _fence(floor, act) for act in floor.held_by(scene, worker)}
    for act in asleep:
        scene.fault(f"{worker} frozen, {act.details['place']}", act.run_id, act.step_id)
    floor.order([])
    floor.let_go(floor.holding(scene))
    if until_over:
        floor.until_over(scene)
    else:
        floor.until(lambda: all(_taken_over(floor, *one) for one in asleep.items()), "others have what froze")
    floor.hands.thaw(worker)
    floor.pause(CATCH_UP_S)
    floor.until_over(scene)
    floor.until_late_is_undone()


def _fence(floor: Floor, act: Act) -> int:
    return _step(floor, act).fence or 0


def _taken_over(floor: Floor, act: Act, fence: int) -> bool:
    step = _step(floor, act)
    return step.status not in ("running", "STALE", "dispatched") or (step.fence or 0) > fence


def _step(floor: Floor, act: Act) -> StepView:
    return next(step for step in floor.lookup.run(act.run_id).steps if step.id == act.step_id)


def without_end(floor: Floor, scene: Scene) -> None:
    """S9. Their time limit is short; who holds the interpreter cannot renew, nor end itself."""
    scene.spare_s = HANG_LIMIT_S + floor.settings.stop_grace_s
    runs = floor.announce(scene, 4, limits={"timeout_s": HANG_LIMIT_S})
    floor.order(_stuck(floor, scene, run, number) for number, run in enumerate(runs))
    floor.submit(runs)
    floor.until_over(scene)
    for act in floor.ordered(scene):
        scene.fault(f"{act.details['deed']} for ever", act.run_id, act.step_id, act.at)


def _stuck(floor: Floor, scene: Scene, run: Wanted, number: int) -> Order:
    step_id = scene.draw.choice(floor.steps).id
    return Order(f"{run.run_id}.stuck", run.run_id, step_id, "began", "sleep" if number % 2 else "hang")


HELD: Final[dict[str, Callable[[Floor, Scene], None]]] = {"S4": outlasts, "S5": frozen, "S9": without_end}
