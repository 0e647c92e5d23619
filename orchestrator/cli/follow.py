"""Following a run to its end: a moving table on a terminal, a line for each change elsewhere.

The run does not know that it is watched. Whoever stops following (Ctrl-C, a timeout) stops nothing else.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import click

from orchestrator.cli import output
from orchestrator.cli.command import Interrupted
from orchestrator.errors import LedgerUnavailable, MandorError, StoreUnavailable
from orchestrator.telemetry.text import printable
from schemas.base import to_rfc3339

if TYPE_CHECKING:
    from orchestrator.following import Follower
    from orchestrator.store.views import Event

POLL_S: Final = 0.2
PATIENCE_S: Final = 60.0  # a service that was there before may be restarting
PAUSE_S: Final = 1.0
# moves that say only that a step comes nearer its turn
QUIET: Final = frozenset({"pending", "ready", "dispatched"})

# the order in which a summary counts steps: at work, wrong, waiting for their turn, over
TOLD: Final = (
    "running",
    "backoff",
    "failed",
    "in_doubt",
    "waiting_approval",
    "compensating",
    "compensation_failed",
    "dispatched",
    "ready",
    "pending",
    "skipped",
    "compensated",
)


class StillGoing(MandorError):
    """The time to follow is over; the run goes on."""

    kind = "timeout"


class Screen(Protocol):
    """Where a run is shown while it is followed."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, run: "Follower", news: "list[Event]") -> None:
        """What has happened since the last call; also called when nothing has."""

    def trouble(self, run: "Follower", text: str) -> None:
        """Nothing can be learned for the moment, and why; called again and again while that lasts."""


def to_the_end(run: "Follower", screen: Screen, timeout_s: float | None = None) -> None:
    """Return when the run has ended. StillGoing: it has not within timeout_s."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with _resumable(run.run_id), screen:
        screen.show(run, run.look())
        while run.ended_at is None:
            if deadline is not None and time.monotonic() > deadline:
                hint = f"it goes on; `mandor run watch {run.run_id}` follows it again, `mandor run show` looks once"
                raise StillGoing(f"run {run.run_id} has not ended yet", hint=hint)
            time.sleep(POLL_S)
            _look(run, screen)


@contextmanager
def _resumable(run_id: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"the run goes on; `mandor run watch {run_id}` follows it again") from None


def _look(run: "Follower", screen: Screen) -> None:
    """One look. A service that was there before is waited for, but not for ever."""
    patience = time.monotonic() + PATIENCE_S
    while True:
        try:
            screen.show(run, run.look())
            return
        except (StoreUnavailable, LedgerUnavailable) as away:
            if time.monotonic() > patience:
                raise
            screen.trouble(run, f"{away.message}; trying again")
            time.sleep(PAUSE_S)


# ---- screens without a terminal


class Silent:
    """Shows nothing: the caller prints the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves nothing."""

    def show(self, run: "Follower", news: "list[Event]") -> None:
        """Nothing."""

    def trouble(self, run: "Follower", text: str) -> None:
        """Nothing."""


class Telling(Silent):
    """Tells of trouble on standard error, once for each kind of it."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def trouble(self, run: "Follower", text: str) -> None:  # noqa: ARG002  # a screen that shows no run
        """The first time."""
        if text not in self._told:
            output.note(text)
        self._told.add(text)


class Objects(Telling):
    """Every transition as a JSON object on a line, from the run's first; then one that says how it ended."""

    def show(self, run: "Follower", news: "list[Event]") -> None:
        """The new ones."""
        from orchestrator.lookup import event_view

        for event in news:
            moves = [_move(*move) for move in event.steps]
            output.print_json(event_view(event).model_dump(mode="json") | {"moves": moves}, one_line=True)
        if run.ended_at is not None:
            output.print_json(end_of(run), one_line=True)


def end_of(run: "Follower") -> dict[str, Any]:
    """How the run ended. counts: steps by status, {} when the store has let them go."""
    return {
        "event": "end",
        "at": None if run.ended_at is None else to_rfc3339(run.ended_at),
        "run_id": run.run_id,
        "status": run.status,
        "reason": run.reason,
        "counts": run.state.counts if run.state else {},
    }


def _move(step_id: str, status: str, attempt: int, fence: int) -> dict[str, Any]:
    return {"step_id": step_id, "status": status, "attempt": attempt, "fence": fence}


class Lines(Telling):
    """A line for each change that a person would tell another."""

    def __init__(self) -> None:
        super().__init__()
        self._began: dict[str, int] = {}

    def show(self, run: "Follower", news: "list[Event]") -> None:
        """The new ones; once the run has ended, how far it came."""
        for event in news:
            if event.event != f"run.{run.status}" or run.ended_at is None:
                _tell_run(event)
            self._tell_steps(run, event)
        if run.ended_at is not None:
            _tell(run.ended_at, "run", run.status, summary(run))

    def _tell_steps(self, run: "Follower", event: "Event") -> None:
        skipped = 0
        for step_id, status, attempt, _ in event.steps:
            if status == "skipped":
                skipped += 1
            elif status not in QUIET:
                _tell(event.at, step_id, status, self._more(run, event, step_id, status, attempt))
        if skipped:
            _tell(event.at, f"{skipped} steps" if skipped > 1 else "1 step", "skipped", "")

    def _more(self, run: "Follower", event: "Event", step_id: str, status: str, attempt: int) -> str:
        worker = event.fields.get("worker_id")
        if status == "running":
            self._began[step_id] = event.at
            return f"attempt {attempt}" + (f" by {short_worker(worker)}" if worker else "")
        began = self._began.pop(step_id, None)
        took = f"after {output.duration(event.at - began)}" if began is not None else ""
        error = run.errors.get(step_id) if status in {"failed", "backoff", "in_doubt"} else None
        return ": ".join(filter(None, (took, error)))


def _tell_run(event: "Event") -> None:
    """What is about no single step: the run's life, and its plan's."""
    what, _, word = event.event.partition(".")
    if what == "step" or "step_id" in event.fields:
        return
    fields, worker = event.fields, event.fields.get("worker_id")
    told = (fields.get("reason"), f"by {short_worker(worker)}" if worker else "", fields.get("by"))
    _tell(event.at, what, word.replace("_", " "), ", ".join(filter(None, told)))


def _tell(at_ms: int, what: str, status: str, more: str) -> None:
    click.echo(printable(f"{output.clock(at_ms)}  {what:<24}  {status:<10}  {more}".rstrip()))


# ---- words that all screens share


def summary(run: "Follower") -> str:
    """How far the run is, in words."""
    state = run.state
    parts = []
    if state and state.total:
        parts.append(f"{state.counts.get('completed', 0)} of {state.total} steps")
        parts += [f"{number} {_word(word)}" for word, number in _told(state.counts)]
    if run.reason:
        parts.append(run.reason)
    if run.ended_at is not None:
        parts.append(f"after {output.duration(run.ended_at - run.row.accepted_at)}")
    return ", ".join(parts)


def _told(counts: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Those first that are at work or wrong."""
    return ((word, counts[word]) for word in TOLD if counts.get(word))


def _word(status: str) -> str:
    return status.replace("_", " ")


def short_worker(worker_id: str) -> str:
    """Host and process of a worker's name, without the moment the process began."""
    return ":".join(worker_id.split(":")[:2])


def terminal_screen(*, stderr: bool = False) -> Screen | None:
    """The moving table, where somebody sees it move. stderr: it goes away at the end, and stdout stays clean."""
    if output.as_json() or not output.can_move(sys.stderr if stderr else sys.stdout):
        return None
    from orchestrator.cli.board import Board

    return Board(output.console(stderr=stderr, soft_wrap=False), stays=not stderr)
