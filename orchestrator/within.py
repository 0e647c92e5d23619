"""A call that may hang, and must keep nobody."""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def begin(call: Callable[[], T], name: str) -> "Future[T]":
    """Call it in a thread of its own, which ends with the process if not before."""
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001  (it is raised again where the answer is waited for)
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def within(limit_s: float, call: Callable[[], T], name: str) -> T:
    """What it answers or raises, or TimeoutError: then it is left behind."""
    return begin(call, name).result(limit_s)
