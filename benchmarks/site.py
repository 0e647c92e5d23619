"""Where contests take place: a server and processes of their own, in a folder that is gone afterwards."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks import bare
from benchmarks.tally import VARIABLE, Tally
from orchestrator.local import Command, EmbeddedServer, Runner, procfile

BARE: Final = "bare"
OURS: Final = "mandor"
ROOT: Final = Path(__file__).resolve().parents[1]
CHILDREN: Final = 4  # step processes of our Procfile, and as many for bare Celery
READY_S: Final = 120.0
PATIENCE_S: Final = 300.0
# our contests are wider than the usual limits; every message may be in the queue at once, as it is for bare Celery
LIMITS: Final = {"MANDOR_MAX_STEPS": "10000", "MANDOR_MAX_PARALLEL": "10000", "MANDOR_PLAN_BYTES": "16777216"}
FOREIGN: Final = ("MANDOR_", "CELERY_", "BENCH_", "RELIER_")
FOREIGN_NAMES: Final = frozenset({"REDIS_URL", "APP", "PYTHONHOME"})


class Stuck(Exception):
    """What should have happened did not."""


def wait_until(done: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Look every millisecond."""
    deadline = time.monotonic() + patience_s
    while not done():
        if time.monotonic() > deadline:
            raise Stuck(f"{what} did not happen within {patience_s:g} s")
        time.sleep(0.001)


@dataclass(frozen=True)
class Site:
    """Everything that runs. crews: names of the processes of each side."""

    tally: Tally
    runner: Runner
    crews: Mapping[str, Sequence[str]]

    @contextmanager
    def turn_of(self, crew: str) -> Iterator[None]:
        """The other side's processes are frozen inside, so that they cost nothing."""
        others = [name for side, names in self.crews.items() if side != crew for name in names]
        self._signal(others, signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(others, signal.SIGCONT)

    def _signal(self, names: Sequence[str], number: int) -> None:
        for name in names:
            self.runner.child(name).signal_group(number)


@contextmanager
def site() -> Iterator[Site]:
    """Start server and processes of both sides; end them all. This process's environment becomes theirs."""
    with tempfile.TemporaryDirectory(prefix="mandor-bench-") as folder:
        home = Path(folder)
        with EmbeddedServer(home / "server") as server, Runner(nobody_listens, grace_s=20) as runner:
            runner.end_with_us(_group_of(server))
            _enter(environment(home, server.url))
            _set_up_ledger()
            crews = {BARE: [_bare()], OURS: _ours()}
            for command in (*crews[BARE], *crews[OURS]):
                runner.start(into_file(command, home))
            names = {crew: [command.name for command in commands] for crew, commands in crews.items()}
            here = Site(Tally(home / "tally"), runner, names)
            _wait_ready(here, home)
            yield here


def _group_of(server: EmbeddedServer) -> int:
    assert server.pid is not None, "it has just been started"
    return server.pid


def environment(home: Path, redis_url: str) -> dict[str, str]:
    """Nothing of the caller's installation. The sides share the server and keep to a database each."""
    kept = {name: value for name, value in os.environ.items() if not is_foreign(name)}
    return {
        **kept,
        **LIMITS,
        "PYTHONPATH": str(ROOT),
        "MANDOR_HOME": str(home),
        "MANDOR_REDIS_URL": redis_url,
        "MANDOR_ACTIONS": "benchmarks.actions",
        "MANDOR_LOG_FORMAT": "json",
        bare.BROKER: f"{redis_url.removesuffix('0')}1",
        VARIABLE: str(home / "tally"),
    }


def is_foreign(name: str) -> bool:
    """True for a variable that would steer either side, or name a server."""
    return name.startswith(FOREIGN) or name in FOREIGN_NAMES


def forget_foreign() -> None:
    """No server or setting that the caller's shell names is touched from here on."""
    for name in filter(is_foreign, list(os.environ)):
        del os.environ[name]


def _enter(env: Mapping[str, str]) -> None:
    """This process submits, and must see what the workers see."""
    os.environ.update(env)
    bare.app.conf.broker_url = env[bare.BROKER]


def _bare() -> Command:
    options = ["-n", "bare@%h", "-c", str(CHILDREN), "--without-gossip", "--without-mingle"]
    return Command(BARE, [sys.executable, "-m", "celery", "-q", "-A", "benchmarks.bare", "worker", *options])


def _ours() -> list[Command]:
    """The Procfile, without the monitor."""
    return [replace(command, ready=None) for command in procfile.commands(dict(os.environ)) if command.name != "flower"]


def into_file(command: Command, home: Path, env: Mapping[str, str] | None = None, name: str | None = None) -> Command:
    """Its output goes to a file, as it would to a journal: reading it here would cost the contest's own time."""
    log = home / f"{name or command.name}.log"
    argv = ["sh", "-c", 'log=$1; shift; exec "$@" >>"$log" 2>&1', "sh", str(log), *command.argv]
    return replace(
        command,
        name=name or command.name,
        argv=argv,
        env=dict(os.environ if env is None else env),
        cwd=home,
        ready=None,
    )


def _set_up_ledger() -> None:
    from orchestrator.ledger import open_ledger
    from orchestrator.recovery import verification  # reads the environment, which is ours only by now
    from orchestrator.settings import settings

    given = settings()
    verification.upgrade(open_ledger(given.ledger), given)


def _wait_ready(here: Site, home: Path) -> None:
    """Ours say so; bare Celery has done its first task."""
    for name in here.crews[OURS]:
        log = home / f"{name}.log"
        wait_until(lambda log=log: "service.ready" in log.read_text(), f"the start of {name}", READY_S)  # type: ignore[misc]
    done = here.tally.marker()
    bare.send_batch(bare.nothing, 1)
    wait_until(lambda: done() == 1, "the first bare task", READY_S)


def nobody_listens(name: str, line: str) -> None:
    """All output goes to files."""
