"""`mandor up`: all processes of an installation in one terminal."""

import logging
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli import output
from orchestrator.cli.command import INTERRUPTED, Command
from orchestrator.cli.prefixed import Lines
from orchestrator.cli.services import services
from orchestrator.settings import env_name, is_named
from orchestrator.telemetry.text import without_secrets

if TYPE_CHECKING:
    from orchestrator.local.up import Ready

ROOT: Final = Path(__file__).resolve().parents[2]
HELLO: Final = ROOT / "orchestrator" / "local" / "hello.json"
# where things are, actions among them: what another terminal has to be told as well, if it was said here
SERVERS: Final = ("redis_url", "broker_url", "result_url", "ledger_url")
PLACES: Final = ("home", *SERVERS, "namespace", "queue_prefix", "shards", "actions")


@click.command("up", cls=Command)
def command() -> None:
    """Run everything in this terminal: the Procfile's processes, and a server unless MANDOR_REDIS_URL names one.

    The server, its data, the ledger and all files lie in the home folder: MANDOR_HOME, or .mandor here. The next start
    with the same home goes on where this one stops. A process that ends is started again; one that refuses to start
    ends them all.

    Ctrl-C or SIGTERM stops in order: control, so that nothing new comes in; beat; the workers, with time to finish or
    hand back what they run; the server last. A second Ctrl-C ends everything within seconds; what was running then
    is finished after the next start.

    \b
    Examples:
      mandor up
      MANDOR_ACTIONS=shop.actions mandor up
      MANDOR_REDIS_URL=redis://localhost:6379/0 mandor up
    """
    from orchestrator.local import up
    from orchestrator.local.stop import Stop

    stop = Stop()
    stop.install()
    logging.getLogger("mandor").addHandler(logging.NullHandler())  # what this process has to say, it says on its screen
    given = services().settings
    if sys.stdout.isatty() and given.log_format == "auto":
        given = given.model_copy(update={"log_format": "human"})
    up.run(given, Terminal(as_json=output.as_json(), on_gone=stop.ask), stop)
    if stop.hurried:
        click.get_current_context().exit(INTERRUPTED)


class Terminal(Lines):
    """Tells where things are and what can be done with them."""

    def ready(self, ready: "Ready") -> None:
        """The last word of the start."""
        if self.as_json:
            self.emit(facts(ready))
            return
        for text in introduction(ready):
            self.say(text)


def facts(ready: "Ready") -> dict[str, Any]:
    """For programs. The password is not among them, but where it lies is."""
    from orchestrator import flower

    return {
        "event": "ready",
        "seconds": round(ready.seconds, 1),
        "processes": ready.processes,
        "home": str(ready.settings.home.absolute()),
        "flower": ready.flower_url,
        "flower_user": flower.USER,
        "flower_password_file": str(ready.secret.path),
        "metrics": ready.metrics_url,
    }


def introduction(ready: "Ready") -> Iterator[str]:
    """For people."""
    from orchestrator import flower

    given, mandor = ready.settings, " ".join([*places(), mandor_command()])
    yield f"ready after {ready.seconds:.1f} s: {', '.join(ready.processes)}"
    yield f"home: {given.home.absolute()}, server: {without_secrets(given.redis_url)}"
    yield flower.introduction(ready.flower_url, ready.secret)
    yield f"metrics: {ready.metrics_url}; health of a process: {mandor} health --role steps"
    yield "try in another terminal, in this folder:"
    yield f"  {mandor} run submit --plan {shlex.quote(_short(HELLO))} --wait"
    yield f"  {mandor} actions list"
    hidden = [env_name(field) for field in PLACES if is_named(field) and _is_secret(field)]
    if hidden:
        yield f"with the same {', '.join(hidden)} as here"
    yield "Ctrl-C stops everything in order; twice: at once"


def places() -> list[str]:
    """`NAME=value` for what was said here about where things are, secrets excepted."""
    named = [env_name(field) for field in PLACES if is_named(field) and not _is_secret(field)]
    return [f"{name}={shlex.quote(os.environ[name])}" for name in named if name in os.environ]


def _is_secret(field: str) -> bool:
    value = os.environ.get(env_name(field), "")
    return without_secrets(value) != value


def mandor_command() -> str:
    """How this command line is called from another terminal: as short as it works there."""
    dev = ROOT / "dev"
    if Path(sys.prefix) == ROOT / ".venv" and dev.is_file():
        return f"{shlex.quote('./dev' if Path.cwd() == ROOT else str(dev))} run mandor"
    script = Path(sys.executable).with_name("mandor")
    if not script.is_file():
        return f"{shlex.quote(sys.executable)} -m workers.cli"
    found = shutil.which("mandor")
    on_every_path = found is not None and Path(found) == script and "VIRTUAL_ENV" not in os.environ
    return "mandor" if on_every_path else shlex.quote(str(script))


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
