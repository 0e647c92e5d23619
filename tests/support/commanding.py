"""Step workers for commands: of this user or of nobody, on each rung, with folders of their own; and what they hold."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.local.address import free_port
from schemas.policy import Rung
from tests.support.sandboxes import LIBRARIES, NOBODY, needed_python_of, skip_without
from tests.support.system import System

ME, NOBODYS = "me", "nobody"
NAME: Final = "steps"  # of the worker, and of its role
LESS: Final[Mapping[Rung, tuple[str, ...]]] = {
    Rung.BUBBLEWRAP: (),
    Rung.NAMESPACES: ("tests.support.rungless", "bubblewrap"),
    Rung.RLIMITS: ("tests.support.rungless", "landlock"),
}


@dataclass(frozen=True)
class Commander:
    """A worker that has started. url: of its health and metrics."""

    system: System
    home: Path
    url: str

    @property
    def pid(self) -> int:
        return self.system.processes.child(NAME).pid

    def pids(self) -> list[int]:
        """The worker and every descendant."""
        return [self.pid, *_below(self.pid)]

    def holds(self) -> dict[str, int]:
        """How much of everything that a command could leave there is."""
        pids = self.pids()
        return {
            "processes": len(pids),
            "zombies": sum(_state(pid) == "Z" for pid in pids),
            "descriptors": sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids),
            "mounts": sum(len(Path(f"/proc/{pid}/mountinfo").read_text().splitlines()) for pid in pids),
            "mounts outside": len(Path("/proc/self/mountinfo").read_text().splitlines()),
            "temporary files": len(list((self.home / "tmp").iterdir())),
        }

    def workspaces(self) -> list[str]:
        """Folders of runs."""
        return [one.name for one in (self.home / "workspaces").iterdir()]


def commander(
    system: System, user: str, rung: Rung, *, concurrency: int = 2, env: Mapping[str, str] | None = None
) -> Commander:
    """Start one whose strongest rung is this; it ends with the test, which is skipped where there can be none."""
    skip_without(rung)
    uid = NOBODY if user == NOBODYS else None
    return command_worker(system, uid, *LESS[rung], concurrency=concurrency, env=env)


def command_worker(
    system: System, uid: int | None, *within: str, concurrency: int = 2, env: Mapping[str, str] | None = None
) -> Commander:
    """Start one of this user, or of who runs the tests. within: modules that run Celery, with their arguments."""
    python = (sys.executable,) if uid is None else needed_python_of(uid)
    celery = (*python, "-m", *within, "celery")
    ledger, port = system.installed.settings.ledger, free_port()
    home = system.processes.cwd / f"home-at-{port}"
    (home / "tmp").mkdir(parents=True)
    if uid is not None:
        for path in (home, home / "tmp", *_files_of(ledger)):
            os.chown(path, uid, uid)
    places = {"HOME": home, "LEDGER_URL": ledger, "STEPS_PORT": port, "WORKSPACE_SWEEP_S": 1}
    told = {f"MANDOR_{name}": str(value) for name, value in places.items()}
    told |= {"PYTHONPATH": LIBRARIES, "TMPDIR": str(home / "tmp"), **(env or {})}
    system.step_workers.append(NAME)
    system.processes.worker(NAME, queues="steps", concurrency=concurrency, env=told, celery=celery)
    return Commander(system, home, f"http://127.0.0.1:{port}")


def _files_of(ledger: str) -> Iterator[Path]:
    """The ledger's folder and files; what SQLite makes beside a database for root is of the database's owner."""
    database = Path(ledger.removeprefix("sqlite:///"))
    yield database.parent
    yield from database.parent.glob(f"{database.name}*")


def _below(pid: int) -> list[int]:
    """Every descendant, the dead that nobody has buried included."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [one for child in children for one in _below(child)]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
