"""Taking away folders whose content is nobody's friend: as deep as a disk lets it be, shut to its owner, full of links,
and perhaps written to by somebody who does not know yet that it is over.

No link is followed. However deep the folders are, two descriptors are open at a time: what lies below is moved up and
then taken away like the rest. What cannot be done within a while is left for the next call, which goes on.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from workers.shut import open_up

WITHIN_S: Final = 5.0


def remove_tree(top: Path, within_s: float = WITHIN_S) -> bool:
    """Take a folder away with all that is in it. False: it takes longer; call again. Nothing there: true.

    OSError: it may not be taken away.
    """
    give_up = time.monotonic() + within_s
    try:
        with _opened(top, None) as folder:
            while names := _names(folder):
                for name in names:
                    if time.monotonic() > give_up:
                        return False
                    _clear(folder, name)
        top.rmdir()
    except FileNotFoundError:  # somebody else takes it away, too
        pass
    except OSError:
        if not _is_filled_again(top):
            raise
        return False
    return True


def _is_filled_again(top: Path) -> bool:
    """Whether there is more in it than there was: somebody still writes."""
    with suppress(OSError):
        return any(top.iterdir())
    return False


def _clear(top: int, name: str) -> None:
    """Take away one name of the topmost folder; the folders in it come up beside it first."""
    with suppress(FileNotFoundError):
        if _unlinked(name, top):
            return
        with _opened(name, top) as folder:
            for below in _names(folder):
                _clear_below(folder, below, top)
        with suppress(OSError):  # not empty: it was written to meanwhile, and has its turn again
            os.rmdir(name, dir_fd=top)


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
