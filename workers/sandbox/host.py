"""What this machine and this worker's user offer to make sandboxes of."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import ConfigError

INSIDE: Final = Path(__file__).with_name("inside")
_PROGRAM_FOLDERS: Final = ("/usr/bin", "/usr/local/bin", "/bin")
_SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES: Final = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/ssl/certs")
STAGES: Final = ("/mnt", "/media", "/srv", "/opt")


@dataclass(frozen=True, slots=True)
class Host:
    """uid, gid: whom commands run as, where the worker is root; None: as the worker. bubblewrap: None where there is
    none. prefix: the folder that python needs besides itself.
    """

    python: str
    prefix: str
    bubblewrap: str | None
    uid: int | None
    gid: int | None

    @property
    def stage(self) -> str | None:
        """A folder to hang others below, where those that we need are not in it; None where there is none."""
        ours = (self.prefix, str(INSIDE))
        fit = (one for one in STAGES if Path(one).is_dir() and not any(path.startswith(one) for path in ours))
        return next(fit, None)

    def shown(self) -> Iterator[tuple[str, str]]:
        """Folders and files of the host that a command may read; (link, target) pairs are in `links`."""
        for path in (*_SYSTEM_FOLDERS, *_SYSTEM_FILES):
            if Path(path).exists() and not _is_top_link(path):
                yield path, path

    def showing(self, path: Path) -> str | None:
        """The folder with this path in it of which a command may read all, if there is one. path: links resolved."""
        folders = (*(source for source, _ in self.shown()), self.prefix, str(INSIDE))
        return next((one for one in folders if path.is_relative_to(Path(one).resolve())), None)

    def links(self) -> Iterator[tuple[str, str]]:
        """Links in the host's root folder, as /bin is where it is one with /usr/bin."""
        return ((path, str(Path(path).readlink())) for path in _SYSTEM_FOLDERS if _is_top_link(path))

    def shows_python(self) -> bool:
        """Whether what is shown holds this Python already."""
        return f"{self.prefix}/".startswith("/usr/")


def this_host(sandbox_uid: int) -> Host:
    """This one. sandbox_uid: whom commands run as where the worker is root."""
    is_root = os.geteuid() == 0
    if is_root and sandbox_uid == 0:
        raise ConfigError("commands never run as root", path="MANDOR_SANDBOX_UID", hint="name another user's number")
    user = sandbox_uid if is_root else None
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    return Host(python, os.path.realpath(sys.base_prefix), _find_bubblewrap(), user, user)


def tasks_of(uid: int) -> int:
    """How many processes and threads of this user there are, as far as they can be seen from here."""
    with suppress(OSError):
        return sum(_tasks_of(uid, one / "status") for one in Path("/proc").iterdir() if one.name.isdigit())
    return 0


def _tasks_of(uid: int, status: Path) -> int:
    with suppress(OSError):  # it has ended
        lines = (line.partition(b":") for line in status.read_bytes().split(b"\n"))  # a process may have any name
        fields = {name: value for name, _, value in lines}
        return int(fields[b"Threads"]) if int(fields[b"Uid"].split()[0]) == uid else 0
    return 0


def _is_top_link(path: str) -> bool:
    return path in _SYSTEM_FOLDERS and Path(path).is_symlink()


def _find_bubblewrap() -> str | None:
    """In folders of the system alone, and only root's: a worker's PATH may lead into a workspace."""
    for folder in _PROGRAM_FOLDERS:
        path = f"{folder}/bwrap"
        if _is_trusted(path):
            return os.path.realpath(path)
    return None


def _is_trusted(path: str) -> bool:
    try:
        found = Path(path).stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
