"""What lies outside of a sandbox for commands to reach: files that anybody may write, sockets, processes, programs.

Nothing here needs a library, so that it can be laid out by a user who has none.
"""

import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.support.hostile import Tokens
from workers.sandbox import rungs
from workers.sandbox.host import INSIDE

MARK: Final = f"m4rk-{uuid4().hex}"  # what no command may come to know
SECRET_NAMES: Final = ("BROKER_URL", "OPENAI_API_KEY", "WEBHOOK_SECRET", "ACME_TOKEN_7")
_SECRET_FILES: Final = (".netrc", ".aws/credentials", ".env", "work/.env")
_HOST_PROGRAMS: Final = ("crontab", "at", "systemd-run", "bwrap", "sudo", "sh")
_OPEN: Final = 0o777
_READABLE: Final = 0o666


@dataclass(frozen=True)
class Bait:
    """All of it. run: a name of this bait alone."""

    folder: Path
    listeners: tuple[socket.socket, ...]
    decoy: "subprocess.Popen[bytes]"
    run: str

    @property
    def canary(self) -> Path:
        return self.folder / "canary"

    def another_canary(self, name: str) -> Path:
        """A folder like that, for one case alone."""
        made = self.folder / "canaries" / name
        shutil.copytree(self.canary, made)
        user = self.canary.stat().st_uid
        for path in (made, made / "secret.txt"):
            os.chown(path, user, -1)
        return made

    def tokens(self, workspace: Path) -> Tokens:
        """What stands for the corpus's tokens."""
        port = self.listeners[0].getsockname()[1]
        return {
            "CANARY": self.canary,
            "CACHE": self.folder / "cache",
            "CACHE_REL": "../cache",
            "POLICY": self.folder / "policy.json",
            "PORT": port,
            "REDIS_PORT": port,
            "SOCK": self.folder / "sock",
            "WORKER_PID": os.getpid(),
            "DECOY_PID": self.decoy.pid,
            "RO_BIND": "/run/mandor/inside",
            "RUN": self.run,
            "OTHER_RUN": "other-run",
            "WS": workspace,
            "MARK": MARK,
        }

    def files(self, below: str = ".") -> dict[str, Any]:
        """Of each file below a folder of it all that a command could change, but for when it was read."""
        return {str(path): _state(path) for path in sorted((self.folder / below).rglob("*"))}

    def state(self) -> dict[str, Any]:
        """Everything that a command could have changed, to be compared."""
        files = {path: found for path, found in self.files().items() if not _is_ours(Path(path), self.folder)}
        rooms = {folder: os.path.lexists(f"{folder}/{self.run}-x") for folder in ("/tmp", "/dev/shm")}
        places = {path: os.path.lexists(path) for path in ("/etc/x", "/usr/local/bin/x", "/mnt/x")}
        return {**files, **rooms, **places, "decoy": self.decoy.poll(), "calls": [*map(_heard, self.listeners)]}


def _is_ours(path: Path, folder: Path) -> bool:
    """The workspace itself, which commands may change."""
    return folder / "home" in (path, *path.parents)


def _state(path: Path) -> tuple[Any, ...]:
    found = path.lstat()
    content = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
    return found.st_ino, found.st_mode, found.st_nlink, found.st_mtime_ns, content


def _heard(listener: socket.socket) -> bool:
    """Whether anybody has called."""
    with suppress(BlockingIOError):
        if listener.type == socket.SOCK_DGRAM:
            return bool(listener.recv(1))
        listener.accept()[0].close()
        return True
    return False


@contextmanager
def laid_out(user: int) -> Iterator[Bait]:
    """All of it, and the surroundings of this process lead there."""
    with spread(user) as bait, pytest.MonkeyPatch.context() as patched:
        mislead(patched, bait.folder)
        yield bait


@contextmanager
def spread(user: int) -> Iterator[Bait]:
    """All of it in a folder that everybody can reach."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bait-", ignore_cleanup_errors=True)))
        _write_files(folder)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, -1)
        listeners = tuple(stack.enter_context(one) for one in _listeners(folder))
        decoy = stack.enter_context(_decoy(user))
        yield Bait(folder, listeners, decoy, f"run-{uuid4().hex}")


def _write_files(folder: Path) -> None:
    """Anybody may write all but the sandbox's own modules, which the commands' user may."""
    files = {"canary/secret.txt": MARK, "cache/result.json": "{}", "policy.json": "{}", "other-run/secret.txt": MARK}
    files |= {f"worker-home/{name}": MARK for name in _SECRET_FILES}
    files |= {f"programs/{name}": f"#!/bin/sh\necho called >> {folder}/calls\n" for name in _HOST_PROGRAMS}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    for path in (folder, *folder.rglob("*")):
        path.chmod(_OPEN if path.is_dir() or path.parent.name == "programs" else _READABLE)
    shutil.copytree(INSIDE, folder / "inside", ignore=shutil.ignore_patterns("__pycache__"))


def mislead(patched: pytest.MonkeyPatch, folder: Path) -> None:
    """As a worker might stand: secrets in its environment, a PATH that leads anywhere, files of its user's; and what
    starts its sandboxes is where the commands' user could change it.
    """
    patched.setattr(rungs, "INSIDE", folder / "inside")
    mark = (folder / "canary" / "secret.txt").read_text()
    for name in SECRET_NAMES:
        patched.setenv(name, f"redis://:{mark}@127.0.0.1/0")
    patched.setenv("HOME", str(folder / "worker-home"))
    patched.setenv("PATH", os.pathsep.join((".", "", str(folder / "programs"), os.environ.get("PATH", os.defpath))))
    patched.chdir(folder / "worker-home" / "work")


def _listeners(folder: Path) -> Iterator[socket.socket]:
    """A stream and datagrams on one port of the loopback, and a socket that is a file."""
    stream = socket.create_server(("127.0.0.1", 0))
    datagrams = socket.socket(type=socket.SOCK_DGRAM)
    datagrams.bind(stream.getsockname())
    named = socket.socket(socket.AF_UNIX)
    named.bind(str(folder / "sock"))
    (folder / "sock").chmod(_OPEN)
    named.listen()
    for listener in (stream, datagrams, named):
        listener.setblocking(False)
        yield listener


@contextmanager
def _decoy(user: int) -> "Iterator[subprocess.Popen[bytes]]":
    """A process of the commands' user, which any signal would end."""
    other = {"user": user, "extra_groups": ()} if os.geteuid() == 0 else {}
    decoy = subprocess.Popen(["/bin/sleep", "600"], env={}, cwd="/", **other)  # type: ignore[call-overload]
    try:
        yield decoy
    finally:
        decoy.kill()
        decoy.wait()
