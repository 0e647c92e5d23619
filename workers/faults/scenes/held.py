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
SPARE_S: Final = 1.5
HANG_LIMIT_S: Final = 4.0
CATCH_UP_S: Final = 2.0


def outlasts(floor: Floor, scene: Scene) -> None:
    """S4. The broker gives back what is in hand meanwhile; nothing of it may start a second attempt."""
    seconds = LEASES * floor.settings.lease_s
    fitting = long_enough(floor, seconds)
    if not fitting:
        scene.leave_out(f"no step may last {seconds:g} s (timeout_s)")
        return
    runs = floor.announce(scene, 2)
    chosen = {run.run_id: scene.draw.choice(fitting) for run in runs}
    floor.order(Order(f"{run.run_id}.long", run.run_id, chosen[run.run_id], "began", "last", seconds) for run in runs)
    floor.submit(runs)
    _give_back_meanwhile(floor, scene, chosen, seconds)
    floor.until_over(scene)
    _note_given_back(floor, scene)
    for run_id, step_id in chosen.items():
        attempts = next(step.attempt for step in floor.lookup.run(run_id).steps if step.id == step_id)
        scene.expect(attempts == 1, f"{step_id} of {run_id} took {attempts} attempts, though its worker was alive")


def long_enough(floor: Floor, seconds: float) -> list[str]:
    """Steps whose time limits let them last so long, with some time to spare."""
    return [step.id for step in floor.steps if step.limit_ms > 1000 * (seconds + SPARE_S)]


def _give_back_meanwhile(floor: Floor, scene: Scene, chosen: dict[str, str], seconds: float) -> None:
    floor.until(lambda: len(floor.ordered(scene)) == len(chosen), "the long steps at work")
    for _ in range(int(seconds / GIVEN_BACK_S)):
        broker.give_back(floor.app)
        floor.pause(GIVEN_BACK_S)


def _note_given_back(floor: Floor, scene: Scene) -> None:
    """What was given back came to a worker once more while its step went on; else nothing was shown."""
    floor.until_told()
    for long in floor.ordered(scene):
        copies = [act for act in floor.came(long.run_id, "step", long.step_id) if act.number > long.number]
        for act in copies:
            scene.nuisance("message given back", long.run_id, long.step_id, act.at)
        scene.expect(bool(copies), f"no message of {long.step_id} of {long.run_id} came again")


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
