"""A thread that looks at services again and again: whoever asks is answered at once, and since when is known."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from orchestrator.healing.checks import Fault, Look, Memory, State, looked
from orchestrator.healing.forks import GATE
from orchestrator.telemetry import facts, signals

SLOW_S: Final = 10.0  # a look that takes longer fails its check by that


class Looker:
    """looks: by the name of their check. after: called behind each round, for what goes with it."""

    def __init__(
        self, looks: Mapping[str, Look], every_s: float, after: Callable[[], None] | None = None, slow_s: float = SLOW_S
    ) -> None:
        self._looks = dict(looks)
        self._every_s = every_s
        self._after = after
        self._slow_s = slow_s
        self._memory = Memory()
        self._states: dict[str, State] = {}
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
        """What was found last. A check that was never looked at fails: nobody knows yet."""
        current = self._current
        for check in self._looks:
            state = self._states.get(check) or State(check, Fault("not looked at yet"), time.time())
            if current is not None and current[0] == check and time.time() - current[1] > self._slow_s:
                waited = time.time() - current[1]
                state = State(check, Fault(f"no answer for {waited:.0f} s"), current[1] if state.ok else state.since)
            yield state

    def _run(self) -> None:
        while not self._stop.is_set():
            for check, look in self._looks.items():
                self._look(check, look)
            if self._after is not None:
                with GATE.inside():
                    self._after()
            self._stop.wait(self._every_s)

    def _look(self, check: str, look: Look) -> None:
        self._current = (check, time.time())
        try:
            with GATE.inside():
                state, before = self._memory.note(check, looked(look))
                self._states[check] = state
                if before is not None:
                    tell(state, before)
        finally:
            self._current = None


def tell(state: State, before: State) -> None:
    """Say that a check has changed."""
    text = state.fault.text if state.fault else "satisfied again"
    facts.emit(signals.HealthChanged(state.check, state.ok, text, round(state.since - before.since)))
