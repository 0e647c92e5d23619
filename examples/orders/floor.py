"""Watching the runs: how far they are, who holds what, and when the steps of a lost worker are done."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from examples.orders import carrier
from orchestrator.ledger import LedgerRun
from orchestrator.lookup import Lookup
from orchestrator.store import Store
from orchestrator.store.views import StepState
from schemas.ids import RunRef
from schemas.states import RUN_TERMINAL, RunStatus, StepStatus


@dataclass(frozen=True)
class Progress:
    """Counts over all runs. ended: whatever their end."""

    runs: int
    ended: int
    succeeded: int
    steps_done: int
    running: int


@dataclass(frozen=True)
class Held:
    """A step that was running when its worker was killed."""

    ref: RunRef
    step_id: str


@dataclass(frozen=True)
class Running:
    """A running step. pid: of the process that runs it; fresh: it will surely run for another moment."""

    held: Held
    pid: int
    fresh: bool


class Floor:
    """All runs of the demo."""

    def __init__(self, lookup: Lookup, store: Store) -> None:
        self._lookup = lookup
        self._store = store
        self._rows: list[LedgerRun] = []
        self._ended: dict[str, tuple[str, int]] = {}  # run -> status, completed steps

    def add(self, run_id: str) -> None:
        """Watch this run too."""
        self._rows.append(self._lookup.find(run_id))

    def look(self) -> Progress:
        """Where everything stands."""
        done = running = 0
        for row in self._rows:
            if row.run_id in self._ended:
                continue
            state = self._lookup.state(row)
            if state is None:
                continue
            completed = state.counts.get(StepStatus.COMPLETED, 0)
            if state.status in RUN_TERMINAL:
                self._ended[row.run_id] = (state.status, completed)
            else:
                done += completed
                running += state.counts.get(StepStatus.RUNNING, 0)
        succeeded = sum(status == RunStatus.SUCCEEDED for status, _ in self._ended.values())
        done += sum(completed for _, completed in self._ended.values())
        return Progress(len(self._rows), len(self._ended), succeeded, done, running)

    def fulfilled(self) -> set[str]:
        """Runs that have succeeded."""
        return {run_id for run_id, (status, _) in self._ended.items() if status == RunStatus.SUCCEEDED}

    def running(self) -> list[Running]:
        """Steps that run now."""
        open_rows = [row for row in self._rows if row.run_id not in self._ended]
        refs = [self._lookup.ref(row) for row in open_rows]
        now_ms = self._store.now_ms()
        return [
            Running(Held(ref, step.id), int(step.worker.split(":")[1]), _is_fresh(step, now_ms))
            for ref in refs
            for step in self._store.views.steps(ref)
            if step.status == StepStatus.RUNNING and step.worker
        ]

    def recovered_at(self, held: Sequence[Held]) -> int | None:
        """When the last of these steps was completed (ms since the epoch); None while one is not."""
        steps = [self._store.views.step(one.ref, one.step_id) for one in held]
        return max(step.ended_at for step in steps if step) if all(map(_completed, steps)) else None


def _is_fresh(step: StepState, now_ms: int) -> bool:
    return step.action == "carrier.book" and now_ms - step.started_at < 1000 * carrier.LATENCY_S / 3


def _completed(step: StepState | None) -> bool:
    return step is not None and step.status == StepStatus.COMPLETED


def belongs_to(pid: int, group: int) -> bool:
    """Whether the process is (or, dead but unburied, was) one of this process group."""
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False
