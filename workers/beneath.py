"""Opening what lies beneath a folder and nowhere else: through no link, up no '..', onto no other file system.

By openat2(2), in one call that answers for the whole path. Where there is none (Linux before 5.6, a filter that knows
fewer calls, another system), name by name, which finds the same links; of mounts it sees those of another device only.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from workers.sandbox.inside import kernel

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENAT2: Final = 437  # on every architecture that Python is built for
_NO_OTHER_MOUNT, _NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_RESOLVE: Final = _NO_OTHER_MOUNT | _NO_MAGIC_LINKS | _NO_LINKS | _BENEATH
_NO_SUCH_CALL: Final = frozenset({errno.ENOSYS, errno.EPERM})  # older filters answer EPERM to what they do not know


def open_beneath(root: int, names: Sequence[str], flags: int) -> int:
    """A descriptor of what those names lead to from root; of root itself, opened anew, where there are none.

    OSError: ELOOP or ENOTDIR for a link, EXDEV for a mount; else as open(2).
    """
    if sys.platform == "linux":
        try:
            return _in_one_call(root, names, flags)
        except OSError as error:
            if error.errno not in _NO_SUCH_CALL:
                raise
    return _name_by_name(root, names, flags)


def make_folders(root: int, names: Sequence[str]) -> None:
    """Make the folders those names lead to, 0700, on disk; what is there already is left as it is."""
    here = os.dup(root)
    try:
        for name in names:
            below = _made(here, name)
            os.close(here)
            here = below
    finally:
        os.close(here)


def _made(parent: int, name: str) -> int:
    made = False
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        made = True
    os.fsync(parent)  # also of one that was there: who made it may have died before this
    below = open_beneath(parent, (name,), FOLDER)
    if made:
        os.fchmod(below, 0o700)  # whatever the umask
    return below


def _in_one_call(root: int, names: Sequence[str], flags: int) -> int:
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE)
    path = os.fsencode("/".join(names) or ".")
    return kernel.syscall(_OPENAT2, root, path, ctypes.create_string_buffer(how, len(how)), len(how))


def _name_by_name(root: int, names: Sequence[str], flags: int) -> int:
    *folders, last = names or (".",)
    here = os.dup(root)
    try:
        for name in folders:
            below = _open_here(here, name, FOLDER)
            os.close(here)
            here = below
        return _open_here(here, last, flags)
    finally:
        os.close(here)


def _open_here(parent: int, name: str, flags: int) -> int:
    found = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    if os.fstat(found).st_dev != os.fstat(parent).st_dev:
        os.close(found)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return found
