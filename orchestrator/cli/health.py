"""`mandor health`: asks a process of this host whether it is well, for probes that run a command."""

import json
import urllib.error
import urllib.request
from typing import Any, Final

import click

from orchestrator.cli import output
from orchestrator.cli.command import NO, Command
from orchestrator.cli.services import services
from orchestrator.errors import NoAnswer
from orchestrator.healing import roles
from orchestrator.settings import Settings

PATHS: Final = {"live": "/livez", "ready": "/readyz", "both": "/health"}
PATIENCE_S: Final = 5.0


@click.command("health", cls=Command)
@click.option(
    "--role",
    type=click.Choice([*roles.ROLES, roles.EXPORTER]),
    required=True,
    help="Whose health: the worker with this role.",
)
@click.option("--of", type=click.Choice([*PATHS]), default="both", help="live, ready, or both (default).")
@click.option("--url", help="Where it listens, if there are several of the role on this host.")
def command(role: str, of: str, url: str | None) -> None:
    """Ask a worker, or the exporter, whether it is well: alive, and able to work.

    Exit 0: yes; 1: no, and what fails since when; 3: it does not answer.

    \b
    Examples:
      mandor health --role steps
      mandor health --role planner --of live
    """
    found = asked(f"{url or where(services().settings, role)}{PATHS[of]}")
    if output.as_json():
        output.print_json(found)
    else:
        rows = [[one["check"], one["since"], one["text"], one.get("mend")] for one in found.get("failing", ())]
        if rows:
            output.print_table(["check", "since", "what is wrong", "mend"], rows)
        else:
            click.echo("ok")
    if found.get("status") != "ok":
        click.get_current_context().exit(NO)


def where(given: Settings, role: str) -> str:
    """The URL of the role's process on this host. NoAnswer: nobody knows one."""
    from orchestrator.healing import serving

    port, host = roles.port_of(given, role), given.health_address
    if roles.is_port_named(role) and port:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # not bound here, but asked
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    found = serving.remembered(given.home, role)
    if found is None:
        raise NoAnswer(f"no {role} has run here", hint=f"start one, or name {roles.variable_of(role)}")
    return found


def asked(url: str) -> dict[str, Any]:
    """What the process says. NoAnswer: it says nothing, or nothing that can be read."""
    try:
        answer = urllib.request.urlopen(url, timeout=PATIENCE_S)  # noqa: S310  # our own, or what a person typed
    except urllib.error.HTTPError as bad:
        answer = bad
    except OSError as away:
        raise NoAnswer(f"{url} does not answer: {away}", hint="is it running?") from None
    try:
        with answer:
            found: dict[str, Any] = json.loads(answer.read())
    except (OSError, ValueError):
        raise NoAnswer(f"{url} is not one of ours", hint="is the port somebody else's?") from None
    return found
