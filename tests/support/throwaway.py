"""A command that works in a temporary home of its own, as a user starts it; what it shows, and what it leaves."""

import subprocess
import sys
from pathlib import Path

from tests.support.environment import ROOT, clean_environment
from tests.support.up import processes_below

# set by somebody's shell: none of it may reach the command
FOREIGN = {"MANDOR_REDIS_URL": "redis://127.0.0.1:1/0", "CELERY_BROKER_URL": "redis://127.0.0.1:1/0"}


class ThrowAway:
    """A command in a process group of its own, with its temporary home where the test can see it."""

    def __init__(self, folder: Path) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.homes = folder / "tmp"
        self.homes.mkdir()
        self._screen = folder / "screen"

    def start(self, module: str, *arguments: str, **env: str) -> None:
        """Starts a module; its warnings are errors."""
        with self._screen.open("wb") as screen:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", module, *arguments],
                env={**clean_environment(), **FOREIGN, "TMPDIR": str(self.homes), **env},
                cwd=ROOT,
                stdout=screen,
                stderr=screen,
                start_new_session=True,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The one that was started last."""
        assert self._process is not None, "nothing was started"
        return self._process

    def end(self) -> None:
        """Whatever a test has left running."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def screen(self) -> str:
        return self._screen.read_text()

    def left(self) -> dict[int, str]:
        """Living processes that belong to it."""
        return processes_below(self.homes)
