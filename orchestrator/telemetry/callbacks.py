"""Facts about telling the ends of runs. Of the kind of orchestrator.telemetry.events."""

from dataclasses import dataclass

from orchestrator.telemetry.events import Occurrence


@dataclass(frozen=True, slots=True)
class CallbackSent(Occurrence):
    """A callback was answered with 2xx. number: of the attempt."""

    event = "callback.sent"
    delivery_id: str
    number: int
    status_code: int | None


@dataclass(frozen=True, slots=True)
class CallbackFailed(Occurrence):
    """It was not, and is sent again at a time (ms since epoch). error: a word."""

    event = "callback.failed"
    level = "warning"
    delivery_id: str
    number: int
    status_code: int | None
    error: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class CallbackOver(Occurrence):
    """It is sent no more: state is disabled (the receiver does not want it) or given_up (there is a letter)."""

    event = "callback.over"
    level = "error"
    delivery_id: str
    number: int
    status_code: int | None
    error: str
    state: str
