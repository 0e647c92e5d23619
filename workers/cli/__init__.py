"""`mandor`: the whole command line. What needs user code is here, the rest comes from `orchestrator.cli`."""

import sys

import click

from orchestrator.cli import config, flower, ledger, letters, runs, up
from orchestrator.cli.command import Group, run
from workers.cli import actions, plan


@click.group("mandor", cls=Group)
@click.version_option(package_name="mandor", message="%(prog)s %(version)s")
def mandor() -> None:
    """Hand out planned work, watch the workers, answer for the result.

    Settings come from MANDOR_* variables; `mandor config` shows them. Every command takes --json.

    \b
    Exit codes: 0 done; 1 the answer is no (refused, failed, not found); 2 called
    wrongly; 3 a service is unreachable; 130 interrupted.
    """


for command in (
    runs.group,
    plan.group,
    letters.group,
    actions.group,
    ledger.group,
    config.group,
    up.command,
    flower.command,
):
    mandor.add_command(command)


def main() -> None:
    """The entry point."""
    sys.exit(run(mandor, sys.argv[1:]))
