"""Where facts are told, and who listens: logs, and in a worker the counters.

A listener is of no concern to whoever tells a fact. One that raises (a full disk, a pipe whose reader has gone) is
reported once, by the others, and the work that told the fact goes on.
"""

from collections.abc import Callable

from orchestrator.telemetry.events import Occurrence
from orchestrator.telemetry.signals import ListenerFailed

Listener = Callable[[Occurrence], None]
_listeners: list[Listener] = []
_broken: list[Listener] = []  # by identity: a listener need not be hashable


def listen(listener: Listener) -> None:
    """Hear every fact of this process from now on; its future children inherit that. Once is enough."""
    if listener not in _listeners:
        _listeners.append(listener)


def emit(fact: Occurrence) -> None:
    """Tell a fact to all who listen."""
    for listener in _listeners:
        try:
            listener(fact)
        except Exception as error:  # noqa: BLE001  # telling must never harm what is told about
            _report(listener, error)


def _report(listener: Listener, error: Exception) -> None:
    if any(listener is one for one in _broken):
        return
    _broken.append(listener)
    emit(ListenerFailed(_name_of(listener), type(error).__name__))


def _name_of(listener: Listener) -> str:
    """Of a function its own; of an object that is called, as the counters are, its class's."""
    named = listener if hasattr(listener, "__qualname__") else type(listener)
    return f"{named.__module__}.{named.__qualname__}"
