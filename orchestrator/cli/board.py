"""A run on a terminal: a table that moves. Never more lines than the terminal has, however many steps there are."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.cli import output
from orchestrator.cli.follow import QUIET, short_worker, summary
from orchestrator.telemetry.text import printable
from schemas.states import STEP_TERMINAL, RunStatus, StepStatus

if TYPE_CHECKING:
    from orchestrator.following import Follower
    from orchestrator.store.views import Event, StepState

TICK_S: Final = 1.0  # ages are told in seconds
LONELY_MS: Final = 10_000  # after this long without anybody, somebody may have forgotten to start a worker
AROUND: Final = 7  # other lines: the run, its age, its counts, an empty one, the headers, what is not shown, a remark
ERRORS: Final = 3
WIDE: Final = 90
# what is shown first where there is not room for all
RANKS: Final = (
    {"failed", "in_doubt", "compensation_failed", "STALE", "waiting_approval"},
    {"running", "compensating"},
    {"backoff"},
    {"dispatched"},
)


class Board:
    """stays: the last picture is left on the terminal."""

    def __init__(self, console: Console, *, stays: bool) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=not stays, vertical_overflow="crop")
        self._drawn = 0.0
        self._known_ms = 0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, run: "Follower", news: "list[Event]") -> None:
        """Draw the run anew when something has happened, and once a second for the ages."""
        if not news and run.ended_at is None and time.monotonic() < self._drawn + TICK_S:
            return
        run.look_again(lapsed(run.steps.values(), run.now_ms))
        self._draw(run)

    def trouble(self, run: "Follower", text: str) -> None:
        """The last that is known, as of then: nobody can say now whose lease has lapsed."""
        self._live.update(picture(run, *self._console.size, text, self._known_ms), refresh=True)

    def _draw(self, run: "Follower") -> None:
        self._known_ms = run.now_ms
        self._live.update(picture(run, *self._console.size), refresh=True)
        self._drawn = time.monotonic()


def lapsed(steps: "Iterable[StepState]", now_ms: int) -> "list[StepState]":
    """Running steps whose lease is over, as far as is known."""
    return [step for step in steps if step.status == StepStatus.RUNNING and step.lease_end < now_ms]


def picture(run: "Follower", width: int, height: int, remark: str | None = None, now_ms: int | None = None) -> Group:
    """The run in so many columns and lines. now_ms: the moment that it shows, by default this one."""
    now_ms = run.now_ms if now_ms is None else now_ms
    wrong = list(_errors(run))[-ERRORS:]
    room = max(1, height - AROUND - len(wrong))
    steps = list(run.steps.values())
    shown = chosen(steps, room, now_ms)
    parts: list[Text | Table] = [*_header(run, now_ms)]
    if shown:
        parts += [Text(), _table(shown, width, now_ms)]
    if len(shown) < len(steps):
        parts.append(_line(rest(steps, shown, now_ms), "dim"))
    parts += [_line(text, "red") for text in wrong]
    told = remark or lonely(run)
    return Group(*parts, *([_line(told, "yellow")] if told else []))


def _line(text: str, style: str = "") -> Text:
    """On one line, whatever is in it."""
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _header(run: "Follower", now_ms: int) -> Iterator[Text]:
    yield Text.assemble(f"{run.run_id}  ", output.status_text(run.status), no_wrap=True, overflow="ellipsis")
    yield _line(", ".join(_about(run, now_ms)), "dim")
    told = summary(run)
    if told:
        yield _line(told)


def _about(run: "Follower", now_ms: int) -> Iterator[str]:
    if run.ended_at is not None:
        yield f"ended {output.when(run.ended_at)}"
    else:
        yield f"age {output.age(now_ms - run.row.accepted_at)}"
        if run.state:
            left = run.state.deadline_at - now_ms
            yield f"deadline in {output.age(left)}" if left > 0 else f"deadline passed {output.age(-left)} ago"
    if run.state and run.state.paused_at:
        yield f"paused {output.age(now_ms - run.state.paused_at)} ago by {run.state.paused_by}"
    if run.state and run.state.planner:
        yield f"planner {run.state.planner}"
    if run.row.session_id:
        yield f"session {run.row.session_id}"


# ---- steps


def word_of(step: "StepState", now_ms: int) -> str:
    """The step's status, or STALE while its lease has lapsed unnoticed."""
    return "STALE" if step.status == StepStatus.RUNNING and step.lease_end < now_ms else step.status


def chosen(steps: "Sequence[StepState]", room: int, now_ms: int) -> "list[StepState]":
    """As many steps as there is room for, in the plan's order: those that are wrong or moving, then the latest."""
    if len(steps) <= room:
        return list(steps)
    ranked = sorted(steps, key=lambda step: _rank(step, now_ms))
    return sorted(ranked[:room], key=lambda step: step.index)


def _rank(step: "StepState", now_ms: int) -> tuple[int, int, int]:
    word = word_of(step, now_ms)
    rank = next((place for place, words in enumerate(RANKS) if word in words), len(RANKS))
    return rank, -max(step.ended_at, step.started_at), step.index


def rest(steps: "Sequence[StepState]", shown: "Sequence[StepState]", now_ms: int) -> str:
    """What is not shown, by status."""
    seen = {step.id for step in shown}
    counts = Counter(word_of(step, now_ms) for step in steps if step.id not in seen)
    return f"{len(steps) - len(shown)} more: " + ", ".join(f"{number} {word}" for word, number in counts.most_common())


def _table(steps: "Sequence[StepState]", width: int, now_ms: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), width=width)
    wide = width >= WIDE
    table.add_column("step", no_wrap=True, overflow="ellipsis", ratio=3, min_width=6)
    if wide:
        table.add_column("action", no_wrap=True, overflow="ellipsis", ratio=3)
    table.add_column("status", no_wrap=True)
    table.add_column("attempt", no_wrap=True, justify="right")
    table.add_column("took", no_wrap=True, justify="right")
    table.add_column("worker", no_wrap=True, overflow="ellipsis", ratio=2, min_width=6)
    for step in steps:
        action = [_line(step.action)] if wide else []
        table.add_row(_line(step.id), *action, *_cells(step, now_ms))
    return table


def _cells(step: "StepState", now_ms: int) -> tuple[Text, ...]:
    attempt = f"{step.attempt} of {step.max_attempts}" if step.attempt else ""
    worker = short_worker(step.worker) if step.worker and step.status not in QUIET else ""
    return output.status_text(word_of(step, now_ms)), Text(attempt), Text(_took(step, now_ms)), _line(worker, "dim")


def _took(step: "StepState", now_ms: int) -> str:
    """How long it has run; of a step that waits for its next attempt, how long it waits yet."""
    if step.status == StepStatus.BACKOFF:
        return f"in {output.age(max(step.not_before - now_ms, 0))}"
    if step.status == StepStatus.RUNNING:
        return output.age(now_ms - step.started_at)
    ended = step.ended_at if step.status in STEP_TERMINAL and step.started_at else 0
    return output.duration(step.ended_at - step.started_at) if ended else ""


def _errors(run: "Follower") -> Iterator[str]:
    """What went wrong last, the latest at the end."""
    told = [step for step in run.steps.values() if step.id in run.errors and step.status != StepStatus.COMPLETED]
    for step in sorted(told, key=lambda step: step.ended_at or step.started_at):
        yield f"{step.id}: {run.errors[step.id]}"


def lonely(run: "Follower") -> str | None:
    """A guess why nothing happens, when nothing does for long."""
    if run.ended_at is not None or (run.state and run.state.paused_at):
        return None
    if run.status == RunStatus.ACCEPTED and run.now_ms - run.row.accepted_at > LONELY_MS:
        return "nobody takes it on; are the workers running?"
    steps = run.steps.values()
    waiting = [step.dispatched_at for step in steps if step.status == StepStatus.DISPATCHED]
    if waiting and run.now_ms - min(waiting) > LONELY_MS and not any(step.attempt for step in steps):
        return "no worker takes the steps; are the step workers running?"
    return None
