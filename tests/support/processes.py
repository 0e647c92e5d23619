"""Real Celery processes for tests: started, listened to, frozen, killed, stopped."""

import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from orchestrator.local import Child, Command, Runner

APP = "orchestrator.app"
CELERY = (sys.executable, "-m", "celery")
READY = r"\bready\."  # Celery's own last line of a worker's start
BEAT_READY = r"beat: Starting"
# as in the Procfile: a worker hands its steps back within its grace, and does not chat with the others
WORKER_ENV = {"REMAP_SIGTERM": "SIGQUIT"}
WORKER_OPTIONS = ("--without-gossip", "--without-mingle", "--loglevel", "INFO")
READY_S = 30.0


class Processes:
    """Named processes of one test and everything that they print. Leaving the context ends them all."""

    def __init__(self, env: Mapping[str, str], cwd: Path, *, grace_s: float = 20.0) -> None:
        self.env = dict(env)
        self.cwd = cwd
        self._runner = Runner(self._hear, grace_s=grace_s)
        self._lines: list[tuple[str, str]] = []
        self._mark = 0
        self._together: list[Child] | None = None
        self._news = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """What a test has not stopped is of no interest any more: a worker's own stop may take its whole grace."""
        for name in self._runner.running():
            self._runner.kill(name)
        self._runner.stop_all()

    def start(self, name: str, *argv: str, ready: str | None = None, env: Mapping[str, str] | None = None) -> Child:
        """Starts a command; `env` adds to the environment. Returns once a line matches `ready`."""
        child = self._runner.start(Command(name, argv, {**self.env, **(env or {})}, self.cwd, ready))
        if self._together is None:
            child.wait_ready(READY_S)
        else:
            self._together.append(child)
        return child

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is started in here is waited for at its end."""
        children: list[Child] = []
        self._together = children
        yield
        self._together = None
        for child in children:
            child.wait_ready(READY_S)

    def python(self, name: str, *argv: str, ready: str | None = None, env: Mapping[str, str] | None = None) -> Child:
        """Starts this interpreter with these arguments."""
        return self.start(name, sys.executable, *argv, ready=ready, env=env)

    def worker(
        self,
        name: str,
        *options: str,
        queues: str,
        concurrency: int = 2,
        env: Mapping[str, str] | None = None,
        celery: Sequence[str] = CELERY,
    ) -> Child:
        """Starts a Celery worker and returns when it consumes. queues: as -Q takes them; celery: what starts that."""
        argv = (*celery, "-A", APP, "worker", "-n", f"{name}@%h", "-Q", queues, "-c", str(concurrency))
        return self.start(name, *argv, *WORKER_OPTIONS, *options, ready=READY, env={**WORKER_ENV, **(env or {})})

    def beat(self, name: str = "beat", *, env: Mapping[str, str] | None = None) -> Child:
        """Starts Celery's beat; its schedule file lies in the processes' folder."""
        argv = ("-m", "celery", "-A", APP, "beat", "--loglevel", "INFO", "--pidfile=", "-s", f"{name}-schedule")
        return self.python(name, *argv, ready=BEAT_READY, env=env)

    def running(self) -> list[str]:
        """Names of the processes that run."""
        return self._runner.running()

    def lines(self, name: str | None = None) -> list[str]:
        """What was printed so far, by one process or by all."""
        with self._news:
            return [line for who, line in self._lines[self._mark :] if name in (None, who)]

    def forget_lines(self) -> None:
        """What was printed so far is another test's."""
        with self._news:
            self._mark = len(self._lines)

    def wait_for_line(self, pattern: str, *, name: str | None = None, timeout_s: float = 30.0) -> str:
        """The first line that matches, of those printed already or to come."""
        wanted = re.compile(pattern)
        deadline = time.monotonic() + timeout_s
        seen = self._mark
        with self._news:
            while True:
                for who, line in self._lines[seen:]:
                    if name in (None, who) and wanted.search(line):
                        return line
                seen = len(self._lines)
                if not self._news.wait(deadline - time.monotonic()):
                    raise AssertionError(f"no line matches {pattern!r} within {timeout_s:g} s:\n{self.tail()}")

    def tail(self, count: int = 60) -> str:
        """The last lines of all, for a failure's message."""
        return "\n".join(f"{who} | {line}" for who, line in self._lines[-count:])

    def kill(self, name: str) -> None:
        """SIGKILL to the process and all its descendants, as a host's end would be."""
        self._runner.kill(name)

    def freeze(self, name: str) -> None:
        """SIGSTOP to the process and all its descendants."""
        self._runner.child(name).signal_group(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT to what was frozen."""
        self._runner.child(name).signal_group(signal.SIGCONT)

    def stop(self, *names: str) -> None:
        """SIGTERM to all of these, and what happens then is up to them, for the grace at most."""
        self._runner.stop(*names)

    def child(self, name: str) -> Child:
        """The process that bears, or last bore, this name."""
        return self._runner.child(name)

    def _hear(self, name: str, line: str) -> None:
        with self._news:
            self._lines.append((name, line))
            self._news.notify_all()


def rss_kb(pid: int) -> int:
    """The resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))
