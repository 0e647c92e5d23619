"""`mandor plan check-inflight`: which open runs would this release strand."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from orchestrator.cli import output
from orchestrator.cli.command import NO, Command
from orchestrator.cli.services import services
from orchestrator.cli.waiting import waiting_for
from workers import registry
from workers.inflight import Stranded, look


@click.command("check-inflight", cls=Command)
def command() -> None:
    """Hold every run that has not ended against the actions installed here: which of them would a deploy strand?

    Run it with the code that is to be deployed, against the ledger and the state store of the installation; nothing is
    changed. Reported are steps still to run, or perhaps to be undone, whose action is not there, has another effect
    class, takes their params no more or has lost its probe; results that a compensation could not be given; runs whose
    planner is not there. Exit 1 if there is one.

    \b
    Examples:
      mandor plan check-inflight
      mandor plan check-inflight --json | jq -r '.stranded[] | .run_id'
    """
    tools = services()
    registry.load_actions(tools.settings)
    known, looked_at, stranded = registry.catalogue(), 0, list[Stranded]()
    with waiting_for(lambda: f"{looked_at} open runs looked at, {len(stranded)} stranded"):
        for found in look(tools.ledger, tools.store, tools.settings.namespace, known):
            looked_at += 1
            if found is not None:
                stranded.append(found)
    if output.as_json():
        output.print_json({"runs": looked_at, "stranded": list(map(asdict, stranded))})
    else:
        _print(looked_at, stranded)
    if stranded:
        click.get_current_context().exit(NO)


def _print(looked_at: int, stranded: list[Stranded]) -> None:
    if stranded:
        output.print_table(["run", "status", "step", "needed to", "what", "where", "why"], _rows(stranded))
    output.note(f"{looked_at} open run{'' if looked_at == 1 else 's'} looked at, {len(stranded)} would be stranded")


def _rows(stranded: list[Stranded]) -> Iterator[list[Any]]:
    for run in stranded:
        for one in run.findings:
            yield [run.run_id, run.status, one.step_id, one.need, one.kind, one.path, one.message]
        if run.more:
            yield [run.run_id, run.status, None, None, None, None, f"and {run.more} more"]
