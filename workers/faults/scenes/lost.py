"""Processes that are killed: children, and whole workers."""

from collections.abc import Callable
from typing import Final

from orchestrator.store.views import StepState
from workers.faults.floor import Floor
from workers.faults.hands import SLOTS, STEP_WORKERS
from workers.faults.orders import Order
from workers.faults.parts import OPENED_FIRST, has_undo, needed_by
from workers.faults.scene import UNDONE, Scene, Wanted

AFTER_THE_EFFECT: Final = ("acted", "landed")
AFTER_THE_UNDO: Final = ("undone", "undo_landed")
ANYWHERE: Final = ("claimed", "began", "acted", "landed", "committed")
RUNS: Final = 3


def child_after_effect(floor: Floor, scene: Scene) -> None:
    """S1. The first attempt of every step, and of every undo of a run whose last step fails."""
    runs = floor.announce(scene, RUNS)
    undone, last = floor.announce(scene, 1, UNDONE), floor.steps[-1]
    to_undo = [step for step in needed_by(floor.steps, last) if has_undo(step)]
    if not to_undo:
        scene.leave_out("no undo is killed: nothing that the last step needs can be undone")
    floor.order(
        [
            *(held(scene, run, step.id, AFTER_THE_EFFECT) for run in runs for step in floor.steps),
            *(held(scene, run, step.id, AFTER_THE_UNDO) for run in undone for step in to_undo),
            *(Order(f"{run.run_id}.fail", run.run_id, last.id, "began", "fail") for run in undone),
        ]
    )
    floor.submit([*runs, *undone])
    floor.until_over(scene, lambda: floor.kill_holding(scene))


def held(scene: Scene, run: Wanted, step_id: str, places: tuple[str, ...]) -> Order:
    """An order to hold at one of these places."""
    return Order(f"{run.run_id}.{step_id}", run.run_id, step_id, scene.draw.choice(places), "hold")


def every_slot(floor: Floor, scene: Scene) -> None:
    """S2. As many first steps as there are slots are killed at once; the others wait behind them in the queue."""
    slots = SLOTS * len(STEP_WORKERS)
    runs, first = floor.announce(scene, slots + RUNS), floor.steps[0].id
    floor.order(held(scene, run, first, AFTER_THE_EFFECT) for run in runs)
    floor.submit(runs)
    floor.until(lambda: len(floor.holding(scene)) == slots, "a step after its effect in every slot")
    floor.order([])
    floor.kill_holding(scene)
    floor.until_over(scene)


def whole_worker(floor: Floor, scene: Scene) -> None:
    """S3. Steps are stopped wherever chance wants it, then the worker that has most of them is killed."""
    hold_anywhere(floor, scene, floor.announce(scene, SLOTS * len(STEP_WORKERS)))
    worker = floor.fullest(scene)
    lost = floor.held_by(scene, worker)
    floor.order([])
    floor.hands.kill(worker)
    scene.fault(f"{worker} killed", "")  # what does not hold may be under way in it, too
    for act in lost:
        scene.fault(f"{worker} killed, {act.details['place']}", act.run_id, act.step_id)
    floor.let_go(floor.holding(scene))
    floor.until_over(scene)


def hold_anywhere(floor: Floor, scene: Scene, runs: list[Wanted]) -> None:
    """Submit runs, each with one step that holds somewhere, and wait until all of them do."""
    chosen = [scene.draw.choice(floor.steps) for _ in runs]
    floor.order(held(scene, run, step.id, places_of(step)) for run, step in zip(runs, chosen, strict=True))
    floor.submit(runs)
    floor.until(lambda: len({act.run_id for act in floor.holding(scene)}) == len(runs), "a step of each run held")


def places_of(step: StepState) -> tuple[str, ...]:
    """Where an attempt of it can be stopped."""
    return (*ANYWHERE, "opened") if step.effect in OPENED_FIRST else ANYWHERE


LOST: Final[dict[str, Callable[[Floor, Scene], None]]] = {
    "S1": child_after_effect,
    "S2": every_slot,
    "S3": whole_worker,
}
