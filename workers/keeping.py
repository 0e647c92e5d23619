"""Copies of a run's files that policy keeps when the workspace goes.

    {home}/artifacts/{run_id}/{generation}/files/...        0700 and 0600
    {home}/artifacts/{run_id}/{generation}/manifest.json    what is there, and what was left out, and why

All of a generation's copies are made aside and appear at once, and only if the run was not started over meanwhile: its
steps write where these are read. Who comes second, or again after a crash, finds them.

The tree is anybody's work: links are not followed, and what is no regular file, or has a second name, is not touched.
Nor is what has a name that policy protects: commands are not kept from making that, and people work where copies lie.
"""

import hashlib
import json
import os
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from orchestrator.home import make_private
from orchestrator.ledger.files import Artifact
from schemas.patterns import leads_to, matches
from workers.paths import path_parts, protected_part
from workers.removal import remove_tree
from workers.shut import open_up

ARTIFACTS: Final = "artifacts"
FILES: Final = 1000  # of one generation that are named; more are not kept
LOOKED_AT: Final = 200_000  # names
DEPTH: Final = 64
_MANIFEST: Final = "manifest.json"
_CHUNK: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Wanted:
    """patterns: of the files; max_bytes: of a generation's copies; protected: names that nothing copied has."""

    patterns: frozenset[str]
    max_bytes: int
    protected: frozenset[str]


def keep(
    tree: Path, home: Path, run_id: str, generation: int, wanted: Wanted, is_over: Callable[[], bool]
) -> list[Artifact] | None:
    """Copy what is wanted, unless it was done; answers what was kept and what was left out. is_over: asked once all is
    copied, whether this generation still is; None: it is not. OSError: not this time.
    """
    kept = _place_of(home, run_id, generation)
    if not kept.is_dir():
        make_private(kept.parent)
        for draft in kept.parent.glob(".*"):
            remove_tree(draft)
        if not _publish(tree, kept, wanted, is_over):
            return None
    return [Artifact(**one) for one in json.loads((kept / _MANIFEST).read_bytes())]


def leave_out(tree: Path, home: Path, run_id: str, generation: int, wanted: Wanted, why: str) -> list[Artifact]:
    """What `keep` would have copied, all of it left out; nothing is written. Of a tree that is not ours: nothing."""
    files = _place_of(home, run_id, generation) / "files"
    with suppress(OSError):
        return _Copies(files, _named(files), wanted).none_of(tree, why)
    return []


def _place_of(home: Path, run_id: str, generation: int) -> Path:
    return home.absolute() / ARTIFACTS / run_id / str(generation)


def _named(files: Path) -> str:
    return f"{socket.gethostname()}:{files}"


def _publish(tree: Path, kept: Path, wanted: Wanted, is_over: Callable[[], bool]) -> bool:
    draft = kept.with_name(f".{secrets.token_hex(8)}")
    draft.mkdir(mode=0o700)
    try:
        found = _Copies(draft / "files", _named(kept / "files"), wanted).of(tree)
        _write(draft / _MANIFEST, json.dumps([asdict(one) for one in found]).encode())
        _sync(draft)
        if not is_over():
            return False
        with suppress(FileExistsError, NotADirectoryError):
            draft.rename(kept)
        _sync(kept.parent)
        return True
    finally:
        remove_tree(draft)


class _Copies:
    """One pass over a tree."""

    def __init__(self, target: Path, place: str, wanted: Wanted) -> None:
        self._target = target
        self._place = place
        self._wanted = wanted
        self._room = wanted.max_bytes
        self._looked_at = 0

    def of(self, tree: Path) -> list[Artifact]:
        """Everything that is wanted, in the order of its paths."""
        self._target.mkdir(mode=0o700)
        return [self._copied(path, parent) for path, parent in self._wanted_of(tree)]

    def none_of(self, tree: Path, why: str) -> list[Artifact]:
        """The same, with nothing of it copied."""
        return [Artifact("/".join(path), self._place, 0, None, why) for path, _ in self._wanted_of(tree)]

    def _wanted_of(self, tree: Path) -> Iterator[tuple[tuple[str, ...], int]]:
        with suppress(FileNotFoundError), _folder(tree, None) as root:
            yield from islice(self._wanted_below(root, ()), FILES)

    def _wanted_below(self, folder: int, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
        for name in sorted(os.listdir(folder)):
            self._looked_at += 1
            path = (*above, name)
            if self._looked_at > LOOKED_AT or not _is_plain(path):
                continue
            mode = _mode(name, folder)
            leads_on = stat.S_ISDIR(mode) and len(path) < DEPTH and self._leads_on(path)
            if (stat.S_ISREG(mode) and self._matches(path)) or (leads_on and self._protected(name)):
                yield path, folder
            elif leads_on:
                with suppress(OSError), _folder(name, folder) as below:
                    yield from self._wanted_below(below, path)

    def _matches(self, path: tuple[str, ...]) -> bool:
        return any(matches(pattern, path) for pattern in self._wanted.patterns)

    def _protected(self, name: str) -> str | None:
        return protected_part((name,), self._wanted.protected)

    def _leads_on(self, path: tuple[str, ...]) -> bool:
        return any(leads_to(pattern, path) for pattern in self._wanted.patterns)

    def _copied(self, path: tuple[str, ...], parent: int) -> Artifact:
        name = "/".join(path)
        if protected := self._protected(path[-1]):
            return Artifact(name, self._place, 0, None, f"the policy protects the name {protected}")
        try:
            source = os.open(path[-1], _READ, dir_fd=parent)
        except OSError:
            return Artifact(name, self._place, 0, None, "it cannot be read")
        with os.fdopen(source, "rb") as file:
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                return Artifact(name, self._place, found.st_size, None, "it is no file of one name")
            if found.st_size > self._room:
                return Artifact(name, self._place, found.st_size, None, "artifact_bytes of the policy are used up")
            content, hashed = self._room, hashlib.sha256()
            target = self._target.joinpath(*path)
            _make_folders(self._target, path[:-1])
            with os.fdopen(os.open(target, _WRITE, 0o600), "wb") as copy:
                while content and (chunk := file.read(min(_CHUNK, content))):
                    copy.write(chunk)
                    hashed.update(chunk)
                    content -= len(chunk)
                copy.flush()
                os.fsync(copy.fileno())
        size, self._room = self._room - content, content
        return Artifact(name, self._place, size, hashed.hexdigest())


def _make_folders(target: Path, names: tuple[str, ...]) -> None:
    for name in names:
        target = target / name
        with suppress(FileExistsError):
            target.mkdir(mode=0o700)


def _is_plain(path: tuple[str, ...]) -> bool:
    """Whether a person can read it, and a ledger keep it."""
    try:
        path_parts("/".join(path))
    except ValueError:
        return False
    return True


def _mode(name: str, folder: int) -> int:
    with suppress(OSError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return 0


@contextmanager
def _folder(name: str | Path, parent: int | None) -> Iterator[int]:
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:  # a command has shut it to us
        descriptor = open_up(name, parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, _WRITE, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(top: Path) -> None:
    """The names in a folder, and in all below it."""
    for folder, _, _ in os.walk(top):
        with _folder(folder, None) as descriptor:
            os.fsync(descriptor)
