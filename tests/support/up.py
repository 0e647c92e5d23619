"""`mandor up` as a person at a terminal has it, or as a service manager does."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.waiting import eventually

READY = r"twice: at once"
READY_S = 120.0
# gives the terminal to the program, as a shell does, so that ^C reaches it as a signal
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
MANDOR = (sys.executable, "-m", "workers.cli")


class Up:
    """One `mandor up` and all that it has printed."""

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        *arguments: str,
        terminal: bool = False,
        mandor: Sequence[str] = MANDOR,
    ) -> None:
        self.folder = folder
        self.env = dict(env)
        self.mandor = mandor
        self._text = b""
        self._terminal: int | None = None
        self._process = self._start([*mandor, "up", *arguments], terminal=terminal)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """Everything printed so far."""
        return self._text.decode(errors="replace").replace("\r\n", "\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> list[str]:
        """Its own lines, without prefix and colour."""
        return re.findall(r"^(?:\^C)?\r?(?:\x1b\[1m)?mandor +\|(?:\x1b\[0m)? (.*)$", self.text, re.MULTILINE)

    def wait_for(self, pattern: str, *, timeout_s: float = READY_S) -> re.Match[str]:
        """The first place in its output that matches."""
        found: re.Match[str] | None = None

        def look() -> bool:
            nonlocal found
            found = re.search(pattern, self.text)
            return found is not None or self._process.poll() is not None

        with suppress(AssertionError):
            eventually(look, timeout_s=timeout_s)
        assert found, f"no {pattern!r} in\n{self.text}"
        return found

    def wait_ready(self) -> "Up":
        self.wait_for(READY)
        return self

    def press_ctrl_c(self) -> None:
        """What the key does at a terminal."""
        assert self._terminal is not None
        os.write(self._terminal, b"\x03")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 60) -> int:
        """Its exit code, with all of its output read."""
        code = self._process.wait(timeout_s)
        self._reader.join(5)
        return code

    def command(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Another `mandor …` in the same folder."""
        return subprocess.run(
            [*self.mandor, *arguments],
            env=self.env,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def answer(self, *arguments: str, stdin: str = "") -> Any:
        """What it prints with --json."""
        done = self.command(*arguments, "--json", stdin=stdin)
        return json.loads(done.stdout)

    def status(self, run_id: str) -> str:
        return str(self.answer("run", "show", run_id).get("status"))

    def end(self) -> None:
        """Whatever state it is in, leave nothing behind."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
        self._reader.join(5)
        if self._terminal is not None:
            os.close(self._terminal)

    def _start(self, argv: list[str], *, terminal: bool) -> subprocess.Popen[bytes]:
        if not terminal:
            return subprocess.Popen(
                argv,
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._terminal, other = pty.openpty()
        argv = [sys.executable, "-c", TAKE_TERMINAL, *argv]
        started = subprocess.Popen(
            argv, env=self.env, cwd=self.folder, stdin=other, stdout=other, stderr=other, start_new_session=True
        )
        os.close(other)
        return started

    def _read(self) -> None:
        source = self._terminal if self._process.stdout is None else self._process.stdout.fileno()
        assert source is not None
        while True:
            try:
                data = os.read(source, 65_536)
            except OSError:  # the terminal's other end is gone
                data = b""
            if not data:
                break
            self._text += data
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextmanager
def running_up(
    folder: Path, env: Mapping[str, str], *arguments: str, terminal: bool = False, mandor: Sequence[str] = MANDOR
) -> Iterator[Up]:
    """Started, not yet ready; gone afterwards."""
    folder.mkdir(exist_ok=True)
    up = Up(folder, env, *arguments, terminal=terminal, mandor=mandor)
    try:
        yield up
    finally:
        up.end()


def processes_in(home: Path) -> dict[int, str]:
    """Living processes of this home, servers included, with their command lines."""
    return _processes(home, f"MANDOR_HOME={home}\0")


def processes_below(folder: Path) -> dict[int, str]:
    """The same of every home that lies in this folder."""
    return _processes(folder, f"MANDOR_HOME={folder}/")


def _processes(folder: Path, mark: str) -> dict[int, str]:
    """Workers let nobody but root look into them; they are known by their parents too."""
    running = {int(process.name): process for process in Path("/proc").glob("[0-9]*")}
    found = {pid for pid, process in running.items() if _bears(process, folder, mark)}
    parents = {pid: _read(process / "stat").rpartition(")")[2].split()[1:2] for pid, process in running.items()}
    while below := {pid for pid, parent in parents.items() if set(map(int, parent)) & found} - found:
        found |= below
    lines = {pid: _read(running[pid] / "cmdline").replace("\0", " ").strip() for pid in found}
    return {pid: line for pid, line in lines.items() if line}


def _bears(process: Path, folder: Path, mark: str) -> bool:
    with suppress(OSError):
        cwd = str((process / "cwd").readlink())
        return cwd.startswith(str(folder)) or mark in (process / "environ").read_text(errors="replace")
    return False


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""
