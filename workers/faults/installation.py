"""The installation that is thrown away: a home, a server, processes. Nothing of it outlives this program.

What needs the installation's settings is imported once they are this process's own.
"""

import shutil
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import mkfifo
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, Self

from orchestrator.local import EmbeddedServer, surroundings
from orchestrator.local.interrupts import Interrupts
from workers.faults import hands, log
from workers.faults.driven import Driven

if TYPE_CHECKING:
    from workers.faults.floor import Floor

LEASE_S: Final = 3.0
SWEEP_S: Final = 0.5
HASTE: Final = {
    "lease_s": LEASE_S,
    "sweep_s": SWEEP_S,
    "stop_grace_s": 1,
    "dispatch_check_s": 1,
    "backoff_s": 0.2,
    "term_grace_s": 5,
}
QUIET: Final = {
    "metrics": "false",
    "control_port": 0,
    "planner_port": 0,
    "steps_port": 0,
    "supervise_port": 0,
    "deliver_port": 0,
    "log_format": "json",
}
ON_LOOPBACK: Final = "127.0.0.1"  # where callbacks are received


@contextmanager
def temporary_home(interrupts: Interrupts, *, keep: bool) -> Iterator[Path]:
    """A folder that is gone afterwards, or named."""
    with interrupts.held():
        home = Path(tempfile.mkdtemp(prefix="mandor-faults-"))
    try:
        yield home
    finally:
        interrupts.ignore()
        if keep:
            print(f"kept in {home}", file=sys.stderr)  # noqa: T201
        else:
            shutil.rmtree(home, ignore_errors=True)


class Installation:
    """Server and processes of a home. Leaving its context ends them all at once, however far they are.

    settings: other ones than the kit has; slots: of each step worker.
    """

    def __init__(
        self,
        home: Path,
        actions: str,
        interrupts: Interrupts,
        settings: Mapping[str, object] = HASTE,
        slots: int = hands.SLOTS,
    ) -> None:
        self._home = home
        self._actions = actions
        self._settings = settings
        self._slots = slots
        self._interrupts = interrupts
        self._server = EmbeddedServer(home / "server")
        self._processes = hands.Hands(home / "logs", interrupts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._interrupts.ignore()
        self._processes.kill_all()
        group = self._server.pid
        self._server.stop()
        self._processes.forget(group)
        self._processes.end()

    def start(self, driven: Driven) -> "Floor":
        """Return when everybody can work. From here on this process's settings are the installation's."""
        for name in ("logs", "tmp"):
            (self._home / name).mkdir()
        mkfifo(self._home / log.PIPE)
        with self._interrupts.held():
            self._server.start()
            self._processes.guard(self._server.pid)
        env = environment(self._home, self._server.url, self._actions, self._settings)
        surroundings.move_into(env)
        _set_up()
        inside = {**env, log.FOLDER: str(self._home)}
        self._processes.start([hands.witness_command(self._home), *hands.commands(inside, slots=self._slots)])
        return self._floor(driven)

    def _floor(self, driven: Driven) -> "Floor":
        from workers.faults.floor import Floor

        return Floor(self._home, self._server, self._processes, driven)


def environment(home: Path, redis_url: str, actions: str, settings: Mapping[str, object] = HASTE) -> dict[str, str]:
    """What every process is started with: nothing of the caller's installation, all of ours."""
    named = {"home": home, "redis_url": redis_url, "embedded": "true", "actions": actions}
    named |= {"webhook_allowed": ON_LOOPBACK, "webhook_secrets": f"whsec_{b64encode(token_bytes(32)).decode()}"}
    # what a killed worker leaves in the folder of temporary files goes with the home
    return {**surroundings.clean(**named, **settings, **QUIET), "TMPDIR": str(home / "tmp")}


def _set_up() -> None:
    """What `mandor ledger upgrade` does; and the actions are loaded, so that a wrong name is told at once."""
    from orchestrator.ledger import open_ledger
    from orchestrator.recovery import verification
    from orchestrator.settings import settings
    from workers.registry import load_actions

    settings.cache_clear()
    given = settings()
    load_actions(given)
    verification.upgrade(open_ledger(given.ledger), given)
