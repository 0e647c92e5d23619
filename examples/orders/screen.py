"""What the demo shows: bars that move on a terminal, a line for each second elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from examples.orders import floor, shop


@dataclass(frozen=True)
class Row:
    """A line of the final table."""

    what: str
    value: str
    good: bool


class Screen(Protocol):
    """Where the demo tells its story."""

    def say(self, text: str) -> None:
        """Something happened."""

    def show(self, progress: floor.Progress, orders: Sequence[shop.Order]) -> None:
        """Where everything stands now."""

    def report(self, rows: Sequence[Row]) -> None:
        """The result."""


@contextmanager
def open_screen() -> Iterator[Screen]:
    """The screen that suits standard output."""
    if not sys.stdout.isatty():
        yield Plain()
        return
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(40),
        MofNCompleteColumn(),
        TextColumn("{task.fields[more]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=Console(highlight=False), transient=True) as bars:
        yield Moving(bars)


class Moving:
    """Bars on a terminal."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._orders = bars.add_task("orders", total=None, more="")
        self._steps = bars.add_task("steps", total=None, more="")

    def say(self, text: str) -> None:
        """Above the bars."""
        self._bars.console.print(Text(text))

    def show(self, progress: floor.Progress, orders: Sequence[shop.Order]) -> None:
        """Move the bars."""
        steps = sum(2 * len(order.lines) + 2 for order in orders)
        self._bars.update(self._orders, total=len(orders), completed=progress.ended)
        self._bars.update(self._steps, total=steps, completed=progress.steps_done, more=f"{progress.running} running")

    def report(self, rows: Sequence[Row]) -> None:
        """The table, in place of the bars."""
        self._bars.stop()
        self._bars.console.print(_table(rows))


class Plain:
    """Lines in a pipe."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = -1

    def say(self, text: str) -> None:
        """With the time."""
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)

    def show(self, progress: floor.Progress, orders: Sequence[shop.Order]) -> None:
        """At most once a second."""
        second = int(time.monotonic() - self._began)
        if second != self._last:
            self._last = second
            done = f"{progress.ended} of {len(orders)} orders done"
            self.say(f"{done}, {progress.steps_done} steps completed, {progress.running} running")

    def report(self, rows: Sequence[Row]) -> None:
        """The table as aligned text."""
        Console(highlight=False, width=100).print(_table(rows))


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    for row in rows:
        table.add_row(row.what, row.value, Text("ok", "green") if row.good else Text("WRONG", "bold red"))
    return table
