"""Waiting for what is bound to happen."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], *, timeout_s: float = 20.0, every_s: float = 0.01, what: str = "") -> T:
    """The first true answer of look, asked again and again until the time is up."""
    deadline = time.monotonic() + timeout_s
    while not (answer := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or look} did not come true within {timeout_s:g} s; last answer: {answer!r}")
        time.sleep(every_s)
    return answer
