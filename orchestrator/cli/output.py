"""What commands print. Nothing here trusts a value: what came from a plan or a user is escaped before it is shown."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Final

import click

from orchestrator.telemetry.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

JSON_KEY: Final = "mandor.json"
GOOD: Final = frozenset({"succeeded", "completed", "compensated", "accept", "accept_after_extraction"})
BAD: Final = frozenset({"failed", "dead_lettered", "in_doubt", "compensation_failed", "cancelled", "reject"})
MOVING: Final = frozenset({"running", "planning", "dispatched", "backoff", "failing", "compensating"})
WHOLE: Final = frozenset({"id", "run", "status"})  # columns that are never cut or broken
NARROW: Final = 8  # other columns are broken, but not to less than this
GAP: Final = 2

Cell = str | int | None


def as_json() -> bool:
    """Whether the command was called with --json."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(JSON_KEY))


def prepare_streams() -> None:
    """Text that the terminal's encoding lacks is printed as an escape rather than ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")


def has_colours(stream: IO[str]) -> bool:
    """Whether who reads this stream is a terminal that wants colours."""
    return can_move(stream) and not os.environ.get("NO_COLOR")


def can_move(stream: IO[str]) -> bool:
    """Whether it is a terminal on which something written can be written over."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def console(*, stderr: bool = False, soft_wrap: bool = True) -> "Console":
    """A console that interprets nothing; it has colours only on a terminal that wants them."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=soft_wrap)


def print_json(value: Any, *, one_line: bool = False) -> None:
    """One JSON document; on several lines at a terminal, else on one. Pure ASCII, so nothing can act on a terminal."""
    indent = None if one_line or not sys.stdout.isatty() else 2
    click.echo(json.dumps(value, indent=indent, separators=None if indent else (",", ":")))


def note(text: str) -> None:
    """A remark for people, on standard error, where no program reads it by mistake. What others wrote on several lines
    is one.
    """
    click.echo(printable(re.sub(r"\s*\n\s*", " ", text.rstrip())), err=True)


def colour_of(status: str) -> str:
    """The colour of a status's news; empty: none."""
    colours = ((GOOD, "green"), (BAD, "red"), (MOVING, "yellow"))
    return next((colour for words, colour in colours if status in words), "")


def status_text(status: str) -> "Text":
    """The status in the colour of its news."""
    from rich.text import Text

    return Text(printable(status), style=colour_of(status))


def print_fields(fields: Mapping[str, Cell]) -> None:
    """`name  value` lines; what is unknown is left out."""
    known = {name: printable(str(value)) for name, value in fields.items() if value is not None}
    width = max((len(name) for name in known), default=0)
    paint = click.style if has_colours(sys.stdout) else _unpainted
    for name, value in known.items():
        colour = colour_of(value) if name == "status" else ""
        click.echo(paint(f"{name:<{width}}  ", dim=True) + (paint(value, fg=colour) if colour else value))


def _unpainted(text: str, **_: Any) -> str:
    return text


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Columns with headers. A pipe gets whole values, aligned and unwrapped."""
    cells = [[printable("" if cell is None else str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    if sys.stdout.isatty():
        screen = console()
        screen.width = max(screen.width, _least_width(headers, widths))
        screen.print(_rich_table(headers, cells))
        return
    for row in (headers, *cells):
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _least_width(headers: Sequence[str], widths: Sequence[int]) -> int:
    """Below this a terminal breaks the lines itself: an id that was cut is of no use to anybody."""
    needed = (width if name in WHOLE else min(width, NARROW) for name, width in zip(headers, widths, strict=True))
    return sum(needed) + GAP * len(widths)


def _rich_table(headers: Sequence[str], cells: list[list[str]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for header in headers:
        table.add_column(header, overflow="fold", no_wrap=header in WHOLE)
    for row in cells:
        table.add_row(*(status_text(cell) for cell in row))
    return table


def when(at: str | int | None) -> str | None:
    """A moment (RFC 3339, or milliseconds since the epoch) in the reader's own time zone."""
    if at is None:
        return None
    moment = datetime.fromtimestamp(at / 1000, UTC) if isinstance(at, int) else datetime.fromisoformat(at)
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def iso(at_ms: int) -> str:
    """A moment, so that a command can be given it again."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at_ms: int) -> str:
    """The time of day of a moment, with milliseconds, in the reader's own time zone."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]


def duration(ms: int) -> str:
    """How long something took: `12 ms`, `3.4 s`, `2 min 05 s`, `3 h 07 min`."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    return f"{ms / 1000:.1f} s" if ms < 60_000 else age(ms)


def about(ms: int) -> str:
    """How long something has lasted, roughly: `4 s`, `2 min`, `3 h`, `2 d`."""
    return " ".join(age(ms).split()[:2])


def age(ms: int) -> str:
    """How long something has lasted, to two units: `4 s`, `2 min 05 s`, `3 h 07 min`, `2 d 4 h`."""
    seconds = max(ms, 0) // 1000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02} s"
    if seconds < 86_400:
        return f"{seconds // 3600} h {seconds // 60 % 60:02} min"
    return f"{seconds // 86_400} d {seconds // 3600 % 24} h"
