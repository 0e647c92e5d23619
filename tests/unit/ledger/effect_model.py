"""What an effect row must answer, as values: the reference the real rows are held against."""

from dataclasses import dataclass, replace
from typing import Literal

Op = Literal["open", "land", "land_inside", "close", "void", "keep", "anew"]
OPS: tuple[Op, ...] = ("open", "land", "land_inside", "close", "void", "keep", "anew")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """since: the fence that opened; closed: the newest fence that was ended; landed_by: the fence that landed."""

    state: str = "none"
    since: int = 0
    closed: int = 0
    landed_by: int = 0
    late: bool = False


def apply(row: ModelRow, op: Op, fence: int, effect_class: str) -> tuple[ModelRow, str]:
    """The row after an operation, and the answer in one word."""
    if op == "open":
        return opened(row, fence, effect_class)
    if op in ("land", "land_inside"):
        return landed(row, fence, own_transaction=op == "land")
    if op in ("keep", "anew"):
        return set_aside(row, fence, anew=op == "anew"), "done"
    return closed(row, fence, void=op == "void")


def opened(row: ModelRow, fence: int, effect_class: str) -> tuple[ModelRow, str]:
    if fence <= row.closed:
        return row, "closed"
    if row.state == "landed":
        return row, "landed"
    if row.state == "open":
        return row, "ok" if effect_class == "keyed" else "open"
    return replace(row, state="open", since=fence), "ok"


def landed(row: ModelRow, fence: int, own_transaction: bool) -> tuple[ModelRow, str]:
    if row.state == "landed" and row.landed_by == fence:
        return row, "landed"  # its own landing once more: nothing new, and nothing late
    if fence <= row.closed:
        return replace(row, late=row.late or own_transaction), "closed"
    if row.state == "landed":
        return row, "landed"
    return replace(row, state="landed", landed_by=fence), "ok"


def closed(row: ModelRow, fence: int, void: bool) -> tuple[ModelRow, str]:
    took_back = void and row.state == "open" and row.since == fence and fence > row.closed
    state = "none" if took_back else row.state
    since = row.since if state == "open" else 0
    return replace(row, state=state, since=since, closed=max(row.closed, fence)), state


def set_aside(row: ModelRow, fence: int, anew: bool) -> ModelRow:
    if fence < max(row.since, row.landed_by):
        return row  # a newer fence has had it since
    blank = ModelRow(late=row.late) if anew and row.state == "landed" else row
    return replace(blank, closed=max(row.closed, fence))


def reachable(effect_class: str, fences: range) -> list[ModelRow]:
    """Every row that any sequence of operations can lead to."""
    found, todo = {ModelRow()}, [ModelRow()]
    while todo:
        row = todo.pop()
        after = {apply(row, op, fence, effect_class)[0] for op in OPS for fence in fences} - found
        found |= after
        todo.extend(after)
    return sorted(found, key=repr)
