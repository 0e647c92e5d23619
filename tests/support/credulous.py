"""Loaded by workers of the fault kit: what a probe says is believed also of an attempt that may still act."""

from typing import Any

from workers import probing

_ask = vars(probing)["ask"]


def ask(attempt: Any, *, dead: bool, limit_s: float) -> Any:
    return _ask(attempt, dead=True, limit_s=limit_s)


vars(probing)["ask"] = ask
