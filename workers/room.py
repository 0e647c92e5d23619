"""How full a run's workspace is, commands' files included, and whether one more file fits in by the policy.

Looked up anew for each write, under the workspace's lock: of files that are written at once, no two take the same room.
Bytes are what files say of their size, holes included, or the space they have on the disk where that is more: it can be
reserved beyond a file's end. Of a folder, and whatever else there is, they are its space on the disk but for one block:
some file systems never give back what many names in a folder took. Files are entries of any kind, folders too.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from orchestrator.settings import env_name
from schemas.policy import Policy
from workers.beneath import FOLDER, open_beneath
from workers.outcomes import NoEffect, PermanentError
from workers.paths import PATH_BYTES

Names = tuple[str, ...]
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})  # changed by a command while we look
_BLOCK: Final = 512  # what stat(2) counts in, whatever the file system's own are
_MEND: Final = "write less, or take away what the run needs no more"


class WorkspaceFull(PermanentError, NoEffect):
    """The workspace would hold more than the policy allows; nothing was written."""

    kind = "workspace_full"


@dataclass(frozen=True, slots=True)
class Usage:
    """bytes: what all of it takes, the workspace's own folder too; files: how many entries of any kind are in it."""

    bytes: int
    files: int


def refuse_overfull(root: int, parts: Names, size: int, policy: Policy) -> None:
    """WorkspaceFull if a file of this size at this path, with the folders on the way, is too much."""
    try:
        others = usage_beside(root, parts, policy.workspace_files)
    except PermissionError:
        raise _unknown("a folder in it cannot be looked into") from None
    _refuse_more(others.files + len(parts), policy.workspace_files, "workspace_files", "params.path", "entries")
    _refuse_more(others.bytes + size, policy.workspace_bytes, "workspace_bytes", "params.content", "bytes")


def usage_beside(root: int, parts: Names, enough: int) -> Usage:
    """What there is besides the path itself. Not counted much further than to enough files. Memory grows with the
    folders, descriptors do not.
    """
    size, files = _taken(os.fstat(root)), 0
    waiting: list[Names] = [()]
    while waiting and files <= enough:
        folder = waiting.pop()
        on_the_way = _next_part(parts, folder)
        for name, found in islice(_within(root, folder), enough + 2):
            is_folder = stat.S_ISDIR(found.st_mode)
            if is_folder:
                waiting.append((*folder, name))
            files += name != on_the_way
            size += _taken(found) if is_folder or name != on_the_way else 0
    return Usage(size, files)


def _taken(found: os.stat_result) -> int:
    """That a file's last block is not full, and a block that says where the others are, counts for nothing; nor does
    one block of what is no file.
    """
    on_disk = found.st_blocks * _BLOCK
    if not stat.S_ISREG(found.st_mode):
        return max(0, on_disk - found.st_blksize)
    return on_disk if on_disk > found.st_size + 2 * found.st_blksize else found.st_size


def _next_part(parts: Names, folder: Names) -> str | None:
    """The part of the path that lies in this folder, where the path leads through it."""
    depth = len(folder)
    return parts[depth] if depth < len(parts) and folder == parts[:depth] else None


def _refuse_more(count: int, most: int, field: str, path: str, unit: str) -> None:
    if count > most:
        which = f"{field} of the policy, {env_name(field)}"
        message = f"the run's workspace would have {count} {unit}, at most {most} are allowed ({which})"
        raise WorkspaceFull(message, path=path, hint=_MEND)


def _within(root: int, folder: Names) -> Iterator[tuple[str, os.stat_result]]:
    descriptor = _opened(root, folder)
    if descriptor is None:
        return
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    yield entry.name, entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
    finally:
        os.close(descriptor)


def _opened(root: int, folder: Names) -> int | None:
    if len(os.fsencode("/".join(folder))) > PATH_BYTES:
        raise _unknown("a folder in it lies deeper than any path leads")
    try:
        return open_beneath(root, folder, FOLDER)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise


def _unknown(why: str) -> WorkspaceFull:
    hint = "let the command that made it take it away, or open it"
    return WorkspaceFull(f"nobody can say how full the run's workspace is: {why}", path="params.path", hint=hint)
