"""Where facts are told, and who listens: logs, and in a worker the counters.

A listener is of no concern to whoever tells a fact. One that raises (a full disk, a pipe whose reader has gone) is
reported once, by the others, and the work that told the fact goes on.
"""

from collections.abc import Callable

from orchestrator.telemetry.events import Occurrence
from orchestrator.telemetry.signals import ListenerFailed

Listener = Callable[[Occurrence], None]
_listeners: list[Listener] = []
_broken: set[Listener] = set()


def listen(listener: Listener) -> None:
    """Hear every fact of this process from now on; its future children inherit that. Once is enough."""
    if listener not in _listeners:
        _listeners.append(listener)


def unlisten(listener: Listener) -> None:
    """Hear no more."""
    if listener in _listeners:
        _listeners.remove(listener)


def emit(fact: Occurrence) -> None:
    """Tell a fact to all who listen."""
    for listener in _listeners:
        try:
            listener(fact)
        except Exception as error:  # noqa: BLE001  # telling must never harm what is told about
            _report(listener, error)


def _report(listener: Listener, error: Exception) -> None:
    if listener in _broken:
        return
    _broken.add(listener)
    emit(ListenerFailed(f"{listener.__module__}.{listener.__qualname__}", type(error).__name__))
