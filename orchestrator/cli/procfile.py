"""`mandor procfile`: the processes of an installation, for whatever starts them."""

import click

from orchestrator.cli import output
from orchestrator.cli.command import Command


@click.command("procfile", cls=Command)
def command() -> None:
    """Print the Procfile: a line for each process of an installation, as honcho and foreman read them.

    \b
    Examples:
      mandor procfile > Procfile && honcho start
      mandor procfile | grep steps
    """
    from orchestrator.local import procfile  # with what `mandor up` needs

    text = procfile.procfile().read_text(encoding="utf-8")
    if output.as_json():
        output.print_json({"processes": [{"name": name, "command": line} for name, line in procfile.lines(text)]})
    else:
        click.echo(text, nl=False)
