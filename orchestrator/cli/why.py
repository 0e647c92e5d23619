"""`mandor run why`: what a run waits for, since when, and what will move it on."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli import output
from orchestrator.cli.command import Command
from orchestrator.cli.services import services

if TYPE_CHECKING:
    from orchestrator.waits import Wait, Why


@click.command("why", cls=Command)
@click.argument("run_id", metavar="ID")
def command(run_id: str) -> None:
    """Say what a run waits for, since when, and what will move it on, when.

    \b
    Examples:
      mandor run why ID
      mandor run why ID --json | jq -r '.waits[] | select(.what == "approval") | .step_id'
    """
    from orchestrator import waits

    tools = services()
    found = waits.why(tools.lookup, tools.store, run_id, tools.settings)
    if output.as_json():
        output.print_json({"run_id": run_id.lower(), **asdict(found)})
    else:
        _print(found)


def _print(found: "Why") -> None:
    fields = {
        "status": found.status,
        "deadline": output.when(found.deadline_at),
        "ended by": output.when(found.ended_by),
    }
    output.print_fields(fields)
    if not found.waits:
        output.note("it waits for nothing")
        return
    click.echo()
    output.print_table(
        ["step", "waits for", "since", "until", "moved by"], [_row(wait, found.now) for wait in found.waits]
    )
    if found.more:
        output.note(f"{found.more} more steps")


def _row(wait: "Wait", now: int) -> list[output.Cell]:
    return [wait.step_id, wait.text, _ago(wait.since, now), _in(wait.until, now), _mover(wait, now)]


def _mover(wait: "Wait", now: int) -> str | None:
    when = _in(wait.at, now)
    return f"{wait.mover}, {when}" if wait.mover and when else wait.mover or when


def _ago(at: int | None, now: int) -> str | None:
    return None if at is None else f"{span(now - at)} ago"


def _in(at: int | None, now: int) -> str | None:
    if at is None:
        return None
    return f"in {span(at - now)}" if at >= now else f"{span(now - at)} ago"


def span(ms: int) -> str:
    """`4 s`, `3 min`, `7 h`, `2 d`: the largest unit that says enough."""
    seconds = max(0, ms) / 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
