"""Folders that a command may have shut to their owner, who is the worker."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMELESS: Final = getattr(os, "O_PATH", None)  # opens what may not be read; Linux
_PRIVATE: Final = 0o700


def open_up(name: str | Path, parent: int | None = None) -> int:
    """A descriptor of a folder that its owner can list, write and enter from here on. No link is followed."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        _let_owner_in(name, parent)
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    with suppress(PermissionError):  # another user's, which a privileged worker can write all the same
        os.fchmod(descriptor, _PRIVATE)
    return descriptor


def _let_owner_in(name: str | Path, parent: int | None) -> None:
    """By what stands there, not by its name, which may become a link meanwhile."""
    if _NAMELESS is None:
        os.chmod(name, _PRIVATE, dir_fd=parent, follow_symlinks=False)
        return
    found = os.open(name, _NAMELESS | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{found}").chmod(_PRIVATE)
    finally:
        os.close(found)
