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
from workers.faults.parts import beside
from workers.faults.scene import UNDONE, Scene, Wanted

COPIES: Final = 50
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
    said = [(run_id, *message) for run_id in scene.run_ids() for message in _messages(floor)]
    floor.until(lambda: all(len(floor.came(*one)) >= COPIES for one in said), f"{COPIES} of each message at a worker")
    floor.until(floor.is_idle, "the end of the copies")
    for run_id, _, step_id in said:
        scene.nuisance(f"{COPIES} copies of a message", run_id, step_id or None)


def _copies(floor: Floor, scene: Scene) -> None:
    for run_id in scene.run_ids():
        for _ in range(COPIES // 2):
            trouble.send(floor.app, trouble.copies(floor.lookup, run_id, floor.steps[0].queue, LIMIT_MS))


def _messages(floor: Floor) -> list[tuple[str, str]]:
    return [("submit", ""), ("settle", ""), *(("step", step.id) for step in floor.steps)]


def beside_others(floor: Floor, scene: Scene) -> None:
    """S10. In each run another step fails, once one beside it has acted; that one commits when it has failed."""
    chosen = [step for step in floor.steps if beside(floor.steps, step)]
    if not chosen:
        scene.leave_out("no two steps run side by side")
        return
    scene.draw.shuffle(chosen)
    runs = floor.announce(scene, min(len(chosen), FAILING), UNDONE)
    pairs = [(run, step, scene.draw.choice(beside(floor.steps, step))) for run, step in zip(runs, chosen, strict=False)]
    floor.order(order for run, step, other in pairs for order in _fails(run, step, other))
    for run, step, _ in pairs:
        floor.submit([run])
        _let_fail(floor, scene, run)
        scene.nuisance("step fails", run.run_id, step.id)
    floor.until_over(scene)


def _fails(run: Wanted, step: StepState, other: StepState) -> Iterator[Order]:
    yield Order(f"{run.run_id}.waits", run.run_id, step.id, "claimed", "hold")
    yield Order(f"{run.run_id}.fail", run.run_id, step.id, "began", "fail")
    yield Order(f"{run.run_id}.acted", run.run_id, other.id, "acted", "hold")


def _let_fail(floor: Floor, scene: Scene, run: Wanted) -> None:
    """Once both hold; who acted goes on when the run is failing."""
    floor.until(lambda: len(floor.holding(scene)) == 2, "a step before it fails, and one beside it that has acted")
    floor.let_go(act for act in floor.holding(scene) if act.details["place"] == "claimed")
    floor.until(lambda: floor.lookup.run(run.run_id).status != "running", "the failure")
    floor.let_go(floor.holding(scene))


def two_operators(floor: Floor, scene: Scene) -> None:
    """S11. The only attempt of a run's last step is lost, and a letter tells of it. In the same moment two commands
    replay the letter; of a second run one replays it, and the other starts the run over.
    """
    runs = floor.announce(scene, 2, on_failure="stop", limits={"attempts": 1})
    last = floor.steps[-1].id
    floor.order(Order(f"{run.run_id}.lost", run.run_id, last, "claimed", "die") for run in runs)
    floor.submit(runs)
    floor.until_over(scene)
    floor.note_missed(scene)
    floor.order([])
    for run, second in zip(runs, ("replay", "retry"), strict=True):
        _at_once([_operators(run.run_id, floor.letter(run.run_id, last))[name] for name in ("replay", second)])
        scene.nuisance(f"replay and {second} at once", run.run_id, last)
    floor.until_over(scene)
    for run in runs:
        events = floor.lookup.events(run.run_id)
        times = sum(event.event == RETRIED for event in events)
        scene.expect(times == 1, f"run {run.run_id} was started over {times} times")


def _operators(run_id: str, letter_id: str) -> dict[str, list[str]]:
    return {"replay": ["dlq", "replay", letter_id], "retry": ["run", "retry", run_id]}


def _at_once(commands: list[list[str]]) -> None:
    mandor = [sys.executable, "-m", "workers.cli"]
    operators = [subprocess.Popen([*mandor, *one, "--json"], stdout=subprocess.DEVNULL) for one in commands]
    for operator in operators:
        operator.wait()


SAID: Final[dict[str, Callable[[Floor, Scene], None]]] = {"S8": many_times, "S10": beside_others, "S11": two_operators}
