"""Whose a workspace is, and the lock between those who use it and who lets it go.

    {folder}/run.json     names the run; locked, shared, by who comes in, and alone by who lets go

Who lets go renames the folder while the lock is held, so that nobody comes in after the ledger was told, and nobody
who came in finds it gone. Who comes in and finds another folder under the name than the one that was locked, or none,
begins again with a new one.
"""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

NAMEPLATE: Final = "run.json"
_PLATE: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_POLL_S: Final = 0.01


def write_once(path: Path, content: bytes) -> None:
    """A file, 0600, whole or not at all; who comes second finds the first one's."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def run_of(folder: Path) -> str | None:
    """The run whose workspace this is; None where nobody has said so."""
    try:
        return str(json.loads((folder / NAMEPLATE).read_bytes())["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def come_in(folder: Path, run_id: str, within_s: float) -> bool:
    """Say whose the folder is, and that it is in use now. False: it was let go meanwhile, or its lock is held for too
    long."""
    if not (folder / NAMEPLATE).exists():
        write_once(folder / NAMEPLATE, json.dumps({"run_id": run_id}).encode())
    plate = os.open(folder / NAMEPLATE, _PLATE)
    try:
        if not _locked(plate, fcntl.LOCK_SH, within_s) or not _is_at(plate, folder):
            return False
        os.utime(plate)
        return True
    finally:
        os.close(plate)


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether nobody is coming in; nobody does then before the block ends."""
    plate = os.open(folder / NAMEPLATE, _PLATE)
    try:
        yield _locked(plate, fcntl.LOCK_EX, 0.0) and _is_at(plate, folder)
    finally:
        os.close(plate)


def used_at(folder: Path) -> float:
    """When somebody came in last; of a folder that is nobody's, when it was made. FileNotFoundError: it is gone."""
    with suppress(FileNotFoundError):
        return (folder / NAMEPLATE).stat().st_mtime
    return folder.stat().st_mtime


def _locked(plate: int, how: int, within_s: float) -> bool:
    give_up = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(plate, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _is_at(plate: int, folder: Path) -> bool:
    """Whether the folder is still there under its name, and not another."""
    try:
        return os.path.samestat(os.fstat(plate), (folder / NAMEPLATE).stat())
    except FileNotFoundError:
        return False
