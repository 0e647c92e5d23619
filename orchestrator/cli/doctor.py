"""`mandor doctor`: what is wrong with this installation, and how it is mended."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator import settings as configuration
from orchestrator.cli import output
from orchestrator.cli.command import NO, UNREACHABLE, Command
from orchestrator.cli.reach import check_reach
from orchestrator.errors import ConfigError, MandorError
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.doctor import Finding

SIGNS = {"ok": "ok", "warning": "warning", "wrong": "WRONG", "away": "AWAY"}


@click.command("doctor", cls=Command)
def command() -> None:
    """Look at settings, services, queues and supervisors. Of each fault it says how it is mended.

    Exit 0: nothing is wrong (there may be warnings); 1: something is; 3: a service does not answer.

    \b
    Examples:
      mandor doctor
      mandor doctor --json | jq -r '.findings[] | select(.level != "ok") | .mend'
    """
    found = findings()
    levels = {finding.level for finding in found}
    if output.as_json():
        healthy = not levels & {"wrong", "away"}
        output.print_json({"healthy": healthy, "findings": [asdict(finding) for finding in found]})
    else:
        rows = [[finding.check, SIGNS[finding.level], finding.text, finding.mend] for finding in found]
        output.print_table(["check", "is", "what was found", "mend"], rows)
    if "away" in levels:
        click.get_current_context().exit(UNREACHABLE)
    if "wrong" in levels:
        click.get_current_context().exit(NO)


def findings() -> "list[Finding]":
    """All that is found. Settings that contradict each other end it early; services that nobody can reach are waited
    for once, and then only what needs them is left out.
    """
    from orchestrator.doctor import Finding, examine

    try:
        given = configuration.read_settings()
    except ConfigError as wrong:
        return [Finding("settings", "wrong", f"{wrong.path}: {wrong.message}", wrong.hint)]
    fault = _unreachable(given)
    return [*examine(given, servers=False), fault] if fault else examine(given)


def _unreachable(given: Settings) -> "Finding | None":
    from orchestrator.doctor import Finding

    try:
        check_reach(given)
    except ConfigError as wrong:
        return Finding("services", "wrong", f"{wrong.path}: {wrong.message}", wrong.hint)
    except MandorError as away:
        return Finding("services", "away", away.message, away.hint)
    return None
