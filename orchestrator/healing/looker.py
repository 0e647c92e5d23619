"""A thread that looks at a service again and again: whoever asks is answered at once, and since when is known."""

import threading
import time
from typing import Final

from orchestrator.healing.checks import Fault, Look, Memory, State, looked
from orchestrator.healing.forks import GATE
from orchestrator.telemetry import facts, signals

SLOW_S: Final = 10.0  # a look that takes longer fails its check by that
STALE_ROUNDS: Final = 3  # so many periods without a new look, and what was seen then says nothing any more
STALE: Final = "end this process and start another"


class Looker:
    """Of one check alone: how soon it is red, or green again, must not depend on services that hang."""

    def __init__(self, check: str, look: Look, every_s: float, slow_s: float = SLOW_S) -> None:
        self._check = check
        self._look = look
        self._every_s = every_s
        self._slow_s = slow_s
        self._memory = Memory()
        self._state = State(check, Fault("not looked at yet"), time.time())
        self._looked_at: float | None = None
        self._looks_since: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"health {check}", daemon=True)

    def start(self) -> None:
        """Once, in the process that answers for it."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; returns when nobody looks."""
        self._stop.set()
        self._thread.join(self._slow_s)

    def state(self) -> State:
        """What was found last. What was never looked at fails, and what was seen long ago: nobody knows."""
        state, silent = self._state, self._silence()
        if silent is None:
            return state
        fault, for_s = silent
        return State(self._check, fault, time.time() - for_s if state.ok else state.since)

    def _silence(self) -> tuple[Fault, float] | None:
        """Why what was found last is not what is so now, and for how many seconds."""
        now, began, last = time.monotonic(), self._looks_since, self._looked_at
        if began is not None and now - began > self._slow_s:
            return Fault(f"no answer for {now - began:.0f} s"), now - began
        if last is not None and now - last > STALE_ROUNDS * self._every_s + self._slow_s:
            return Fault(f"not looked at for {now - last:.0f} s", STALE), now - last
        return None

    def _run(self) -> None:
        while not self._stop.is_set():
            self._look_once()
            self._stop.wait(self._every_s)

    def _look_once(self) -> None:
        self._looks_since = time.monotonic()
        try:
            with GATE.inside():
                self._state, before = self._memory.note(self._check, looked(self._look))
                self._looked_at = time.monotonic()
                if before is not None:
                    tell(self._state, before)
        finally:
            self._looks_since = None


def tell(state: State, before: State) -> None:
    """Say that a check has changed."""
    text = state.fault.text if state.fault else "satisfied again"
    facts.emit(signals.HealthChanged(state.check, state.ok, text, round(state.since - before.since)))
