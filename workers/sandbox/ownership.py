"""Where the worker is root, a workspace belongs to the user whom commands run as; root can write it all the same."""

import os
import stat
from pathlib import Path


def hand_to(folder: Path, uid: int | None, gid: int | None) -> None:
    """Give the folder and all below it to this user, no link followed. None: it is the worker's own already."""
    if uid is None or gid is None:
        return
    os.chown(folder, uid, gid, follow_symlinks=False)
    for _, folders, files, parent in os.fwalk(folder):
        for name in (*folders, *files):
            _give(name, parent, uid, gid)


def _give(name: str, parent: int, uid: int, gid: int) -> None:
    """A name may vanish meanwhile: a command that runs beside may have removed it."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if found.st_uid != uid and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
            os.chown(name, uid, gid, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        pass
