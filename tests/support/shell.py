"""A person's shell in a terminal of its own: what is typed there, and what is then to be read."""

import os
import pty
import re
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.up import TAKE_TERMINAL
from tests.support.waiting import eventually

COMMAND = 'mandor() { %s -m workers.cli "$@"; }\n'
ROWS, COLUMNS = 50, 200
ECHO = termios.ECHO | termios.ECHOCTL


@dataclass(frozen=True)
class Said:
    """What a command printed, as the terminal got it, and its exit code."""

    text: str
    code: int


class Shell:
    """Types commands and reads until each is over."""

    def __init__(self, env: Mapping[str, str], folder: Path) -> None:
        self._screen, inside = _terminal()
        argv = [sys.executable, "-c", TAKE_TERMINAL, "/bin/sh"]
        self._process = subprocess.Popen(
            argv,
            env=_as_in_a_terminal(env),
            cwd=folder,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        self._read = b""
        self._commands = 0
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.type(COMMAND % sys.executable)

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def run(self, command: str, *, timeout_s: float = 120.0) -> Said:
        """What a command says, once it is over."""
        self._commands += 1
        begun = len(self._read)
        mark = f"over-{self._commands}"
        self.type(f"{command}; printf '{mark}:%s:\\n' $?\n")
        over = re.compile(rf"{mark}:(\d+):\r?\n".encode())
        eventually(lambda: over.search(self._read, begun), timeout_s=timeout_s, what=f"the end of {command}")
        found = over.search(self._read, begun)
        assert found is not None
        return Said(self._read[begun : found.start()].decode().replace("\r\n", "\n"), int(found[1]))

    def end(self) -> None:
        """The shell and whatever it still runs, which is hung up on."""
        self._process.kill()
        self._process.wait(10)
        self._listener.join(10)
        os.close(self._screen)

    def _listen(self) -> None:
        while True:
            try:
                piece = os.read(self._screen, 65_536)
            except OSError:  # the other end is gone
                return
            if not piece:
                return
            self._read += piece


def _terminal() -> tuple[int, int]:
    """Both ends of a terminal that is wide from the start and does not repeat what is typed."""
    screen, inside = pty.openpty()
    termios.tcsetwinsize(inside, (ROWS, COLUMNS))
    modes = termios.tcgetattr(inside)
    modes[3] &= ~ECHO
    termios.tcsetattr(inside, termios.TCSANOW, modes)
    return screen, inside


def _as_in_a_terminal(env: Mapping[str, str]) -> dict[str, str]:
    """Without sizes that were true of another terminal: programs believe them more than their own."""
    kept = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
    return {**kept, "TERM": "xterm-256color", "PS1": ""}


@contextmanager
def shell_in(folder: Path, env: Mapping[str, str]) -> Iterator[Shell]:
    shell = Shell(env, folder)
    try:
        yield shell
    finally:
        shell.end()
