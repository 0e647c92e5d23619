"""Before any harm is done: a run to which nothing is done must succeed. It shows which steps there are."""

from typing import TYPE_CHECKING

from orchestrator.errors import MandorError
from workers.faults.scene import Scene

if TYPE_CHECKING:
    from workers.faults.floor import Floor


class RehearsalFailed(MandorError):
    """What is to be driven does not succeed when nothing is done to it."""

    kind = "rehearsal_failed"


def rehearse(floor: "Floor", scene: Scene) -> None:
    """Play the one run of this scene; from here on the floor knows its steps."""
    (run,) = scene.runs
    floor.submit([run])
    floor.until_over(scene)
    view = floor.lookup.run(run.run_id)
    if view.status != "succeeded":
        why = next((f"{step.id}: {step.error.message}" for step in view.steps if step.error), view.reason)
        raise RehearsalFailed(
            f"without any fault the run is {view.status}: {why}", hint="mend the plan or its actions first"
        )
    row = floor.lookup.find(view.run_id)
    floor.steps = floor.store.views.steps(floor.lookup.ref(row))
    state = floor.lookup.state(row)
    floor.most_at_once = state.max_parallel if state else 1
