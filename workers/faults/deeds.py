"""Carries orders out, in the process that was ordered: whoever is asked to die here, dies.

Knows nothing of Mandor's workers, so that other ways of doing the same work can be harmed alike.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import Final, NoReturn

from workers.faults import log, orders
from workers.outcomes import NoEffect, PermanentError

LOOK_S: Final = 0.02
FOREVER_S: Final = 3600


class Ordered(PermanentError, NoEffect):
    """The kit wants this step to fail, before it has done anything."""

    kind = "ordered_failure"


def pass_by(place: str, run_id: str, step_id: str) -> None:
    """Carry out what is ordered for this place, if anything is."""
    order = orders.at(log.folder(), place, run_id, step_id)
    if order is not None:
        carry_out(order)


def carry_out(order: orders.Order) -> None:
    """Do it, once the witness knows."""
    log.tell("ordered", order.run_id, order.step_id, place=order.place, deed=order.deed, order=order.name)
    _DEEDS[order.deed](order)


def _hold(order: orders.Order) -> None:
    while not orders.may_go(log.folder(), order.name):
        time.sleep(LOOK_S)


def _die(_: orders.Order) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _last(order: orders.Order) -> None:
    time.sleep(order.seconds)


def _hang(_: orders.Order) -> None:
    """A foreign function that never comes back, and was called without letting go of the interpreter."""
    ctypes.PyDLL(None).sleep(FOREVER_S)


def _sleep(_: orders.Order) -> None:
    while True:
        time.sleep(FOREVER_S)


def _fail(_: orders.Order) -> NoReturn:
    raise Ordered("the fault kit wants this step to fail")


_DEEDS: Final[dict[str, Callable[[orders.Order], None]]] = {
    "hold": _hold,
    "die": _die,
    "last": _last,
    "hang": _hang,
    "sleep": _sleep,
    "fail": _fail,
}
