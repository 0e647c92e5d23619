"""Taking away folders whose content is nobody's friend: as deep as a disk lets it be, shut to its owner, full of links,
and perhaps written to by somebody who does not know yet that it is over.

No link is followed. However deep the folders are, two descriptors are open at a time: what lies below is moved up and
then taken away like the rest. What cannot be done within a while is left for the next call, which goes on. What may not
be taken away keeps nothing else.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from workers.shut import open_up

WITHIN_S: Final = 5.0
_FILLED: Final = (errno.ENOTEMPTY, errno.EEXIST)


def remove_tree(top: Path, within_s: float = WITHIN_S) -> bool:
    """Take a folder away with all that is in it. False: it takes longer, or somebody still writes in it; call again.
    Nothing there: true.

    OSError: the first of what may not be taken away; all else has been.
    """
    give_up = time.monotonic() + within_s
    stuck: dict[str, OSError] = {}
    with suppress(FileNotFoundError):  # somebody else takes it away, too
        with _opened(top, None) as folder:
            while names := [name for name in _names(folder) if name not in stuck]:
                for name in names:
                    if time.monotonic() > give_up:
                        return False
                    if fault := _fault_of(_clear, folder, name):
                        stuck[name] = fault
        if stuck:
            raise next(iter(stuck.values()))
        return _is_away(top, None)
    return True


def _fault_of(act: Callable[..., None], *arguments: object) -> OSError | None:
    try:
        act(*arguments)
    except OSError as fault:
        return fault
    return None


def _clear(top: int, name: str) -> None:
    """Take away one name of the topmost folder; the folders in it come up beside it first."""
    with suppress(FileNotFoundError):
        if _unlinked(name, top):
            return
        with _opened(name, top) as folder:
            faults = [fault for below in _names(folder) if (fault := _fault_of(_clear_below, folder, below, top))]
        if faults:
            raise faults[0]
        _is_away(name, top)  # if it is not, it has its turn again


def _is_away(name: str | Path, parent: int | None) -> bool:
    """Whether a folder went that was empty. False: it was written to meanwhile."""
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as fault:
        if fault.errno not in _FILLED:
            raise
        return False
    return True


def _clear_below(folder: int, name: str, top: int) -> None:
    with suppress(FileNotFoundError):
        if not _unlinked(name, folder):
            with _opened(name, folder):  # a folder that its owner may not write cannot be moved
                pass
            os.rename(name, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=top)


def _unlinked(name: str, folder: int) -> bool:
    """Whether it was no folder, and is away."""
    try:
        os.unlink(name, dir_fd=folder)
    except (IsADirectoryError, PermissionError):  # the latter is what others than Linux say of a folder
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise
        return False
    return True


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as found:
        return [entry.name for entry in found]


@contextmanager
def _opened(name: str | Path, parent: int | None) -> Iterator[int]:
    """A folder, whatever it was before, open to its owner."""
    descriptor = open_up(name, parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
