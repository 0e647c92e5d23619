"""The demo's processes: the embedded server, and the lines of the Procfile, steps twice."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from examples.orders import carrier
from orchestrator.local import Command, EmbeddedServer, Runner, procfile, surroundings
from orchestrator.local.interrupts import Interrupts

ROOT: Final = Path(__file__).resolve().parents[2]
STEP_WORKERS: Final = ("steps-1", "steps-2")
UNASKED: Final = ("deliver", "flower")
READY_S: Final = 45.0
GRACE_S: Final = 5.0
# A lost worker is missed after one lease. The default suits steps that run for minutes; a demo is in a hurry.
HASTE: Final = {"lease_s": 4, "sweep_s": 1, "dispatch_check_s": 1}


def environment(home: Path, redis_url: str) -> dict[str, str]:
    """What every process of the demo is started with: nothing of the caller's installation, all of ours."""
    settings = {
        "home": home,
        "redis_url": redis_url,
        "embedded": "true",
        "actions": "examples.orders.actions,examples.orders.planner",
        "log_format": "json",
    }
    return {
        **surroundings.clean(**settings, **HASTE),
        "PYTHONPATH": str(ROOT),
        carrier.HOME: str(home),
        # what a killed worker leaves there goes with the home
        "TMPDIR": str(home / "tmp"),
    }


def commands(env: Mapping[str, str]) -> list[Command]:
    """The Procfile's processes without those that nobody asks here. A second steps worker needs a name of its own, so
    both get one.
    """
    found = {command.name: command for command in procfile.commands(env, cwd=ROOT) if command.name not in UNASKED}
    steps = found.pop("steps")
    return [*found.values(), *(replace(steps, name=own, argv=[*steps.argv, "-n", f"{own}@%h"]) for own in STEP_WORKERS)]


class Crew:
    """The running processes and their logs."""

    def __init__(self, home: Path) -> None:
        self.logs = home / "logs"
        self.logs.mkdir()
        (home / "tmp").mkdir()
        self._lock = threading.Lock()
        self._runner = Runner(self._log, grace_s=GRACE_S)

    def start(self, env: Mapping[str, str], interrupts: Interrupts) -> None:
        """Start everybody, return when all are ready. ChildFailed says who is not, and why."""
        with interrupts.held():
            children = [self._runner.start(command) for command in commands(env)]
        for child in children:
            child.wait_ready(READY_S)

    def group(self, name: str) -> int:
        """Process group of a process."""
        return self._runner.child(name).pid

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all its children."""
        self._runner.kill(name)

    def stop(self) -> None:
        """Ask everybody to end, all at once."""
        self._runner.stop(*self._runner.running())
        self._runner.stop_all()

    def kill_all(self) -> None:
        """End everybody now: nothing here is worth waiting for."""
        for name in self._runner.running():
            self._runner.kill(name)
        self._runner.stop_all()

    def _log(self, name: str, line: str) -> None:
        with self._lock, (self.logs / f"{name}.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


@contextmanager
def at_work(home: Path, interrupts: Interrupts) -> Iterator[Crew]:
    """Server and processes, all gone at the end of the block: in order after success, at once after anything else."""
    server, crew = EmbeddedServer(home / "server"), Crew(home)
    try:
        with interrupts.held():
            server.start()
        env = environment(home, server.url)
        surroundings.move_into(env)
        _set_up()
        crew.start(env, interrupts)
        yield crew
        crew.stop()
    finally:
        interrupts.ignore()
        crew.kill_all()
        server.stop()


def _set_up() -> None:
    """What `mandor ledger upgrade` does. Imported here, because what reads settings must find ours."""
    from orchestrator.ledger import open_ledger
    from orchestrator.recovery import verification
    from orchestrator.settings import settings

    given = settings()
    verification.upgrade(open_ledger(given.ledger), given)
