"""All that is left to chance in a storm, drawn beforehand: a seed says it again. Pure.

When a trouble comes is said in runs that have ended by then, not in seconds: on a slow machine a storm lasts longer,
and is no worse.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from orchestrator.policies import FROM_BROKER
from schemas.ids import run_id_for
from tests.support.storm import shapes
from workers.faults.orders import Order

SESSION: Final = "storm"  # of all runs: nothing may be keyed by it
USUAL: Final = 2000  # runs of a storm, of which the counts below are told
TROUBLES: Final = {
    "child killed": 40,
    "child of planner killed": 5,
    "child of control killed": 5,
    "steps killed": 6,
    "planner killed": 2,
    "control killed": 2,
    "steps frozen": 6,
    "planner frozen": 1,
    "messages doubled": 12,
    "messages given back": 5,
}
# what stops supervisors, so that claims may stand for longer; it comes in squalls, between which they may not
UPSETS: Final = {
    "child of supervise killed": 4,
    "supervise killed": 2,
    "beat killed": 2,
    "connections cut": 4,
    "server restarted": 3,
    "server killed": 1,
}
SQUALLS: Final = 4
SQUALL: Final = 0.03  # of a storm, each
CANCELLED, LASTING, DYING, DYING_UNDONE = 0.04, 0.06, 0.025, 0.15  # shares of the runs; of those that are undone
CANCEL_WITHIN_S: Final = 3.0  # behind the acceptance
LASTS_S: Final = (0.2, 1.0)
ATTEMPT: Final = ("claimed", "began", "acted", "landed", "committed")
UNDO: Final = ("undoing", "undone", "undo_landed", "undo_committed")
PUBLISH: Final = ("sending", "sent")
OPENED_FIRST: Final = ("charge", "insist", "send")  # `keyed` and `once`
UNDOABLE: Final = ("note", "book", "charge", "send", "insist")


@dataclass(frozen=True, slots=True)
class Ahead:
    """A run that will be. planned: by a planner, else its plan is ready. cancel_s: so long after it was accepted."""

    name: str
    shape: str
    planned: bool = False
    cancel_s: float | None = None

    @property
    def run_id(self) -> str:
        """Of the run that this becomes."""
        return run_id_for(FROM_BROKER, SESSION, self.name)


@dataclass(frozen=True, slots=True)
class Strike:
    """A trouble, once so many runs have ended. draw: what it leaves to chance."""

    after: int
    trouble: str
    draw: Random


@dataclass(frozen=True, slots=True)
class Forecast:
    """A storm."""

    seed: int
    runs: Sequence[Ahead]
    orders: Sequence[Order]
    strikes: Sequence[Strike]


def forecast(seed: int, runs: int) -> Forecast:
    """What this seed has in store for so many runs."""
    ahead = [_run(seed, number) for number in range(runs)]
    orders = [order for run in ahead for order in _orders(Random(f"{seed}:orders:{run.name}"), run)]
    return Forecast(seed, ahead, orders, sorted(_strikes(seed, runs), key=lambda strike: strike.after))


def calm(seed: int, first: int, runs: int) -> list[Ahead]:
    """So many runs of one step behind it all, every other of them planned. Nothing else happens to them. first: how
    many there were before.
    """
    return [Ahead(f"{seed}-calm-{number}", "single", number % 2 == 0) for number in range(first, first + runs)]


def _run(seed: int, number: int) -> Ahead:
    draw, name = Random(f"{seed}:run:{number}"), f"{seed}-{number}"
    (shape,) = draw.choices(list(shapes.SHARES), list(shapes.SHARES.values()))
    may_be_cancelled = shapes.ENDS[shape] is shapes.SUCCEEDS
    cancel_s = draw.uniform(0, CANCEL_WITHIN_S) if may_be_cancelled and draw.random() < CANCELLED else None
    return Ahead(name, shape, draw.random() < 0.5, cancel_s)


# ---- what is to happen to single steps


def _orders(draw: Random, run: Ahead) -> Iterator[Order]:
    chance, dying = draw.random(), DYING_UNDONE if run.shape == "undone" else DYING
    if chance < dying:
        deaths = list(_deaths(run))
        place = draw.choice(sorted({place for _, place in deaths}))
        step_id = draw.choice([step_id for step_id, at in deaths if at == place])
        yield Order(f"{run.run_id}.die", run.run_id, step_id, place, "die")
    elif chance < dying + LASTING:
        step_id = draw.choice(shapes.ids(run.shape))
        place = draw.choice(_places(step_id))
        yield Order(f"{run.run_id}.last", run.run_id, step_id, place, "last", draw.uniform(*LASTS_S))


def _deaths(run: Ahead) -> Iterator[tuple[str, str]]:
    """Where somebody may die of it: (step or message, place)."""
    step_ids = shapes.ids(run.shape)
    yield from ((step_id, place) for step_id in step_ids for place in _places(step_id))
    yield from ((message, place) for message in ("plan", "settle", f"step:{step_ids[-1]}") for place in PUBLISH)
    if run.shape == "undone":
        yield from ((step_id, place) for step_id in step_ids if step_id in UNDOABLE for place in UNDO)
        yield from ((f"undo:{step_id}", place) for step_id in step_ids if step_id in UNDOABLE for place in PUBLISH)


def _places(step_id: str) -> tuple[str, ...]:
    return (*ATTEMPT, "opened") if step_id in OPENED_FIRST else ATTEMPT


# ---- what is to happen to everybody


def _strikes(seed: int, runs: int) -> Iterator[Strike]:
    """Each trouble all over the storm, in every part of it once; each upset in one squall, another each time."""
    for trouble, usual in (TROUBLES | UPSETS).items():
        times = max(1, round(usual * runs / USUAL))
        squalls = Random(f"{seed}:{trouble}").sample(range(SQUALLS), SQUALLS)
        for number in range(times):
            draw = Random(f"{seed}:{trouble}:{number}")
            everywhere = (number + draw.random()) / times
            squall = (squalls[number % SQUALLS] + 0.5) / SQUALLS + SQUALL * draw.random()
            yield Strike(int(runs * (squall if trouble in UPSETS else everywhere)), trouble, draw)
