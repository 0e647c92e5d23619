"""From a worker that is root to the user whom commands run as, who may read neither the home folder nor this Python.

The folders that a sandbox is made of are mounted where everybody can reach them, seen by this process alone; then it
becomes that user for good, and what comes next is as for a worker who is no root.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from . import kernel

NEW_MOUNTS: Final = 0x20000
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x40000
_NO_SUID, _NO_DEVICES = 2, 4


def main() -> NoReturn:
    """uid, gid, where to, the number of folders, the folders, and the command line to go on with."""
    uid, gid, where, count, *rest = sys.argv[1:]
    sources, argv = rest[: int(count)], rest[int(count) :]
    stage(where, sources)
    become(int(uid), int(gid))
    os.execve(argv[0], argv, {})


def stage(where: str, sources: Sequence[str]) -> None:
    """Mount each folder below `where`, under its number."""
    kernel.call("unshare", NEW_MOUNTS)
    mount(None, "/", RECURSIVE | PRIVATE)
    opened = [os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC) for source in sources]
    mount("tmpfs", where, _NO_SUID | _NO_DEVICES, kind="tmpfs", options="mode=755")
    for number, folder in enumerate(opened):
        os.mkdir(f"{where}/{number}")
        mount(f"/proc/self/fd/{folder}", f"{where}/{number}", BIND | RECURSIVE)
        os.close(folder)


def become(uid: int, gid: int) -> None:
    """This user and no other, without a way back."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    kernel.prctl(kernel.SET_DUMPABLE, 1)  # else its own /proc/self would be root's


def mount(source: str | None, target: str, flags: int, *, kind: str | None = None, options: str | None = None) -> None:
    """mount(2)."""
    kernel.call("mount", _encoded(source), _encoded(target), _encoded(kind), flags, _encoded(options))


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
