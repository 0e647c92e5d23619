"""Whoever publishes is killed, on either side of each message and in the middle of a wave; and so is who accepts a
submission. Messages about callbacks and the bells of letters are published, too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.store.views import StepState
from orchestrator.supervisors.deliver_callbacks import HOLD_MS
from schemas.callback import delivery_id
from workers.faults.floor import Floor
from workers.faults.log import Act
from workers.faults.orders import Order
from workers.faults.parts import OPENED_FIRST, beside, has_effect, has_probe, has_undo, needed_by
from workers.faults.receiver import receiving
from workers.faults.scene import SUCCEEDED, UNDONE, Scene, Wanted

SIDES: Final = ("sending", "sent")
ACCEPTED: Final = (("submit", "accepting"), ("submit", "accepted"))
BACKLOG_S: Final = 30.0  # a message is called lost once one that was sent so much later was claimed
MIDWAY: Final = "midway"
TELLING: Final = ("bell", "deliver")
LONG_MS: Final = 30_000  # an attempt with a shorter limit does not live to be woken


@dataclass(frozen=True, slots=True)
class Ended:
    """A run, and what is ordered for it."""

    run: Wanted
    orders: tuple[Order, ...]


def around_publishes(floor: Floor, scene: Scene) -> None:
    """S12. One run for each message of a run's life and each side of its publish; whoever sends it dies there. Each
    names a callback.
    """
    scene.spare_s = BACKLOG_S + floor.run_s
    with receiving(floor.folder) as scene.callback:
        _play_all(floor, scene)
        _until_told_once(floor, scene)
    for act in floor.ordered(scene):
        if act.details["deed"] == "die":
            _note(scene, act)


def _play_all(floor: Floor, scene: Scene) -> None:
    """Two kinds are sent only about attempts that are frozen: their runs come first, the others when those have ended;
    but for callbacks, which take longest.
    """
    told, asked, late = _to_be_told(floor, scene), _asked_after(floor, scene), _come_late(floor, scene)
    others = [*_to_success(floor, scene), *_to_undoing(floor, scene), *_to_letters(floor, scene)]
    floor.order(order for ended in (*told, *asked, *late, *others) for order in ended.orders)
    floor.send(ended.run for ended in told)
    _play_frozen(floor, scene, [ended.run for ended in (*asked, *late)])
    floor.send(ended.run for ended in others)
    floor.until_over(scene)
    floor.until_late_is_undone()


def _until_told_once(floor: Floor, scene: Scene) -> None:
    """Every end is told, if need be when a message about it is taken for lost; and always under its one id."""
    told = dict[str, set[str]]()

    def all_told() -> bool:
        for act in floor.log.acts(run_ids=scene.run_ids(), what="called"):
            told.setdefault(act.run_id, set()).add(act.details["id"])
        return len(told) == len(scene.runs)

    floor.until(all_told, "the callbacks of all runs", HOLD_MS / 1000 + floor.patience_s)
    for run_id, ids in told.items():
        scene.expect(ids == {delivery_id(run_id, 1)}, f"the end of {run_id} was told under {', '.join(sorted(ids))}")


def _note(scene: Scene, act: Act) -> None:
    """Bells and callbacks tell of what has happened already: nothing of the run waits for them."""
    note = scene.nuisance if act.step_id in TELLING else scene.fault
    note(f"killed {act.details['place']} {act.step_id}", act.run_id, at=act.at)


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
    cut = [(f"step:{step_id}", MIDWAY) for step_id in _second_of_a_wave(floor, scene)]
    return _each_dies(floor, scene, [*ACCEPTED, *((message, side) for message in messages for side in SIDES), *cut])


def _to_be_told(floor: Floor, scene: Scene) -> Iterable[Ended]:
    """The messages that have a run's end told."""
    return _each_dies(floor, scene, [("deliver", side) for side in SIDES])


def _each_dies(floor: Floor, scene: Scene, deaths: list[tuple[str, str]]) -> list[Ended]:
    runs = floor.announce(scene, len(deaths))
    return [Ended(run, (_dies(run, *death),)) for run, death in zip(runs, deaths, strict=True)]


def _second_of_a_wave(floor: Floor, scene: Scene) -> list[str]:
    """A step that is sent behind another one, in one wave with it."""
    waves = ([step, *beside(floor.steps, step)] for step in floor.steps)
    found = next((wave for wave in waves if len(wave) > 1), None)
    if found is None or floor.most_at_once < len(found):
        scene.leave_out("no wave is cut in its middle: no two steps are sent together")
        return []
    return [sorted(found, key=lambda step: step.index)[1].id]


def _to_letters(floor: Floor, scene: Scene) -> Iterable[Ended]:
    """The bell of a letter: about the last step, whose only attempt is lost."""
    runs = floor.announce(scene, len(SIDES), UNDONE, limits={"attempts": 1})
    last = floor.steps[-1].id
    lost = [Order(f"{run.run_id}.lost", run.run_id, last, "claimed", "die") for run in runs]
    return [Ended(run, (loss, _dies(run, "bell", side))) for run, loss, side in zip(runs, lost, SIDES, strict=True)]


def _to_undoing(floor: Floor, scene: Scene) -> Iterable[Ended]:
    """Those of a run that fails in the end."""
    done = [step.id for step in needed_by(floor.steps, floor.steps[-1]) if has_effect(step)]
    if not done:
        scene.leave_out("`undo` is not sent: nothing that the last step needs has an effect")
    deaths = [(f"undo:{step_id}", side) for step_id in done for side in SIDES]
    runs = floor.announce(scene, len(deaths), UNDONE)
    return [Ended(run, (_dies(run, *death), _fails(floor, run))) for run, death in zip(runs, deaths, strict=True)]


def _asked_after(floor: Floor, scene: Scene) -> Iterable[Ended]:
    """`close`: a supervisor has the action asked what became of an attempt."""
    step = next((step for step in floor.steps if has_probe(step) and step.limit_ms >= LONG_MS), None)
    if step is None:
        scene.leave_out(f"`close` is not sent: no step has a probe and may last {LONG_MS // 1000} s (timeout_s)")
    return _frozen(floor, scene, "close", step, SUCCEEDED)


def _come_late(floor: Floor, scene: Scene) -> Iterable[Ended]:
    """`late`: an attempt has its effect when its step has been undone."""
    done = [step for step in needed_by(floor.steps, floor.steps[-1]) if has_undo(step) and not has_probe(step)]
    step = next((step for step in done if step.effect in OPENED_FIRST and step.limit_ms >= LONG_MS), None)
    if step is None:
        why = f"no keyed or once step without a probe can be undone and may last {LONG_MS // 1000} s (timeout_s)"
        scene.leave_out(f"`late` is not sent: {why}")
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
