"""Which steps a harm can be done to."""

from dataclasses import dataclass
from typing import Any, cast

import pytest

from workers.faults import example  # noqa: F401  # declares the actions
from workers.faults.parts import has_effect, has_probe, has_undo, needed_by


@dataclass(frozen=True)
class Step:
    """What the kit asks of a step."""

    id: str
    needs: tuple[str, ...] = ()
    action: str = "faults.price"
    effect: str = "pure"


STEPS = [Step("a"), Step("b", ("a",)), Step("beside", ("a",)), Step("c", ("b",))]


@pytest.mark.parametrize(("last", "found"), [("c", ["a", "b"]), ("beside", ["a"]), ("a", [])])
def test_what_a_step_needs_is_done_when_it_begins(last: str, found: list[str]) -> None:
    (step,) = (step for step in STEPS if step.id == last)
    assert [one.id for one in needed_by(cast("Any", STEPS), cast("Any", step))] == found


@pytest.mark.parametrize(
    ("action", "effect", "known"),
    [
        ("faults.price", "pure", (False, False, False)),
        ("faults.charge", "keyed", (True, True, False)),
        ("faults.send", "once", (True, True, True)),
    ],
)
def test_what_an_action_can_do(action: str, effect: str, known: tuple[bool, ...]) -> None:
    step = cast("Any", Step("a", action=action, effect=effect))
    assert (has_effect(step), has_undo(step), has_probe(step)) == known
