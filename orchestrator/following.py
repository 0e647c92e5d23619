"""Following a run: each look asks for what is new since the last one, however long the run is."""

import json
import time
from collections.abc import Iterable, Iterator

from orchestrator.ledger import LedgerRun
from orchestrator.lookup import Lookup
from orchestrator.store import Store
from orchestrator.store.views import Event, RunState, StepState
from schemas.states import RUN_TERMINAL, RunStatus, StepStatus

PAGE = 1000  # events, steps or errors read at once
WITH_ERROR = frozenset({StepStatus.BACKOFF, StepStatus.FAILED, StepStatus.IN_DOUBT, StepStatus.COMPENSATION_FAILED})


class Follower:
    """What is known of one run, as of the last look.

    row: the ledger's; state: the store's, None when it does not have the run (yet, or any more); steps: by id, in the
    plan's order; errors: the last message of each step that has one.
    """

    def __init__(self, lookup: Lookup, store: Store, run_id: str) -> None:
        """NotFound: nobody ever accepted such a run."""
        self._lookup = lookup
        self._store = store
        self.row: LedgerRun = lookup.find(run_id)
        self._ref = lookup.ref(self.row)
        self._ahead_ms = store.now_ms() - _wall_ms()
        self._after: str | None = None
        self.state: RunState | None = None
        self.steps: dict[str, StepState] = {}
        self.errors: dict[str, str] = {}

    @property
    def run_id(self) -> str:
        return self.row.run_id

    @property
    def now_ms(self) -> int:
        """The store's clock, by which the run's moments were stamped."""
        return _wall_ms() + self._ahead_ms

    @property
    def status(self) -> RunStatus:
        """The run's, from whoever knows best."""
        return RunStatus(self.state.status) if self.state else self.row.status

    @property
    def reason(self) -> str | None:
        return (self.state.reason or None) if self.state else self.row.reason

    @property
    def ended_at(self) -> int | None:
        """When the run ended, None while it has not."""
        if self.state:
            return self.state.ended_at if self.state.status in RUN_TERMINAL else None
        return self.row.ended_at

    def look(self) -> list[Event]:
        """What has happened since the last look, oldest first. StoreError and LedgerError as they come."""
        found = list(self._news())
        if found or self.state is None:
            self.state = self._store.views.run(self._ref)
        if self.state is None:
            self.row = self._lookup.find(self.run_id)
        elif found:
            self._read_steps(step_id for event in found for step_id, *_ in event.steps)
        return found

    def _news(self) -> Iterator[Event]:
        while page := self._store.views.events(self._ref, self._after, PAGE):
            self._after = page[-1].id
            yield from page
            if len(page) < PAGE:
                return

    def _read_steps(self, moved: Iterable[str]) -> None:
        """Those that moved; all of them when the plan has only just come."""
        known = self.state is not None and len(self.steps) == self.state.total
        ids = sorted(set(moved)) if known else None
        read = {step.id: step for step in self._store.views.records(self._ref, ids)}
        self.steps = self.steps | read if known else read
        wrong = [step.id for step in read.values() if step.status in WITH_ERROR]
        self.errors |= {step_id: _message(text) for step_id, text in self._store.views.errors(self._ref, wrong).items()}

    def look_again(self, steps: Iterable[StepState]) -> None:
        """Read these steps anew: a lease is renewed without a word."""
        ids = [step.id for step in steps]
        self.steps |= {step.id: step for step in self._store.views.records(self._ref, ids)} if ids else {}


def _message(error_text: str) -> str:
    return str(json.loads(error_text).get("message", ""))


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
