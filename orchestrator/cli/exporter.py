"""`mandor exporter`: gauges of the installation for Prometheus."""

import sys

import click

from orchestrator.cli import output
from orchestrator.cli.command import Command
from orchestrator.cli.services import services


@click.command("exporter", cls=Command)
def command() -> None:
    """Show store, ledger and broker to Prometheus, at /metrics.

    It listens on this machine alone unless MANDOR_HEALTH_ADDRESS says otherwise. Counters are shown by the workers
    themselves; docs/metrics.md lists both.

    \b
    Examples:
      mandor exporter
      MANDOR_EXPORTER_PORT=9700 mandor exporter
    """
    from orchestrator import exporter

    def introduce(url: str) -> None:
        if sys.stderr.isatty():
            output.note(f"metrics: {url}/metrics")

    exporter.serve(services().settings, introduce)
