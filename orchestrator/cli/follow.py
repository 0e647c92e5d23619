"""Following a run to its end: a moving line on a terminal, a line for each change elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from orchestrator.cli import output
from orchestrator.errors import MandorError
from schemas.states import RUN_TERMINAL

if TYPE_CHECKING:
    from orchestrator.lookup import Lookup
    from orchestrator.store.views import RunState

POLL_S: Final = 0.2
LONELY_S: Final = 10.0  # after this long in its first state, somebody may have forgotten to start a worker


class StillGoing(MandorError):
    """The time to follow is over; the run goes on."""

    kind = "timeout"


def to_the_end(lookup: "Lookup", run_id: str, deadline: float | None) -> None:
    """Return when the run has ended. deadline: of time.monotonic(); StillGoing when it passes."""
    row = lookup.find(run_id)
    with _progress() as show:
        while True:
            state = lookup.state(row)
            show(state)
            if state is None and lookup.find(run_id).ended_at is not None:
                return
            if state is not None and state.status in RUN_TERMINAL:
                return
            if deadline is not None and time.monotonic() > deadline:
                raise StillGoing(f"run {run_id} has not ended yet", hint=f"it goes on; mandor run show {run_id}")
            time.sleep(POLL_S)


def line(state: "RunState | None", waited_s: float) -> str:
    """Where the run stands, in one line."""
    if state is None:
        return "accepted"
    counts = state.counts
    parts = [str(state.status)]
    if state.total:
        parts.append(f"{counts.get('completed', 0)} of {state.total} steps")
    parts += [f"{counts[word]} {word}" for word in ("running", "backoff", "failed", "in_doubt") if counts.get(word)]
    if state.status in {"accepted", "planning"} and waited_s > LONELY_S:
        parts.append("nobody takes it on; are the workers running?")
    return ", ".join(parts)


@contextmanager
def _progress() -> Iterator[Callable[["RunState | None"], None]]:
    started = time.monotonic()
    if not sys.stderr.isatty() or output.as_json():
        yield lambda _: None
        return
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots", text=Text("accepted"))
    with Live(spinner, console=output.console(stderr=True), transient=True, refresh_per_second=10):

        def show(state: "RunState | None") -> None:
            waited = time.monotonic() - started
            spinner.update(text=Text(f"{line(state, waited)}  {waited:.0f} s"))

        yield show
