"""A run's own folder: reached through directory descriptors only, no link followed, every write whole or not at all.

    {home}/workspace.key                    32 random bytes, 0600: makes the folders' names unguessable
    {home}/workspaces/{name}/run.json       whose it is, and the lock of who comes in or lets it go (workers.belonging)
    {home}/workspaces/{name}/tree/          what steps write and read, 0700, files 0600
    {home}/workspaces/{name}/incoming/      files being written, out of the steps' reach
    {home}/workspaces/{name}/fences/        per path: the highest fencing token that wrote it
    {home}/workspaces/{name}/lock           held from the look at a path's fence until its file is renamed or removed

Somebody who can plant links inside `tree` while a step writes can make that write fail, never make it land elsewhere.
"""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import MandorError
from orchestrator.home import WORKSPACE_KEY, make_private, workspace_folder
from orchestrator.settings import env_name
from schemas.policy import Policy
from workers.belonging import come_in, write_once
from workers.beneath import FOLDER, make_folders, open_beneath
from workers.outcomes import NoEffect, PermanentError
from workers.paths import path_parts, protected_part
from workers.room import refuse_overfull

LOCK_WAIT_S: Final = 15.0
_LOCK_POLL_S: Final = 0.01
_KEY_BYTES: Final = 32
_FENCE_DIGITS: Final = 20
_READING: Final = os.O_RDONLY | os.O_NONBLOCK
DEFAULT: Final = Policy()
_IRREGULAR: Final = "what stands there is not a regular file"
_SHARED: Final = "the file that stands there has another name too (a hard link)"
_REFUSALS: Final = {
    errno.ELOOP: "a link stands in the path",
    errno.ENOTDIR: "a link or a file stands where a folder is needed",
    errno.EISDIR: "a folder stands where the file should be",
    errno.ENAMETOOLONG: "a name in the path is too long for this file system",
    errno.ENXIO: _IRREGULAR,
    errno.EXDEV: "another file system is mounted in the path",
}


class PathRefused(PermanentError, NoEffect):
    """The path leads out of the workspace, through a link, or to something that is no regular file."""

    kind = "path_refused"

    def __init__(self, message: str, hint: str = "name a plain relative path inside the run's workspace") -> None:
        super().__init__(message, path="params.path", hint=hint)
        self.args = (message, hint)


class NameProtected(PathRefused):
    """The policy protects a name in the path; nothing was written."""

    kind = "name_protected"


class WorkspaceFault(MandorError):
    """The file system could not do it this time: full, too many files, or a lock that is not let go."""

    kind = "workspace"


class StaleWrite(MandorError):
    """A later holder has written this path already; the older content is dropped."""

    kind = "stale_write"


@dataclass(frozen=True, slots=True)
class Written:
    """bytes: size on disk; sha256: hex digest of the content."""

    bytes: int
    sha256: str


class WrittenSince(PermanentError, NoEffect):
    """Somebody has written the file after the step that is to be undone; it is left as it is."""

    kind = "written_since"


class Workspaces:
    """All workspaces under one home folder. Nothing is made before the first one is opened."""

    def __init__(self, home: Path) -> None:
        self._home = home.absolute()

    def path(self, run_id: str) -> Path:
        """Where the run's files lie, whether or not any was written yet."""
        return self._folder(run_id) / "tree"

    def open(self, run_id: str, fence: int, wrote: int | None = None, policy: Policy = DEFAULT) -> "Workspace":
        """The run's workspace, made if it is not there. fence: the token that its writes show; wrote: the newest one of
        the step whose files may be removed, if that is another; policy: says how full it may be, and which names are
        protected.
        """
        folder = self._folder(run_id)
        with _plain_faults():
            _come_in(folder, run_id)
        return Workspace(folder, fence, fence if wrote is None else wrote, policy)

    def _folder(self, run_id: str) -> Path:
        return workspace_folder(self._home, self._key(), run_id)

    def _key(self) -> bytes:
        path = self._home / WORKSPACE_KEY
        with _plain_faults():
            make_private(self._home)
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return _new_key(path)


def _come_in(folder: Path, run_id: str) -> None:
    """Make what is not there of it, and use it from here on. What is let go meanwhile is made anew."""
    give_up = time.monotonic() + LOCK_WAIT_S
    while time.monotonic() < give_up:
        with suppress(FileNotFoundError):
            for made in (folder.parent, folder, *(folder / name for name in ("tree", "incoming", "fences"))):
                _make_private(made)
            if come_in(folder, run_id, LOCK_WAIT_S):
                return
    raise WorkspaceFault("the workspace is being let go, and that takes too long")


class Workspace:
    """One run's files, written under one fencing token."""

    def __init__(self, folder: Path, fence: int, wrote: int, policy: Policy) -> None:
        self._folder = folder
        self._fence = fence
        self._wrote = wrote
        self._policy = policy

    @property
    def path(self) -> Path:
        """The folder itself, for libraries that want a path. What is done through it is not guarded."""
        return self._folder / "tree"

    def write(self, path: str, content: bytes) -> Written:
        """Put a file there, 0600, whole or not at all, replacing a regular file. Folders on the way are made.

        PathRefused: the path may not be written. NameProtected, WorkspaceFull: by policy. StaleWrite: a higher fence
        has written it. WorkspaceFault: try again.
        """
        self._refuse_protected(_parts(path))
        try:
            with _plain_faults(), _folder(self._folder / "incoming") as incoming, _staged(incoming, content) as staged:
                self._place(incoming, staged, len(content), path)
        except FileNotFoundError:
            raise WorkspaceFault("a folder in the path was taken away meanwhile") from None
        return Written(len(content), hashlib.sha256(content).hexdigest())

    def _place(self, incoming: int, staged: str, size: int, path: str) -> None:
        *folders, name = parts = path_parts(path)
        with self._locked(), self._fence_of(path) as fence, _folder(self.path) as root:
            self._refuse_stale(fence)
            refuse_overfull(root, parts, size, self._policy)
            make_folders(root, folders)
            with _opened(open_beneath(root, folders, FOLDER)) as parent:
                _refuse_unfit(parent, name)
                self._raise_fence(fence)  # first: a writer that dies here lets no older one in
                os.rename(staged, name, src_dir_fd=incoming, dst_dir_fd=parent)
                os.fsync(parent)

    def remove(self, path: str) -> bool:
        """Take away a file that this step wrote, and let none of its older attempts write it again. False: none there.

        WrittenSince: a later step has written it; PathRefused and WorkspaceFault as for write.
        """
        parts = _parts(path)
        with _plain_faults(), self._locked(), self._fence_of(path) as fence:
            removed = self._unlink(parts, _highest(fence))
            self._refuse_stale(fence)
            self._raise_fence(fence)
        return removed

    def _unlink(self, parts: tuple[str, ...], highest: int) -> bool:
        try:
            with _folder(self.path) as root, _opened(open_beneath(root, parts[:-1], FOLDER)) as parent:
                if not stat.S_ISREG(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode):
                    raise PathRefused(_IRREGULAR)
                if highest > self._wrote:
                    raise WrittenSince(
                        f"fence {highest} has written this file after fence {self._wrote}, the last of this step",
                        path="params.path",
                        hint="look at the file in the run's workspace",
                    )
                os.unlink(parts[-1], dir_fd=parent)
                os.fsync(parent)
        except FileNotFoundError:
            return False
        return True

    def read(self, path: str, *, max_bytes: int) -> bytes:
        """The content of a regular file. PathRefused as for write; FileNotFoundError; WorkspaceFault: it is larger."""
        parts = _parts(path)
        with _plain_faults(), _folder(self.path) as root, _opened(open_beneath(root, parts, _READING)) as descriptor:
            _refuse_shared(os.fstat(descriptor))
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise WorkspaceFault(f"the file is larger than {max_bytes} bytes")
        return content

    def _refuse_protected(self, parts: tuple[str, ...]) -> None:
        name = protected_part(parts, self._policy.protected_names)
        if name is not None:
            which = f"protected_names of the policy, {env_name('protected_names')}"
            message = f"the policy protects the name {name} ({which})"
            raise NameProtected(message, hint="write it under another name")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the workspace's lock."""
        with _kept(self._folder, "lock") as lock:
            _lock(lock)
            yield

    @contextmanager
    def _fence_of(self, path: str) -> Iterator[int]:
        """The file that keeps the highest fence of those that wrote the path; its name is on disk."""
        fences = self._folder / "fences"
        with _kept(fences, hashlib.sha256(path.encode()).hexdigest()) as fence:
            if not os.fstat(fence).st_size:  # new, or whoever made it died before this
                _sync(fences)
            yield fence

    def _refuse_stale(self, fence: int) -> None:
        highest = _highest(fence)
        if highest > self._fence:
            raise StaleWrite(f"fence {highest} has written this path, after fence {self._fence}")

    def _raise_fence(self, fence: int) -> None:
        os.pwrite(fence, b"%0*d" % (_FENCE_DIGITS, self._fence), 0)
        os.fsync(fence)  # before the file is there: undo must find who wrote it, also when the power fails


def _highest(fence: int) -> int:
    """0: nobody has written; zeros are what a failing power leaves of a number that was not on disk yet."""
    return int(os.pread(fence, _FENCE_DIGITS, 0).strip(b"\0") or b"0")


def _parts(path: str) -> tuple[str, ...]:
    try:
        return path_parts(path)
    except ValueError as wrong:
        raise PathRefused(str(wrong)) from None


@contextmanager
def _plain_faults() -> Iterator[None]:
    """Errors of the file system in our words: no path of the host gets into a stored error."""
    try:
        yield
    except FileNotFoundError as gone:
        raise FileNotFoundError(gone.errno, "no such file in the workspace") from None
    except OSError as fault:
        if fault.errno in _REFUSALS:
            raise PathRefused(_REFUSALS[fault.errno]) from None
        raise WorkspaceFault(f"the workspace could not be used: {os.strerror(fault.errno or 0)}") from None


@contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _folder(path: Path) -> AbstractContextManager[int]:
    return _opened(os.open(path, FOLDER))


@contextmanager
def _kept(folder: Path, name: str) -> Iterator[int]:
    """A file of ours, made if it is not there."""
    with _folder(folder) as parent:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with _opened(os.open(name, flags, 0o600, dir_fd=parent)) as descriptor:
            yield descriptor


def _refuse_unfit(parent: int, name: str) -> None:
    """Only a regular file of one name is replaced."""
    with suppress(FileNotFoundError):
        _refuse_shared(os.stat(name, dir_fd=parent, follow_symlinks=False))


def _refuse_shared(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PathRefused(_IRREGULAR)
    if found.st_nlink > 1:
        raise PathRefused(_SHARED)


@contextmanager
def _staged(incoming: int, content: bytes) -> Iterator[str]:
    """The content in a file of its own, on disk, under a name nobody knows; gone at the end if it was not moved."""
    name = secrets.token_hex(16)
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=incoming)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=incoming)


def _lock(descriptor: int) -> None:
    """Wait a bounded time: its holder may be a frozen process."""
    give_up = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise WorkspaceFault("another process holds the workspace's lock and does not let go") from None
            time.sleep(_LOCK_POLL_S)


def _make_private(path: Path) -> None:
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
        path.chmod(0o700)
    _sync(path.parent)  # each time: who made it may have died before this


def _sync(folder: Path) -> None:
    """The names in it."""
    with _opened(os.open(folder, os.O_RDONLY | os.O_DIRECTORY)) as names:
        os.fsync(names)


def _new_key(path: Path) -> bytes:
    """Write a key that nobody has yet; whoever comes second takes the first one's."""
    write_once(path, secrets.token_bytes(_KEY_BYTES))
    return path.read_bytes()
