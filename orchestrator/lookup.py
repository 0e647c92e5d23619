"""What is known of a run, from both memories: the store has its life, the ledger that it was and how it ended."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, NoReturn

from orchestrator import bound, recalled
from orchestrator.errors import NotFound
from orchestrator.ledger import Delivery, DeliveryState, Ledger, LedgerRun
from orchestrator.recalled import Recalled
from orchestrator.settings import settings
from orchestrator.store import Store
from orchestrator.store.views import UNDO, Event, RunState, StepState, UndoState
from schemas.ids import RunRef, is_run_id
from schemas.run import (
    ArtifactView,
    CallbackView,
    CompensationView,
    ErrorView,
    EventView,
    LetterView,
    LimitsView,
    RunView,
    StepView,
)
from schemas.states import RunStatus, StepStatus

LETTERS: Final = 100  # of one run; more would say nothing new
PAGE: Final = 1000  # events read at once


class Lookup:
    """Reads runs. NotFound for an id that the ledger never accepted; StoreError and LedgerError as they come."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._ledger = ledger
        self._store = store

    def find(self, run_id: str) -> LedgerRun:
        """The ledger's row, which also says where the run's state lies."""
        row = self._ledger.run(run_id.lower()) if is_run_id(run_id.lower()) else None
        if row is None:
            raise NotFound(f"no run {run_id}", path="run_id", hint="`mandor run list` shows which there are")
        return row

    def ref(self, row: LedgerRun) -> RunRef:
        """Where the run's state lies."""
        return RunRef(row.run_id, row.session)

    def state(self, row: LedgerRun) -> RunState | None:
        """The live run; None when the store does not have it (any more, or yet)."""
        return self._store.views.run(self.ref(row))

    def newest_generation(self, row: LedgerRun) -> int:
        """The last one that ledger or store have heard of."""
        state = self.state(row)
        return max(row.generation, state.generation if state else 0)

    def run(self, run_id: str) -> RunView:
        """The whole run. Once the store has let it go, as the ledger was told of it."""
        row = self.find(run_id)
        kept = tuple(ArtifactView(**asdict(one)) for one in self._ledger.files.kept(row.run_id))
        told = callback_view(row.callback, self._ledger.deliveries.newest_of(row.run_id)) if row.callback else None
        return self._itself(row).model_copy(update={"artifacts": kept, "callback": told})

    def _itself(self, row: LedgerRun) -> RunView:
        letters = tuple(
            LetterView(
                id=letter.id, kind=letter.kind, step_id=letter.step_id, reason=letter.reason, status=letter.status
            )
            for letter in self._ledger.letters(LETTERS, run_id=row.run_id)
        )
        state = self.state(row)
        if state is None:
            found = recalled.recall(self._ledger, row)
            return remembered(row, letters) if found is None else as_told(row, found, letters)
        steps, ref, views = self._store.views.steps(self.ref(row)), self.ref(row), self._store.views
        found = Recalled(state, steps, views.results(ref), views.errors(ref))
        ended_by = bound.ended_by(state, steps, settings())
        return whole(row, found, letters, self._store.now_ms(), ended_by)

    def events(self, run_id: str) -> Iterator[EventView]:
        """Every transition that is known, oldest first. NotFound where none is."""
        row = self.find(run_id)
        if self.state(row) is None:
            yield from map(event_view, recalled.events(self._ledger, row.run_id) or self._nothing_of(row))
            return
        after: str | None = None
        while page := self._store.views.events(self.ref(row), after, PAGE):
            yield from map(event_view, page)
            after = page[-1].id

    def results(self, run_id: str) -> Mapping[str, Any]:
        """The results of the completed steps, in the order of the plan. NotFound as for `events`."""
        row = self.find(run_id)
        ref = self.ref(row)
        if self.state(row) is None:
            found = recalled.recall(self._ledger, row) or self._nothing_of(row)
            return {step_id: json.loads(text) for step_id, text in found.results.items()}
        texts = self._store.views.results(ref)
        return {step.id: json.loads(texts[step.id]) for step in self._store.views.steps(ref) if step.id in texts}

    def _nothing_of(self, row: LedgerRun) -> NoReturn:
        ended = f"it ended as {row.status}" if row.ended_at else "it is not there yet"
        message = f"neither state store nor ledger has the steps of run {row.run_id}: {ended}"
        raise NotFound(message, path="run_id", hint="`mandor run show` tells what is left of it")


def callback_view(url: str, told: Delivery | None) -> CallbackView:
    """Where telling the end of a run stands."""
    if told is None:
        return CallbackView(url=url, state="waits_for_end")
    return CallbackView(
        url=told.url,
        state=told.state.value,
        id=told.id,
        generation=told.generation,
        attempts=told.attempts,
        status_code=told.status_code,
        error=told.error,
        due_at=told.due_at if told.state is DeliveryState.PENDING else None,
        done_at=told.done_at,
    )


def remembered(row: LedgerRun, letters: tuple[LetterView, ...]) -> RunView:
    """A run of which the ledger was told nothing but its end."""
    return RunView(
        run_id=row.run_id,
        session_id=row.session_id,
        request_id=row.request_id,
        status=row.status,
        reason=row.reason,
        version=row.version,
        generation=row.generation,
        plan_id=None,
        plan_hash=row.plan_hash,
        context_hash=row.context_hash,
        policy_hash=row.policy_hash,
        created_at=row.accepted_at,
        ended_at=row.ended_at,
        steps=(),
        dead_letters=letters,
        policy=json.loads(row.policy_text),
    )


def as_told(row: LedgerRun, found: Recalled, letters: tuple[LetterView, ...]) -> RunView:
    """A run as the ledger was told of it. Nobody knows when one will end that the store has lost."""
    return whole(row, found, letters, 0, None)


def whole(
    row: LedgerRun, found: Recalled, letters: tuple[LetterView, ...], now_ms: int, ended_by: int | None
) -> RunView:
    """All of a run. ended_by: the latest end of one that goes on."""
    state, errors, hashed = found.run, found.errors, found.run.policy_hash
    steps = tuple(
        step_view(step, hashed, found.results.get(step.id), errors.get(step.id), now_ms) for step in found.steps
    )
    view = live(row, state, steps, compensation_views(found.steps, errors), letters, ended_by)
    return view.model_copy(update={"limits": limits_views(found.steps)})


def live(
    row: LedgerRun,
    state: RunState,
    steps: tuple[StepView, ...],
    compensations: tuple[CompensationView, ...],
    letters: tuple[LetterView, ...],
    ended_by: int | None,
) -> RunView:
    """A run with its steps."""
    return RunView(
        run_id=row.run_id,
        session_id=row.session_id,
        request_id=row.request_id,
        status=RunStatus(state.status),
        reason=state.reason or None,
        version=state.version,
        generation=state.generation,
        plan_id=state.plan_id or None,
        plan_hash=state.plan_hash or None,
        context_hash=row.context_hash,
        policy_hash=state.policy_hash,
        created_at=state.created_at,
        ended_at=state.ended_at or None,
        steps=steps,
        compensations=compensations,
        dead_letters=letters,
        error=None if state.error_text is None else error_view(state.error_text),
        ended_by=None if state.ended_at else ended_by,
        policy=json.loads(row.policy_text),
    )


def limits_views(steps: Iterable[StepState]) -> dict[str, LimitsView]:
    """The limits by action: what one says of its steps holds for all of them."""
    return {step.action: limits_view(step) for step in steps}


def limits_view(step: StepState) -> LimitsView:
    """What bounds one step."""
    return LimitsView(
        attempts=step.max_attempts,
        timeout_s=step.limit_ms / 1000,
        lease_s=step.lease_ms / 1000,
        backoff_s=step.backoff_ms / 1000,
        backoff_max_s=step.backoff_max_ms / 1000,
    )


def step_view(step: StepState, policy_hash: str, result: str | None, error: str | None, now_ms: int) -> StepView:
    """One step. A running step whose lease is over shows as STALE: nobody has noticed yet."""
    lapsed = step.status == StepStatus.RUNNING and (step.lease_end or now_ms) < now_ms
    return StepView(
        id=step.id,
        index=step.index,
        action=step.action,
        status="STALE" if lapsed else StepStatus(step.status),
        attempt=step.attempt,
        attempt_group=step.group,
        fence=step.fence or None,
        step_token=step.token,
        policy_hash=policy_hash if step.attempt else None,
        needs=step.needs,
        result=None if result is None else json.loads(result),
        error=None if error is None else error_view(error),
        dispatched_at=step.dispatched_at or None,
        started_at=step.started_at or None,
        ended_at=step.ended_at or None,
    )


def compensation_views(steps: list[StepState], errors: Mapping[str, str]) -> tuple[CompensationView, ...]:
    """What is being undone or was, in the order in which it began; what was not begun yet comes last."""
    begun = [(step, step.undo, errors.get(f"{step.id}{UNDO}")) for step in steps if step.undo is not None]
    begun.sort(key=lambda one: (one[1].started_at == 0, one[1].started_at, one[1].fence))
    return tuple(compensation_view(step, undo, error) for step, undo, error in begun)


def compensation_view(step: StepState, undo: UndoState, error: str | None) -> CompensationView:
    """The undoing of one step."""
    return CompensationView(
        step_id=step.id,
        action=step.action,
        status=StepStatus(step.status),
        attempt=undo.attempt,
        fence=undo.fence or None,
        error=None if error is None else error_view(error),
        started_at=undo.started_at or None,
        ended_at=undo.ended_at or None,
    )


def error_view(text: str) -> ErrorView:
    """Why a step failed, as the worker wrote it down."""
    error = json.loads(text)
    return ErrorView(kind=error.get("kind", "error"), message=error.get("message", ""), path=error.get("path"))


def event_view(event: Event) -> EventView:
    """One transition."""
    fields = dict(event.fields)
    attempt, fence = fields.pop("attempt", ""), fields.pop("fence", "")
    return EventView(
        version=event.version,
        at=event.at,
        event=event.event,
        step_id=fields.pop("step_id", "") or None,
        attempt=int(attempt) if attempt else None,
        fence=int(fence) if fence else None,
        worker_id=fields.pop("worker_id", "") or None,
        policy_hash=fields.pop("policy_hash", "") or None,
        steps=tuple(step_id for step_id, *_ in event.steps),
        details={name: value for name, value in fields.items() if value},
    )
