"""One child process: its group, its output, its end."""

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.local.errors import ChildFailed

REMEMBERED: Final = 20  # lines of output that an error shows
READER_S: Final = 5.0  # a descendant that left the group may hold the pipe open; nobody waits for that one

OnLine = Callable[[str, str], None]  # name of the child, line without its end


@dataclass(frozen=True, slots=True)
class Command:
    """What to start. env: None inherits. ready: regular expression for the line of output that says it can work."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    ready: str | None = None


class Child:
    """A started command. It leads a group in a session of its own, out of reach of the terminal's Ctrl-C.

    on_line gets each line of its output, both streams together, on a thread of this child. on_end gets its pid once,
    when its end is noticed.
    """

    def __init__(self, command: Command, on_line: OnLine, on_end: Callable[[int], None]) -> None:
        self.name = command.name
        self._on_line = on_line
        self._on_end = on_end
        self._pattern = re.compile(command.ready) if command.ready else None
        self._ready = self._pattern is None
        self._settled = threading.Event()  # the ready line was seen, or there is no more output
        self._last: deque[str] = deque(maxlen=REMEMBERED)
        self._ended = False
        self._process = _spawn(command)
        self._reader = threading.Thread(target=self._read, name=f"output of {self.name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id; the number of its group as well."""
        return self._process.pid

    @property
    def ready(self) -> bool:
        """Whether it runs and has printed its ready line."""
        return self._ready and self._process.poll() is None

    def poll(self) -> int | None:
        """Exit status, None while it runs. Whoever notices its end first kills what is left of its group."""
        status = self._process.poll()
        if status is not None and not self._ended:
            self._ended = True
            self.signal_group(signal.SIGKILL)
            self._on_end(self.pid)
            self._close()
        return status

    def wait(self, timeout_s: float) -> int | None:
        """Exit status, or None if it still runs after `timeout_s`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(timeout_s, 0))
        return self.poll()

    def wait_ready(self, timeout_s: float) -> None:
        """Returns once the ready line was printed. ChildFailed shows the last output."""
        if self._ready or (self._settled.wait(timeout_s) and self._ready):
            return
        status = self.wait(1.0) if self._settled.is_set() else None
        why = f"not ready within {timeout_s:g} s" if status is None else f"ended with status {status}, never ready"
        raise ChildFailed("\n".join([f"{self.name}: {why}", *self._last]), hint="its last output is above")

    def signal(self, number: int) -> None:
        """To the child alone, which is to tell its own children."""
        self._process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """To the child and every descendant that did not leave its group."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(line.rstrip("\n"))
        self._settled.set()

    def _take(self, line: str) -> None:
        self._last.append(line)
        if self._pattern is not None and self._pattern.search(line):
            self._ready = True
            self._settled.set()
        self._on_line(self.name, line)

    def _close(self) -> None:
        self._reader.join(READER_S)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()


def _spawn(command: Command) -> subprocess.Popen[str]:
    env = {**(os.environ if command.env is None else command.env), "PYTHONUNBUFFERED": "1"}
    try:
        return subprocess.Popen(
            list(command.argv),
            env=env,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as wrong:
        raise ChildFailed(f"{command.name}: {wrong}", hint="check the command and its folder") from wrong
