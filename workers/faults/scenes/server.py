"""The server forgets, goes away, comes back."""

from collections.abc import Callable
from typing import Final

from workers.faults import broker
from workers.faults.floor import Floor
from workers.faults.scene import Scene, Wanted
from workers.faults.scenes.lost import hold_anywhere

AWAY_S: Final = 20.0
RESTARTS: Final = 3
BETWEEN_S: Final = 1.0
RUNS: Final = 4
BUILDS: Final = 2  # times what building a shard again takes


def forgets(floor: Floor, scene: Scene) -> None:
    """S6. While steps of every kind are under way, wherever chance has them stop."""
    runs = _under_way(floor, scene)
    broker.forget_everything(floor.app)
    _note(scene, runs, "FLUSHALL")
    _go_on(floor, scene)
    floor.until_over(scene)


def is_away(floor: Floor, scene: Scene) -> None:
    """S7. Longer than any lease, then only for a moment, again and again. Steps go on while it is away."""
    runs = _under_way(floor, scene)
    floor.restart_server(AWAY_S, lambda: _go_on(floor, scene))
    _note(scene, runs, f"server away for {AWAY_S:g} s")
    for _ in range(RESTARTS):
        floor.pause(BETWEEN_S)
        floor.restart_server(0.0)
    _note(scene, runs, f"server restarted {RESTARTS} times")
    floor.until_over(scene)


def _under_way(floor: Floor, scene: Scene) -> list[Wanted]:
    """Runs, each with a step that holds. Behind what follows they wait until their shard was looked at, or built again,
    and then for steps that go on.
    """
    scene.spare_s = BUILDS * (2 * floor.settings.lease_s + floor.settings.stop_grace_s) + floor.run_s
    runs = floor.announce(scene, RUNS)
    hold_anywhere(floor, scene, runs)
    return runs


def _note(scene: Scene, runs: list[Wanted], text: str) -> None:
    for run in runs:
        scene.fault(text, run.run_id)


def _go_on(floor: Floor, scene: Scene) -> None:
    floor.order([])
    floor.let_go(floor.holding(scene))


SERVER: Final[dict[str, Callable[[Floor, Scene], None]]] = {"S6": forgets, "S7": is_away}
