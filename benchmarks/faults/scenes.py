"""What is done. Names are the fault kit's; what is about undoing, letters and planners has nothing to compare."""

from collections.abc import Callable, Iterable
from typing import Final

from benchmarks.faults.chords import VISIBLE_S
from benchmarks.faults.sides import SLOTS
from benchmarks.faults.work import PARTS, PLACES, SENDING, SENT, WORLDS
from benchmarks.faults.yard import STUCK_S, Yard
from workers.faults.hands import STEP_WORKERS
from workers.faults.orders import Deed, Order
from workers.faults.scene import Scene, Wanted, now_ms

RUNS: Final = SLOTS * len(STEP_WORKERS)  # one for each slot
MORE: Final = 3
FEW: Final = 6  # leaves slots for others
LONG_S: Final = 6.6  # of a step: longer than all leases, shorter than the time limit
TIMES: Final = 5
FROZEN_S: Final = 25.0  # at most
AWAY_S: Final = 6.0  # longer than all leases, shorter than the time limit
RESTARTS: Final = 3


def child_killed(yard: Yard, scene: Scene) -> None:
    """The first attempt of each part is killed after its effect."""
    runs = yard.announce(scene, RUNS)
    yard.order(_at(run, part, "acted", "hold") for run in runs for part in PARTS)
    yard.submit(runs)
    yard.until_over(scene, lambda: yard.kill_holding(scene))


def slots_killed(yard: Yard, scene: Scene) -> None:
    """The same in all slots at once, with more waiting behind them."""
    runs = yard.announce(scene, RUNS + MORE)
    yard.order(_at(run, part, "acted", "hold") for run in runs for part in PARTS)
    yard.submit(runs)
    yard.until(lambda: len(yard.holding(scene)) == RUNS, "an effect in every slot")
    yard.order([])
    yard.kill_holding(scene)
    yard.until_over(scene)


def worker_killed(yard: Yard, scene: Scene) -> None:
    """Parts are stopped at every place, then the worker that has most of them is killed."""
    _stop_everywhere(yard, scene)
    worker = yard.fullest(scene)
    lost = yard.held_by(scene, worker)
    yard.order([])
    yard.hands.kill(worker)
    _note(scene, "worker killed", [act.run_id for act in lost])
    yard.let_go(yard.holding(scene))
    yard.until_over(scene)
    yard.pause(VISIBLE_S)  # what it had in hand comes back, whether somebody else has done it or not


def outlasts(yard: Yard, scene: Scene) -> None:
    """A part takes long, and the broker gives its message back every second meanwhile."""
    runs = yard.announce(scene, FEW)
    yard.order(_at(run, scene.draw.choice(PARTS), "acting", "last", LONG_S) for run in runs)
    yard.submit(runs)
    yard.until(lambda: len(yard.ordered(scene)) == len(runs), "the long parts at work")
    for _ in range(int(LONG_S)):
        yard.trouble("give_back")
        yard.pause(1.0)
    yard.until_over(scene)


def frozen(yard: Yard, scene: Scene) -> None:
    """A worker is frozen, and woken when all that can end without it has ended."""
    _stop_everywhere(yard, scene)
    worker = yard.fullest(scene)
    yard.hands.freeze(worker)
    _note(scene, "worker frozen", [act.run_id for act in yard.held_by(scene, worker)])
    _go_on(yard, scene)
    yard.until_over(scene, timeout_s=FROZEN_S)
    yard.hands.thaw(worker)
    yard.until_over(scene)


def forgotten(yard: Yard, scene: Scene) -> None:
    """The server loses everything while parts are stopped at every place, and more wait behind them."""
    _stop_everywhere(yard, scene)
    yard.submit(yard.announce(scene, MORE))
    yard.trouble("forget")
    _note(scene, "FLUSHALL", scene.run_ids())
    _go_on(yard, scene)
    yard.until_over(scene)


def away(yard: Yard, scene: Scene) -> None:
    """The server is away for a while, then restarted three times. Parts go on meanwhile."""
    _stop_everywhere(yard, scene)
    yard.restart_server(AWAY_S, lambda: _go_on(yard, scene))
    _note(scene, "server back", scene.run_ids())
    for _ in range(RESTARTS):
        yard.pause(1.0)
        yard.restart_server(0.0)
    yard.until_over(scene)


def copied(yard: Yard, scene: Scene) -> None:
    """Each message in hand comes five times more, and five times again when all is over."""
    runs = yard.announce(scene, RUNS)
    yard.order(_at(run, scene.draw.choice(PARTS), "began", "hold") for run in runs)
    yard.submit(runs)
    _until_held(yard, scene)
    yard.trouble("take_copies")
    yard.trouble("send_copies", times=TIMES)
    _go_on(yard, scene)
    yard.until_over(scene)
    yard.trouble("send_copies", times=TIMES)


def hangs(yard: Yard, scene: Scene) -> None:
    """A part holds the interpreter for ever, in the middle of its effect."""
    runs = yard.announce(scene, FEW)
    yard.order(_at(run, scene.draw.choice(PARTS), "acting", "hang") for run in runs)
    yard.submit(runs)
    yard.until(lambda: len(yard.ordered(scene)) == len(runs), "the parts that hang")
    _note(scene, "hangs", scene.run_ids())
    yard.until_over(scene)


def sender_killed(yard: Yard, scene: Scene) -> None:
    """Whoever sends the end of a run, once its parts are done, is killed before that or right behind it."""
    runs = yard.announce(scene, RUNS)
    places = [(SENDING, SENT)[number // len(WORLDS) % 2] for number in range(len(runs))]
    yard.order_senders(zip(scene.run_ids(), places, strict=True))
    yard.submit(runs)
    yard.until_over(scene, lambda: yard.note_senders(scene))


def _at(run: Wanted, part: str, place: str, deed: Deed, seconds: float = 0.0) -> Order:
    return Order(f"{run.run_id}.{part}", run.run_id, part, place, deed, seconds)


def _stop_everywhere(yard: Yard, scene: Scene) -> None:
    runs = yard.announce(scene, RUNS)
    # runs on each kind of world are stopped at each place in turn
    places = [PLACES[(number // len(WORLDS) + scene.seed) % len(PLACES)] for number in range(len(runs))]
    yard.order(_at(run, scene.draw.choice(PARTS), place, "hold") for run, place in zip(runs, places, strict=True))
    yard.submit(runs)
    _until_held(yard, scene)


def _until_held(yard: Yard, scene: Scene) -> None:
    yard.until(lambda: len(yard.holding(scene)) == len(scene.runs), "a part of each run held", STUCK_S)


def _go_on(yard: Yard, scene: Scene) -> None:
    yard.order([])
    yard.let_go(yard.holding(scene))


def _note(scene: Scene, text: str, run_ids: Iterable[str]) -> None:
    at = now_ms()
    for run_id in run_ids:
        scene.fault(text, run_id, at=at)


SCENES: Final[dict[str, tuple[str, Callable[[Yard, Scene], None]]]] = {
    "S1": ("a child is killed after its effect", child_killed),
    "S2": ("the same in every slot at once", slots_killed),
    "S3": ("a whole worker is killed", worker_killed),
    "S4": ("a step outlasts lease and visibility timeout", outlasts),
    "S5": ("a worker is frozen, and woken later", frozen),
    "S6": ("the server forgets everything", forgotten),
    "S7": (f"the server is away for {AWAY_S:g} s, then restarted three times", away),
    "S8": (f"messages come {2 * TIMES} times more", copied),
    "S9": ("a step holds the interpreter for ever", hangs),
    "S12": ("whoever sends the end of a run is killed before or behind that", sender_killed),
}
