"""A thread that looks at services again and again: whoever asks is answered at once, and since when is known."""

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.healing.checks import Fault, Look, Memory, State, looked
from orchestrator.healing.forks import GATE
from orchestrator.telemetry import facts, signals

SLOW_S: Final = 10.0  # a look that takes longer fails its check by that
STALE_ROUNDS: Final = 3  # so many periods without a new look, and what was seen then says nothing any more
STALE: Final = "if no other check hangs, end this process and start another"


class Looker:
    """looks: by the name of their check."""

    def __init__(self, looks: Mapping[str, Look], every_s: float, slow_s: float = SLOW_S) -> None:
        self._looks = dict(looks)
        self._every_s = every_s
        self._slow_s = slow_s
        self._stale_s = STALE_ROUNDS * every_s + len(looks) * slow_s
        self._memory = Memory()
        self._made = time.time()
        self._states: dict[str, State] = {}
        self._looked_at: dict[str, float] = {}
        self._current: tuple[str, float] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"health {', '.join(looks)}", daemon=True)

    def start(self) -> None:
        """Once, in the process that answers for it."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; returns when nobody looks."""
        self._stop.set()
        self._thread.join(self._slow_s)

    def states(self) -> Iterator[State]:
        """What was found last. A check that was never looked at fails, and one whose look is long ago: nobody knows."""
        for check in self._looks:
            state = self._states.get(check) or State(check, Fault("not looked at yet"), self._made)
            silent = self._silence(check)
            if silent is None:
                yield state
            else:
                fault, for_s = silent
                yield State(check, fault, time.time() - for_s if state.ok else state.since)

    def _silence(self, check: str) -> tuple[Fault, float] | None:
        """Why what was found last is not what is so now, and for how many seconds."""
        now, current, last = time.monotonic(), self._current, self._looked_at.get(check)
        if current is not None and current[0] == check and now - current[1] > self._slow_s:
            return Fault(f"no answer for {now - current[1]:.0f} s"), now - current[1]
        if last is not None and now - last > self._stale_s:
            return Fault(f"not looked at for {now - last:.0f} s", STALE), now - last
        return None

    def _run(self) -> None:
        while not self._stop.is_set():
            for check, look in self._looks.items():
                self._look(check, look)
            self._stop.wait(self._every_s)

    def _look(self, check: str, look: Look) -> None:
        self._current = (check, time.monotonic())
        try:
            with GATE.inside():
                state, before = self._memory.note(check, looked(look))
                self._states[check] = state
                self._looked_at[check] = time.monotonic()
                if before is not None:
                    tell(state, before)
        finally:
            self._current = None


def tell(state: State, before: State) -> None:
    """Say that a check has changed."""
    text = state.fault.text if state.fault else "satisfied again"
    facts.emit(signals.HealthChanged(state.check, state.ok, text, round(state.since - before.since)))
