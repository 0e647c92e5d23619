"""Where the worker is root, a workspace belongs to the user whom commands run as; root can write it all the same.

Commands of the same run may be at work in it meanwhile, and swap what stands there for links and pipes. So each folder
is opened from the workspace downwards, through no link and waiting for nobody, and one is open at a time.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from workers.beneath import FOLDER, open_beneath
from workers.paths import PATH_BYTES

Names = tuple[str, ...]
ENTRIES: Final = 5_000_000  # that are looked at; whoever finds more runs after somebody who makes them
_NOT_OURS: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV})  # gone, swapped, or mounted there


def hand_to(folder: Path, uid: int | None, gid: int | None) -> None:
    """Give the folder and what lies below it to this user, no link followed. None: it is the worker's own already.

    What lies deeper than the path of any step leads is left: only commands make that, so it is theirs. A file of two
    names is left, too. OSError: it cannot be done.
    """
    if uid is None or gid is None:
        return
    root = os.open(folder, FOLDER)
    try:
        os.fchown(root, uid, gid)
        _give_below(root, uid, gid)
    finally:
        os.close(root)


def _give_below(root: int, uid: int, gid: int) -> None:
    waiting: list[Names] = [()]
    looked_at = 0
    while waiting:
        above = waiting.pop()
        for parent, name, found in _within(root, above):
            looked_at += 1
            if looked_at > ENTRIES:
                raise OSError(errno.EAGAIN, "the workspace grows faster than it can be handed over")
            _give(name, found, parent, uid, gid)
            if stat.S_ISDIR(found.st_mode):
                waiting.append((*above, name))


def _within(root: int, folder: Names) -> Iterator[tuple[int, str, os.stat_result]]:
    """What is in it, with a descriptor of the folder. Nothing, where it is no folder of this workspace any more."""
    descriptor = _opened(root, folder)
    if descriptor is None:
        return
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield descriptor, entry.name, found
    finally:
        os.close(descriptor)


def _opened(root: int, folder: Names) -> int | None:
    if len(os.fsencode("/".join(folder))) > PATH_BYTES:
        return None
    try:
        return open_beneath(root, folder, FOLDER)
    except OSError as error:
        if error.errno in _NOT_OURS:
            return None
        raise


def _give(name: str, found: os.stat_result, parent: int, uid: int, gid: int) -> None:
    """A name may vanish meanwhile: a command that runs beside may have removed it."""
    if found.st_uid == uid or not (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
        return
    with suppress(FileNotFoundError):
        os.chown(name, uid, gid, dir_fd=parent, follow_symlinks=False)
