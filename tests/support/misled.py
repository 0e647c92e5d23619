"""A worker that stands as badly as one may, amidst a bait: python -m tests.support.misled FOLDER celery ...

Secrets in its environment and in files of its home, a PATH that leads anywhere, no umask, a terminal, a file and a
socket that whatever it starts inherits, and sandboxes that are started from a folder of the commands' user.
Each signal that it sends is noted in kills(FOLDER), with whether the process was still its own.
"""

import fcntl
import os
import runpy
import socket
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.support.bait import mislead

GONE = "somebody else's"


def kills(folder: Path) -> Path:
    """Where each signal is noted: who got it, and whose that process was."""
    return folder / "home" / "kills"


def main() -> None:
    folder = Path(sys.argv[1])
    mislead(pytest.MonkeyPatch(), folder)
    del os.environ["BROKER_URL"]  # which Celery takes for its option of that name
    os.umask(0)
    take_a_terminal()
    leave_open(folder)
    note_kills(kills(folder))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def take_a_terminal() -> None:
    """One that this session has, as if it had been started from it; nobody ever types there."""
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def leave_open(folder: Path) -> None:
    """For whatever is started to inherit."""
    log = os.open(folder / "canary" / "secret.txt", os.O_RDONLY)
    listener = socket.create_server(("127.0.0.1", 0))
    for descriptor in (log, listener.detach()):
        os.set_inheritable(descriptor, True)


def note_kills(path: Path) -> None:
    """In this process and in all that it forks."""
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def note(event: str, about: tuple[Any, ...]) -> None:
        if event in ("os.kill", "os.killpg") and about[1]:
            os.write(notes, f"{event} {about[0]} {_whose(about[0])}\n".encode())

    sys.addaudithook(note)


def _whose(pid: int) -> str:
    if pid == os.getpid():
        return "itself"
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return GONE
    return "its child"


if __name__ == "__main__":
    main()
