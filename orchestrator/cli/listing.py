"""`mandor run list`: which runs there are."""

import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from orchestrator.cli import output
from orchestrator.cli.command import Command
from orchestrator.cli.moments import Moment
from orchestrator.cli.services import services
from orchestrator.cli.waiting import waiting_for
from orchestrator.telemetry.text import printable
from schemas.run import RunLine
from schemas.states import RunStatus

NEEDED: Final = frozenset({"id", "status", "age"})
NARROW: Final = 12  # a column cut shorter than this says nothing
GAP: Final = 2
MOMENT: Final = Moment()


@click.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--before", metavar="ID", help="Older than this run (the `next` of the page before).")
@click.option("--status", type=click.Choice([status.value for status in RunStatus]), help="How they stand.")
@click.option("--session", "session_id", metavar="ID", help="Of this session.")
@click.option("--planner", metavar="NAME", help="That this planner planned.")
@click.option("--action", metavar="NAME", help="With a step of this action.")
@click.option("--error", metavar="KIND", help="That ended with an error of this kind.")
@click.option("--since", type=MOMENT, metavar="WHEN", help="Accepted then or later: 2h ago, or an ISO time.")
@click.option("--until", type=MOMENT, metavar="WHEN", help="Accepted before.")
def command(limit: int, before: str | None, status: str | None, **wanted: Any) -> None:
    """List the runs, newest first; with several options those that fit all of them.

    They come from the ledger, which knows those too that the state store has let go. How a run stands that has not
    ended is asked of the store; while that is away, such a run shows as the ledger knows it.

    \b
    Examples:
      mandor run list
      mandor run list --limit 10 --before ID
      mandor run list --status failed --action payments.charge --since 2h
      mandor run list --error step_timeout --json | jq -r '.runs[].run_id'
    """
    from orchestrator import listing
    from orchestrator.ledger import RunFilter

    tools = services()
    with waiting_for("asking ledger and state store"):
        asked = RunFilter(status=RunStatus(status) if status else None, **wanted)
        found = listing.page(tools.ledger, lambda: tools.store, limit, before.lower() if before else None, asked)
    if output.as_json():
        output.print_json({"runs": [run.model_dump(mode="json") for run in found.runs], "next": found.next})
    elif found.runs:
        _print(found.runs)
    else:
        output.note(_none(before, narrowed=asked != RunFilter()))
    if found.trouble:
        output.note(f"open runs are shown as the ledger knows them: {found.trouble}")
    if found.next and not output.as_json():
        output.note(f"more: mandor run list --before {found.next}{_same(limit, status, wanted)}")


def _none(before: str | None, *, narrowed: bool) -> str:
    kind = "no such run" if narrowed else "no run"
    return f"{kind}s" if before is None else f"{kind} is older than {before}"


def _same(limit: int, status: str | None, wanted: Mapping[str, Any]) -> str:
    """The options as they were given, for the next page."""
    given = {"limit": limit if limit != 50 else None, "status": status, **wanted}
    moments = {name: output.iso(value) for name, value in given.items() if name in ("since", "until") and value}
    told = {name.removesuffix("_id"): value for name, value in {**given, **moments}.items() if value is not None}
    return "".join(f" --{name} {shlex.quote(str(value))}" for name, value in told.items())


def _print(runs: tuple[RunLine, ...]) -> None:
    now = time.time_ns() // 1_000_000
    columns: Mapping[str, Sequence[str]] = {
        "id": [run.run_id for run in runs],
        "status": [run.status for run in runs],
        "age": [output.about(now - run.created_at) for run in runs],
        "planner": [run.planner or "" for run in runs],
        "session": [run.session_id or "" for run in runs],
        "reason": [run.reason or "" for run in runs],
    }
    if sys.stdout.isatty():
        columns = fitting(columns, shutil.get_terminal_size().columns)
    output.print_table(list(columns), zip(*columns.values(), strict=True))


def fitting(columns: Mapping[str, Sequence[str]], width: int) -> dict[str, list[str]]:
    """The columns that a terminal of this width has room for: no empty one; the last one may be cut.

    What is left out is in `run show`. Those that say which run it is, and how it stands, are always there.
    """
    fit: dict[str, list[str]] = {}
    room = width
    for name, cells in columns.items():
        texts = [printable(cell) for cell in cells]
        wide = max(map(len, [name, *texts]))
        if not any(texts) or (name not in NEEDED and room < min(wide, NARROW)):
            continue
        fit[name] = [text if name in NEEDED else _cut(text, max(room, NARROW)) for text in texts]
        room -= wide + GAP
    return fit


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
