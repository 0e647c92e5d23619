"""What is said more than once, and what goes wrong by itself: copies of messages, failing steps, two operators."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

from orchestrator.store.views import StepState
from workers.faults import trouble
from workers.faults.floor import Floor
from workers.faults.invariants import RETRIED
from workers.faults.orders import Order
from workers.faults.scene import UNDONE, Scene, Wanted

COPIES: Final = 50
OPERATORS: Final = 2
LIMIT_MS: Final = 60_000
FAILING: Final = 4  # runs


def many_times(floor: Floor, scene: Scene) -> None:
    """S8. Half of the copies while the run goes on, half of them when it is over."""
    runs = floor.announce(scene, 1)
    first = floor.steps[0].id
    floor.order(Order(f"{run.run_id}.pause", run.run_id, first, "began", "hold") for run in runs)
    floor.send(run for run in runs for _ in range(COPIES))
    floor.until(lambda: floor.holding(scene), "the first step at work")
    _copies(floor, scene)
    floor.let_go(floor.holding(scene))
    floor.until_over(scene)
    _copies(floor, scene)
    floor.until(floor.is_idle, "the end of the copies")


def _copies(floor: Floor, scene: Scene) -> None:
    for run_id in scene.run_ids():
        for _ in range(COPIES // 2):
            trouble.send(floor.app, trouble.copies(floor.lookup, run_id, floor.steps[0].queue, LIMIT_MS))
        scene.nuisance(f"{COPIES // 2} copies of each message", run_id)


def beside_others(floor: Floor, scene: Scene) -> None:
    """S10. In each run another step fails, once one beside it has acted; that one commits when it has failed."""
    chosen = floor.steps[:]
    scene.draw.shuffle(chosen)
    runs = floor.announce(scene, min(len(chosen), FAILING), UNDONE)
    pairs = [(run, step, _beside(floor, scene, step)) for run, step in zip(runs, chosen, strict=False)]
    floor.order(order for run, step, other in pairs for order in _fails(run, step, other))
    for run, step, other in pairs:
        floor.submit([run])
        _let_fail(floor, scene, run, 1 if other is None else 2)
        scene.nuisance("step fails", run.run_id, step.id)
    floor.until_over(scene)


def _beside(floor: Floor, scene: Scene, step: StepState) -> StepState | None:
    """A step that runs beside this one."""
    others = [other for other in floor.steps if other.id != step.id and other.needs == step.needs]
    return scene.draw.choice(others) if others else None


def _fails(run: Wanted, step: StepState, other: StepState | None) -> Iterator[Order]:
    yield Order(f"{run.run_id}.waits", run.run_id, step.id, "claimed", "hold")
    yield Order(f"{run.run_id}.fail", run.run_id, step.id, "began", "fail")
    if other is not None:
        yield Order(f"{run.run_id}.acted", run.run_id, other.id, "acted", "hold")


def _let_fail(floor: Floor, scene: Scene, run: Wanted, holding: int) -> None:
    """Once so many hold; who acted goes on when the run is failing."""
    floor.until(
        lambda: len(floor.holding(scene)) == holding, "a step before it fails, and one beside it that has acted"
    )
    floor.let_go(act for act in floor.holding(scene) if act.details["place"] == "claimed")
    floor.until(lambda: floor.lookup.run(run.run_id).status != "running", "the failure")
    floor.let_go(floor.holding(scene))


def two_operators(floor: Floor, scene: Scene) -> None:
    """S11. The last step of a run fails for good; two commands start the run over in the same moment."""
    runs = floor.announce(scene, 1, on_failure="stop")
    last = floor.steps[-1].id
    floor.order(Order(f"{run.run_id}.fail", run.run_id, last, "began", "fail") for run in runs)
    floor.submit(runs)
    floor.until_over(scene)
    floor.note_missed(scene)
    floor.order([])
    for run in runs:
        scene.nuisance("started over twice", run.run_id, last)
        _retry_at_once(run.run_id)
    floor.until_over(scene)
    for run in runs:
        events = floor.lookup.events(run.run_id)
        times = sum(event.event == RETRIED for event in events)
        scene.expect(times == 1, f"run {run.run_id} was started over {times} times")


def _retry_at_once(run_id: str) -> None:
    command = [sys.executable, "-m", "workers.cli", "run", "retry", run_id, "--json"]
    operators = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(OPERATORS)]
    for operator in operators:
        operator.wait()


SAID: Final[dict[str, Callable[[Floor, Scene], None]]] = {"S8": many_times, "S10": beside_others, "S11": two_operators}
