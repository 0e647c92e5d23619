"""Everything on one machine, in order: the home's lock, the server, the ledger, the processes; then back again.

The server is the home's own unless MANDOR_REDIS_URL names one: one that happens to run on this machine is never used.
A home that was left by force is cleared first: the guardian ends the processes, and the server is adopted.
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from orchestrator import flower
from orchestrator.errors import ConfigError, LedgerMissing, MandorError
from orchestrator.healing import roles, serving
from orchestrator.home import make_private, server_folder
from orchestrator.local import address, procfile
from orchestrator.local.crew import Crew
from orchestrator.local.errors import EmbeddedServerError
from orchestrator.local.lock import Lock
from orchestrator.local.runner import Runner
from orchestrator.local.server import EmbeddedServer
from orchestrator.local.stop import Stop
from orchestrator.settings import Settings, env_name, is_named, read_settings

LOOK_S: Final = 0.1
SERVER_LOOK_S: Final = 1.0
SLOW_S: Final = 30.0  # after this long somebody wants to know who is missing
PORTS: Final = ("flower_port", "exporter_port", *(f"{role}_port" for role in roles.ROLES))
CLEARING_S: Final = 15.0  # beyond the grace, until the processes of a killed start must be gone


class AlreadyUp(MandorError):
    """The home's processes run already."""

    kind = "already_up"


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything runs. settings: those of the processes; seconds: how long it took; secret: the password of Flower."""

    settings: Settings
    processes: list[str]
    seconds: float
    flower_url: str
    secret: flower.Password
    metrics_url: str


class Screen(Protocol):
    """Where it is told."""

    def say(self, text: str) -> None:
        """What happens here, in a sentence."""

    def line(self, name: str, line: str) -> None:
        """A line that a process printed; on any thread."""

    def ready(self, ready: Ready) -> None:
        """Everybody can work."""


def run(given: Settings, screen: Screen, stop: Stop) -> None:
    """Start everything, keep it running until it is asked to stop, stop it in order. MandorError says what failed."""
    began = time.monotonic()
    home = given.home.absolute()
    _make(home)
    with _held(home, given, screen) as crew_lock, _server(given, screen, stop) as server:
        prepared = _prepare(given, server, screen)
        secret = flower.password(home)
        commands = procfile.commands(environment(prepared, home))
        with Runner(screen.line, grace_s=given.term_grace_s, guardian_holds=[crew_lock.descriptor]) as runner:
            crew = Crew(runner, commands, screen.say, grace_s=given.term_grace_s)
            stop.look_only()
            try:
                crew.start()
                names = [command.name for command in commands]
                _Watch(crew, server, prepared, screen).until(
                    stop,
                    lambda: screen.ready(_ready(prepared, names, time.monotonic() - began, secret)),
                )
            finally:
                crew.drain(lambda: stop.hurried)


def _ready(given: Settings, names: list[str], seconds: float, secret: flower.Password) -> Ready:
    home = given.home.absolute()
    metrics = serving.remembered(home, roles.EXPORTER) or ""
    return Ready(given, names, seconds, flower.url(home), secret, f"{metrics}/metrics")


def environment(given: Settings, home: Path) -> dict[str, str]:
    """What every process gets: ours, and where things are, whatever their working directory."""
    values = {
        "home": str(home),
        "redis_url": given.redis_url,
        "embedded": str(given.embedded).lower(),
        "log_format": given.log_format,
    }
    return {**os.environ, **{env_name(field): value for field, value in values.items()}}


# ---- the home


def _make(home: Path) -> None:
    try:
        make_private(home)
    except OSError as wrong:
        raise ConfigError(
            f"cannot use {home}: {wrong.strerror}", path="MANDOR_HOME", hint="name another folder"
        ) from wrong


@contextmanager
def _held(home: Path, given: Settings, screen: Screen) -> Iterator[Lock]:
    """The home is ours alone, and nothing of an earlier start runs in it any more."""
    ours, crew = Lock(home / "up.lock"), Lock(home / "crew.lock")
    if not ours.take():
        raise AlreadyUp(
            f"mandor up runs in {home} already, as process {ours.holder() or 'unknown'}",
            hint="use it, stop it with Ctrl-C, or name another folder with MANDOR_HOME",
        )
    try:
        _wait_cleared(crew, given.term_grace_s + CLEARING_S, screen)
        yield crew
    finally:
        crew.release()
        ours.release()


def _wait_cleared(crew: Lock, limit_s: float, screen: Screen) -> None:
    deadline = time.monotonic() + limit_s
    told = False
    while not crew.take():
        if not told:
            screen.say("the processes of the last start are still ending; waiting for them")
            told = True
        if time.monotonic() > deadline:
            raise AlreadyUp(
                f"processes of an earlier start still run after {limit_s:g} s",
                hint="end them: they have MANDOR_HOME of this home in their environment",
            )
        time.sleep(LOOK_S)


# ---- the server and the ledger


@contextmanager
def _server(given: Settings, screen: Screen, stop: Stop) -> Iterator[EmbeddedServer | None]:
    """The home's own server, running; None if another is named. Stopped last, whoever started it."""
    if is_named("redis_url"):
        yield None
        return
    server = EmbeddedServer(server_folder(given.home))
    adopted = server.running()
    try:
        server.start()
        screen.say(f"server {'adopted' if adopted else 'started'}: process {server.pid}, in {server.home}")
        yield server
    finally:
        stop.look_only()
        screen.say("stopping the server")
        server.stop()


def _prepare(given: Settings, server: EmbeddedServer | None, screen: Screen) -> Settings:
    """Ledger and store agree, Flower may listen where it is told to. Answers the settings of the processes."""
    from orchestrator import startup

    if server is not None:
        found = read_settings()
        given = given.model_copy(update={"redis_url": found.redis_url, "embedded": found.embedded})
    startup.check_environment(given)
    flower.check(given)
    _check_ports(given)
    if server is None:
        _check_named(given)
    else:
        _set_up(given, screen)
    return given


def _set_up(given: Settings, screen: Screen) -> None:
    """What `mandor ledger upgrade` and `mandor ledger verify` do."""
    from orchestrator.ledger import open_ledger
    from orchestrator.recovery import verdicts, verification
    from orchestrator.store import open_store

    ledger = open_ledger(given.ledger)
    upgraded = verification.upgrade(ledger, given)
    store = open_store(given, upgraded.epoch)
    try:
        lost = set(verdicts.judged(ledger, store, given.namespace).values()) - {"moved"}
        found = None if lost else verification.verify(ledger, store, given)
    finally:
        store.close()
    if found is None:
        screen.say("the server has lost its memory, or a part of it; the supervisors build it again from the ledger")
    elif upgraded.shards:
        screen.say("ledger and state store are set up")
    elif found.shards:
        screen.say(f"the server has its state back; open runs: {found.runs}")


def _check_named(given: Settings) -> None:
    """A server that was named may have other users: it is set up by a command of its own, never by the way."""
    from orchestrator import startup
    from orchestrator.ledger import open_ledger
    from orchestrator.store import open_store

    epoch = open_ledger(given.ledger).epoch(given.namespace)
    if epoch is None:
        raise LedgerMissing(f"the ledger knows no namespace {given.namespace}", hint="run `mandor ledger upgrade`")
    store = open_store(given, epoch.epoch)
    try:
        startup.check_server(store.admin, given)
    finally:
        store.close()


def _check_ports(given: Settings) -> None:
    """A port that was asked for and is taken; without a word everybody finds themselves another."""
    for field in PORTS:
        port = int(getattr(given, field))
        if is_named(field) and port and not address.is_free(port):
            raise ConfigError(f"port {port} is taken", path=env_name(field), hint="name another, or none")


# ---- while it runs


class _Watch:
    """Looks after processes and server."""

    def __init__(self, crew: Crew, server: EmbeddedServer | None, given: Settings, screen: Screen) -> None:
        self._crew = crew
        self._server = server
        self._given = given
        self._screen = screen
        self._next_look = 0.0

    def until(self, stop: Stop, on_ready: Callable[[], None]) -> None:
        """Until somebody asks to stop. on_ready: called once, when all can work. MandorError: it cannot go on."""
        waiting, slow_at = True, time.monotonic() + SLOW_S
        while not stop.asked:
            self._crew.tend()
            self._tend_server()
            missing = self._crew.not_ready() if waiting else []
            if waiting and not missing:
                waiting = False
                on_ready()
            elif missing and time.monotonic() > slow_at:
                slow_at = math.inf
                self._screen.say(f"still waiting for {', '.join(missing)}")
            time.sleep(LOOK_S)

    def _tend_server(self) -> None:
        """A server that died is started again, and held against the ledger."""
        if self._server is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + SERVER_LOOK_S
        if self._server.running():
            return
        self._screen.say("the server has ended; starting it again")
        self._server.start()
        if self._server.url != self._given.redis_url:
            raise EmbeddedServerError("its port was taken by somebody else meanwhile", hint="start mandor up again")
        _set_up(self._given, self._screen)
