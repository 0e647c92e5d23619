"""Options by which dead letters are found, for one command like for another."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from orchestrator.cli.moments import Moment
from orchestrator.cli.services import services
from orchestrator.ledger import LetterFilter
from schemas.dead_letter import DeadLetterKind, DeadLetterStatus

MOMENT: Final = Moment()


def about_letters(planner: str = "--planner") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """What letters are about; several options together mean letters that fit all of them. planner: how that one is
    called where --planner says something else."""
    kinds = click.Choice([kind.value for kind in DeadLetterKind])
    options = (
        click.option("--kind", type=kinds, help="Of this kind."),
        click.option("--action", metavar="NAME", help="About a step of this action."),
        click.option(planner, "planner", metavar="NAME", help="About runs that this planner planned."),
        click.option("--session", "session_id", metavar="ID", help="About runs of this session."),
        click.option("--since", type=MOMENT, metavar="WHEN", help="Written then or later: 2h ago, or an ISO time."),
        click.option("--until", type=MOMENT, metavar="WHEN", help="Written before."),
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def asked_for(wanted: Mapping[str, Any]) -> LetterFilter:
    """The filter that these options say, in this installation's namespace; a status of `all` is none."""
    said = {name: value for name, value in wanted.items() if value is not None and value != "all"}
    if "kind" in said:
        said["kind"] = DeadLetterKind(said["kind"])
    if "status" in said:
        said["status"] = DeadLetterStatus(said["status"])
    return LetterFilter(**said, namespace=services().settings.namespace)
