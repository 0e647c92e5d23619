"""Effects of steps that may come late, held against what became of their run."""

from sqlalchemy import or_, select

from orchestrator.ledger.tables import effects
from schemas.run import RunView
from tests.support.system import System

ONE_TRY = {"limits": {"attempts": 1}}
ACTION_OF = {"idempotent": "test.note", "keyed": "test.order", "once": "test.post", "transactional": "test.book"}


def assert_every_effect_is_accounted_for(system: System, view: RunView) -> None:
    """Each effect belongs to a completed step that was not undone, or was undone once. Nothing is undone twice,
    also not where that does no harm, unless the effect came when the first compensation was over.
    """
    for one in view.steps:
        lines = [line["what"] for line in system.effects(run_id=view.run_id, step_id=one.id)]
        noted, taken_back, in_vain = (lines.count(what) for what in ("noted", "undone", "found_nothing"))
        stands = one.status in ("completed", "compensation_failed")
        assert noted - taken_back == (1 if stands and noted else 0), f"{one.id} is {one.status}"
        assert taken_back + in_vain <= 1 + came_late(system, view.run_id, one.id), (
            f"{one.id} was undone {taken_back + in_vain} times"
        )


def came_late(system: System, run_id: str, step_id: str) -> bool:
    """Whether the ledger has noted that the step may have acted after its claim was ended."""
    column = effects.c
    late = or_(column.late, column.kind == "late")
    query = select(column.step_id).where(column.run_id == run_id, column.step_id == step_id, late)
    with system.installed.ledger.begin() as connection:
        return connection.execute(query).first() is not None
