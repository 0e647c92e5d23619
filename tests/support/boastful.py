"""Loaded by workers of the fault kit: whatever may have happened is said to have happened."""

from typing import Any

from schemas.states import Fact
from workers import closing, effects, execution


def close_row(*given: Any, **more: Any) -> effects.Closing:
    found = effects.close_row(*given, **more)
    return effects.Closing(Fact.LANDED, '{"where": "somewhere"}') if found.fact is Fact.MAYBE else found


for module in (closing, execution):
    vars(module)["close_row"] = close_row
