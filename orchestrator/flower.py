"""Flower as part of an installation: always behind a password, for reading only, with bounded memory.

Stock Flower listens on every address, asks nobody who they are, can stop workers and revoke tasks, and remembers
100,000 of them. What steps do is in the run's own state; Flower shows the messages that Celery moved for them, as far
as the events about them arrived, and forgets everything when it ends.

It runs inside this process, so neither its configuration file nor its FLOWER_* variables can open it again.
"""

import asyncio
import errno
import ipaddress
import logging
import os
import secrets
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import ConfigError
from orchestrator.home import make_private
from orchestrator.settings import Settings, is_named
from orchestrator.telemetry import logs

USER: Final = "mandor"
PASSWORD_FILE: Final = "flower.password"  # noqa: S105  # where it is, not what it is
URL_FILE: Final = "flower.url"
PASSWORD_BYTES: Final = 18
SHORTEST: Final = 12
# a task with ids as arguments takes 6.5 KB in Flower, its search index included: 65 MB, however many come
MAX_TASKS: Final = 10_000
MAX_WORKERS: Final = 200
COLUMNS: Final = "uuid,state,name,received,started,runtime,worker"  # the uuid says run and step
FOREIGN: Final = "FLOWER_"


@dataclass(frozen=True, slots=True)
class Password:
    """fresh: it was made just now, and nobody has seen it yet."""

    text: str
    path: Path
    fresh: bool


def password(home: Path) -> Password:
    """The password of this home's Flower, made when there is none. ConfigError if others could read it."""
    path = home.absolute() / PASSWORD_FILE
    fresh = _make(path)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigError("other users of this machine may read it", path=str(path), hint=f"chmod 600 {path}")
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if len(text) < SHORTEST:
        raise ConfigError(
            f"the password of Flower has fewer than {SHORTEST} characters",
            path=str(path),
            hint="delete the file to get a new one",
        )
    return Password(text, path, fresh)


def _make(path: Path) -> bool:
    """Write a new password unless there is one. Two who start at once agree: a name is linked only once."""
    make_private(path.parent)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(PASSWORD_BYTES) + "\n")
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def check(given: Settings) -> None:
    """ConfigError if Flower would listen where other machines reach it, and nobody said that this is meant."""
    if is_loopback(given.flower_address) or given.flower_public:
        return
    raise ConfigError(
        f"other machines can reach {given.flower_address}, and Flower sends its password unencrypted",
        path="MANDOR_FLOWER_ADDRESS",
        hint="leave it at 127.0.0.1, or set MANDOR_FLOWER_PUBLIC=true if something in front of it encrypts",
    )


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches the address. A name other than localhost counts as reachable."""
    if address == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


def url(home: Path) -> str:
    """Where this home's Flower was last told to be opened in a browser; empty if it never ran."""
    with suppress(OSError):
        return (home / URL_FILE).read_text(encoding="ascii")
    return ""


def introduction(where: str, secret: Password) -> str:
    """Where it is and how to get in. Only a fresh password is shown."""
    shown = f"password {secret.text} (shown this once, kept" if secret.fresh else "password as first shown (kept"
    return f"Flower: {where}  user {USER}, {shown} in {secret.path})"


def serve(given: Settings, secret: Password, introduce: Callable[[str], None]) -> None:
    """Run Flower until SIGTERM or Ctrl-C. ConfigError: it may not listen there, or somebody else does.

    introduce: called with its URL once it listens.
    """
    check(given)
    logs.configure(given)
    for name in sorted(name for name in os.environ if name.startswith(FOREIGN)):
        logs.logger("mandor").warning("setting.unknown", name=name, hint="Flower is set up by MANDOR_FLOWER_* here")
    asyncio.set_event_loop(asyncio.new_event_loop())
    application = _application(given, secret)
    where = _listen(application, given)
    loop = application.io_loop
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.asyncio_loop.add_signal_handler(number, loop.stop)
    _remember(given.home, where)
    introduce(where)
    logs.announce_ready("flower")
    try:
        application.start()
    finally:
        application.stop()


def _application(given: Settings, secret: Password) -> Any:
    from flower.app import Flower
    from flower.options import options
    from flower.urls import settings as pages
    from flower.views.monitor import Metrics

    from orchestrator.app import app

    logging.getLogger("tornado.access").disabled = True
    logging.getLogger("flower.inspector").setLevel(logging.ERROR)  # warns of each question while no worker is there
    for name, value in chosen(given, secret).items():
        setattr(options, name, value)
    Metrics.prepare = _ask_who
    return Flower(capp=app, options=options, **pages)


def _ask_who(page: Any) -> None:
    """Flower shows its counters to everybody, and they name workers and tasks; here they are asked who they are."""
    page.get_current_user()


def chosen(given: Settings, secret: Password) -> dict[str, Any]:
    """Flower's options in its own names."""
    return {
        "address": given.flower_address,
        "port": given.flower_port,
        "basic_auth": [f"{USER}:{secret.text}"],
        "read_only": True,
        "max_tasks": MAX_TASKS,
        "max_workers": MAX_WORKERS,
        "tasks_columns": COLUMNS,
        "persistent": False,
        "purge_offline_workers": 3600,
    }


def _listen(application: Any, given: Settings) -> str:
    """Listen; answers the URL. Without a word about the port any is good enough, if the usual one is taken."""
    try:
        port = application.start_http_server()
    except OSError as wrong:
        if is_named("flower_port") or wrong.errno != errno.EADDRINUSE:
            raise ConfigError(
                f"cannot listen on {given.flower_address}:{given.flower_port}: {wrong.strerror or wrong}",
                path="MANDOR_FLOWER_PORT",
                hint="is another Flower there? name another port",
            ) from wrong
        application.options.port = 0
        port = application.start_http_server()
    host = f"[{given.flower_address}]" if ":" in given.flower_address else given.flower_address
    return f"http://{host}:{port}"


def _remember(home: Path, where: str) -> None:
    draft = home / f"{URL_FILE}.new"
    draft.write_text(where, encoding="ascii")
    draft.replace(home / URL_FILE)
