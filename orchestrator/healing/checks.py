"""What a check says, and since when."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.errors import MandorError
from orchestrator.telemetry.text import printable, without_secrets

SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a check fails. mend: what to do."""

    text: str
    mend: str | None = None


# raises, or answers, what is wrong; None: nothing is
Look = Callable[[], Fault | None]


@dataclass(frozen=True, slots=True)
class State:
    """since: seconds since the epoch, of the last change, or of the first look."""

    check: str
    fault: Fault | None
    since: float

    @property
    def ok(self) -> bool:
        return self.fault is None

    def as_json(self) -> dict[str, Any]:
        """As the pages show it."""
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        said = {"text": self.fault.text, "mend": self.fault.mend} if self.fault else {}
        return {"check": self.check, "ok": self.ok, "since": since, **said}


class Memory:
    """Remembers of each check since when it is as it is."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._states: dict[str, State] = {}

    def note(self, check: str, fault: Fault | None, since: float | None = None) -> tuple[State, State | None]:
        """What is found now; answers the state, and the one before if it changed. since: if better known."""
        before = self._states.get(check)
        changed = before is None or before.ok != (fault is None)
        began = (since or self._clock()) if before is None or changed else before.since
        state = self._states[check] = State(check, fault, began)
        return state, before if changed else None


def looked(look: Look) -> Fault | None:
    """What a look finds; whatever it raises is a fault."""
    try:
        return look()
    except MandorError as error:
        return fault_of(f"{error.path}: {error.message}" if error.path else error.message, error.hint)
    except BaseException as error:  # noqa: BLE001  # a plug-in's too; the thread that looks must go on
        return fault_of(_words(error))


def fault_of(text: str, mend: str | None = None) -> Fault:
    """A fault in the words of others: no secrets, nothing that acts on a terminal, and not without end."""
    return Fault(printable(without_secrets(text))[:SHOWN], mend)


def _words(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # noqa: BLE001  # its own text raises
        return name
