"""`mandor flower`: Celery's monitor, never open."""

import sys

import click

from orchestrator.cli import output
from orchestrator.cli.command import Command
from orchestrator.cli.services import services


@click.command("flower", cls=Command)
def command() -> None:
    """Run Flower: the workers and what they do, in a browser.

    It asks for a user and a password, shows everything and changes nothing, and listens on this machine alone unless
    MANDOR_FLOWER_* say otherwise. The password is made at the first start, printed once and kept in the home folder.

    \b
    Examples:
      mandor flower
      MANDOR_FLOWER_PORT=8080 mandor flower
    """
    from orchestrator import flower

    given = services().settings
    flower.check(given)
    secret = flower.password(given.home)

    def introduce(where: str) -> None:
        if secret.fresh or sys.stderr.isatty():
            output.note(flower.introduction(where, secret))

    flower.serve(given, secret, introduce)
