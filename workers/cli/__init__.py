"""`mandor`: the whole command line. What needs user code is here, the rest comes from `orchestrator.cli`."""

import sys

import click

from orchestrator.cli.command import Group, Later, run
from orchestrator.releases import release

COMMANDS = {
    "up": Later("orchestrator.cli.up", "command", "Run everything in this terminal."),
    "procfile": Later("orchestrator.cli.procfile", "command", "Print the Procfile: a line for each process."),
    "run": Later("orchestrator.cli.runs", "group", "Submit a run, follow it, decide about it, read its results."),
    "plan": Later("workers.cli.plan", "group", "Work with plans, without running them."),
    "actions": Later("workers.cli.actions", "group", "See the registered actions and planners."),
    "faults": Later("workers.cli.faults", "group", "Try what is promised, with real faults."),
    "dlq": Later("workers.cli.letters", "group", "Work with dead letters: what was given up on."),
    "webhook": Later("orchestrator.cli.webhook", "group", "Try a callback's URL; have one sent again."),
    "config": Later("workers.cli.config", "group", "Show and check the settings in force."),
    "doctor": Later("orchestrator.cli.doctor", "command", "Look at settings, services, queues and supervisors."),
    "ledger": Later("orchestrator.cli.ledger", "group", "Set up the ledger; hold the state store against it."),
    "health": Later("orchestrator.cli.health", "command", "Ask a worker, or the exporter, whether it is well."),
    "exporter": Later("orchestrator.cli.exporter", "command", "Show store, ledger and broker to Prometheus."),
    "flower": Later("orchestrator.cli.flower", "command", "Run Flower: the workers and what they do, in a browser."),
}


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"mandor {release('mandor')}")
        context.exit()


@click.group("mandor", cls=Group, later=COMMANDS)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def mandor() -> None:
    """Hand out planned work, watch the workers, answer for the result.

    \b
    Start here:
      mandor up                                       everything in one terminal
      mandor actions list                             what a plan may name
      mandor run submit --plan plan.json --wait       a run, followed to its end
      mandor run list                                 which runs there are

    Settings come from MANDOR_* variables; `mandor config` shows them. Every command takes --json, and has examples in
    its --help.

    \b
    Exit codes: 0 done; 1 the answer is no (refused, failed, not found); 2 called
    wrongly; 3 a service is unreachable; 130 interrupted.

    \b
    Completion with TAB, for this shell (zsh, fish likewise):
      eval "$(_MANDOR_COMPLETE=bash_source mandor)"
    """


def main() -> None:
    """The entry point."""
    sys.exit(run(mandor, sys.argv[1:]))
