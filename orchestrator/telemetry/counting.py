"""The files in which the processes of one worker count, and what they come to together.

prometheus-client's multiprocess mode gives each process files of its own, which live on when it is killed. Left alone
they would pile up with every recycled child, and deleting one would make a counter fall. So:

- A process holds a lock on `<name>.lock` from before its first file until it ends, however it ends; the system lets go
  of it. Whoever has that lock knows that nobody counts in the files of that name, and keeps it until they are deleted:
  a process that was about to take it finds its file gone, and takes another name. Names are drawn, so that a process
  id that is given out again is another name.
- `fold` adds the files of the dead to `archive.json` and deletes them. The new archive takes the old one's place in one
  move, and says whose files are in it: should the folder die before it has deleted them, they are not added again.
- `fold` and `read` exclude each other by a lock of their own, so a sum has each file in the archive or beside it.
- A file that cannot be read is left out, and set aside once its writer is dead.
"""

import fcntl
import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from prometheus_client import values
from prometheus_client.core import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from orchestrator.home import make_private
from orchestrator.telemetry.reserved import Reserved
from orchestrator.telemetry.writer import Writer

ARCHIVE: Final = "archive.json"
FOLD_LOCK: Final = "fold.lock"
FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
UNREADABLE: Final = ".unreadable"
KEPT_ASIDE: Final = 10
FORGOTTEN_S: Final = 7 * 86_400.0
_BROKEN: Final = (OSError, RuntimeError, ValueError, TypeError, KeyError, struct.error)

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """One metric, summed over processes. samples: (name, labels) -> value, each bucket of a histogram for itself."""

    kind: str
    name: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def add(self, sample: str, labels: Labels, value: float) -> None:
        """Of one more process."""
        key = (sample, labels)
        self.samples[key] = self.samples.get(key, 0.0) + value


Families = dict[tuple[str, str], Family]


@dataclass
class Counted:
    """All that was counted. live: files of processes that may still count; unreadable: files that were left out."""

    families: Families
    gauges: list[Metric] = field(default_factory=list)
    live: int = 0
    unreadable: int = 0


# ---- a process that counts


def enter(folder: Path) -> "Files":
    """From here on this process and its future children count in that folder; what the dead left there is kept."""
    os.environ[FOLDER_VARIABLE] = str(folder)
    writer = Writer(folder)
    _begin(folder, writer)
    values.MmapedDict = partial(Reserved, failed=writer.failed)  # type: ignore[assignment,attr-defined]  # values are made with it
    values.ValueClass = values.MultiProcessValue(writer)  # type: ignore[no-untyped-call]
    return Files(folder)


def _begin(folder: Path, writer: Writer) -> None:
    """The writer has its lock, and so nobody deletes the folder any more; somebody may until then."""
    while True:
        with suppress(FileNotFoundError):
            make_private(folder)
            with alone(folder):
                writer()
                return


# ---- all of them together


class Files:
    """The folder, as the one reads it who shows what was counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> Counted:
        """The sums as of now."""
        with alone(self.folder):
            archive = _Archive.load(self.folder)
            found = Counted(archive.families)
            files = [file for file in self._files() if _writer_of(file) not in archive.folded]
            gauges = [file for file in files if file.name.startswith("gauge_")]
            for file in files:
                found.live += 1
                if file not in gauges:
                    found.unreadable += not _add_file(found.families, file)
            found.gauges = _gauges(gauges, found)
            found.unreadable += len(list(self.folder.glob(f"*{UNREADABLE}")))
            return found

    def fold(self) -> int:
        """Put what the dead have counted into the archive; answers how many there were."""
        with alone(self.folder), ExitStack() as held:
            archive = _Archive.load(self.folder)
            self._delete(archive.folded)
            dead = {name for name in self._names() if self._is_dead(name, held)}
            if not dead:
                return 0
            for file in self._files():
                if _writer_of(file) in dead:
                    self._take(archive, file)
            archive.folded = sorted(dead)
            archive.save(self.folder)
            self._delete(dead)
            return len(dead)

    def _take(self, archive: "_Archive", file: Path) -> None:
        if file.name.startswith("gauge_"):
            return  # the present state of a process that has none
        if not _add_file(archive.families, file):
            self._set_aside(file)

    def _set_aside(self, file: Path) -> None:
        file.rename(file.with_name(file.name + UNREADABLE))
        aside = sorted(self.folder.glob(f"*{UNREADABLE}"), key=lambda path: path.stat().st_mtime)
        for path in aside[:-KEPT_ASIDE]:
            path.unlink()

    def _delete(self, names: Iterable[str]) -> None:
        """The lock last: without it a name's files would be told dead or alive by its process id."""
        names = frozenset(names)
        for path in (*self._files(), *self.folder.glob("*.lock")):
            if _writer_of(path) in names:
                path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.db"))

    def _names(self) -> set[str]:
        locks = (path for path in self.folder.glob("*.lock") if path.name != FOLD_LOCK)
        return {_writer_of(path) for path in (*self._files(), *locks)}

    def _is_dead(self, name: str, held: ExitStack) -> bool:
        """Whether the process of that name has ended; if so its lock is ours from here on."""
        lock = self.folder / f"{name}.lock"
        return take(lock, held) if lock.exists() else not _runs(name)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else folds, reads, enters or deletes inside."""
    descriptor = os.open(folder / FOLD_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def take(lock: Path, held: ExitStack) -> bool:
    """Take a lock if nobody has it, until `held` is left."""
    descriptor = os.open(lock, os.O_RDWR)
    held.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _writer_of(path: Path) -> str:
    """`counter_12-ab.db` and `12-ab.lock` were both made by `12-ab`."""
    return path.stem.rpartition("_")[2]


def _runs(name: str) -> bool:
    """Whether there is a process of that number; a name that begins with none is nobody's."""
    number = name.partition("-")[0]
    if not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def forget_old(home: Path, *, now: float | None = None) -> None:
    """Delete the folders of workers that have not been there for a week: other hosts' names, of containers say.

    One that cannot be deleted stays: another worker is at it too, or it is another user's.
    """
    now = time.time() if now is None else now
    for folder in list(home.iterdir()) if home.is_dir() else ():
        with suppress(OSError):
            if folder.is_dir() and now - folder.stat().st_mtime > FORGOTTEN_S:
                _forget(folder)


def _forget(folder: Path) -> None:
    with alone(folder), ExitStack() as held:
        if all(take(lock, held) for lock in folder.glob("*.lock") if lock.name != FOLD_LOCK):
            shutil.rmtree(folder, ignore_errors=True)


# ---- one file


def _add_file(families: Families, file: Path) -> bool:
    """Add what one process has counted, all or nothing. False: it cannot be read."""
    kind = file.name.partition("_")[0]
    try:
        _check_head(file)
        stored = MmapedDict.read_all_values_from_file(str(file))  # type: ignore[no-untyped-call]
        read = [_entry(key, value) for key, value, _, _ in stored]
    except _BROKEN:
        return False
    for name, sample, labels, text, value in read:
        families.setdefault((kind, name), Family(kind, name, text)).add(sample, labels, value)
    return True


def _check_head(file: Path) -> None:
    """The library takes a length below zero for none at all."""
    with file.open("rb") as opened:
        used = struct.unpack("i", opened.read(4))[0]
    if not 0 <= used <= file.stat().st_size:
        raise ValueError(f"{file.name} cannot hold {used} bytes")


def _entry(key: str, value: float) -> tuple[str, str, Labels, str, float]:
    name, sample, labels, text = json.loads(key)
    return str(name), str(sample), _labels(labels), str(text), float(value)


def _labels(given: Any) -> Labels:
    return tuple(sorted((str(name), str(value)) for name, value in given.items()))


def _gauges(files: list[Path], found: Counted) -> list[Metric]:
    """Only actions of users' own have such; prometheus-client knows how each is to be put together."""
    gauges: list[Metric] = []
    try:
        gauges.extend(MultiProcessCollector.merge([str(file) for file in files]))  # type: ignore[no-untyped-call]
    except _BROKEN:
        found.unreadable += 1
    return gauges


# ---- the archive


@dataclass
class _Archive:
    """What dead processes have counted. folded: those whose files may still be there."""

    families: Families = field(default_factory=dict)
    folded: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, folder: Path) -> "_Archive":
        path = folder / ARCHIVE
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls()
        try:
            return cls._parsed(json.loads(text))
        except (*_BROKEN, AttributeError):
            path.rename(path.with_name(ARCHIVE + UNREADABLE))
            return cls()

    @classmethod
    def _parsed(cls, stored: Any) -> "_Archive":
        made = cls(folded=[str(name) for name in stored["folded"]])
        for kind, name, text, samples in stored["families"]:
            family = made.families.setdefault((kind, name), Family(kind, name, text))
            for sample, labels, value in samples:
                family.add(sample, _labels(labels), float(value))
        return made

    def save(self, folder: Path) -> None:
        """All of it, or what was there before."""
        families = [
            (
                one.kind,
                one.name,
                one.help,
                [(name, dict(labels), value) for (name, labels), value in one.samples.items()],
            )
            for one in self.families.values()
        ]
        draft = folder / f"{ARCHIVE}.new"
        draft.write_text(json.dumps({"folded": self.folded, "families": families}), encoding="utf-8")
        draft.replace(folder / ARCHIVE)


# ---- as Prometheus reads it


def shown(families: Iterable[Family]) -> Iterator[Metric]:
    """The families as prometheus-client prints them."""
    for family in families:
        metric = Metric(family.name, family.help, family.kind)
        add: Callable[[Metric, Family], None] = _add_histogram if family.kind == "histogram" else _add_plain
        add(metric, family)
        yield metric


def _add_plain(metric: Metric, family: Family) -> None:
    for (sample, labels), value in family.samples.items():
        metric.add_sample(sample, dict(labels), value)


def _add_histogram(metric: Metric, family: Family) -> None:
    """Each bucket holds those below it too; the count is the last one's."""
    buckets: dict[Labels, list[tuple[float, str, float]]] = {}
    for (sample, labels), value in family.samples.items():
        given = dict(labels)
        edge = given.pop("le", None)
        if edge is None:
            metric.add_sample(sample, given, value)
        else:
            buckets.setdefault(_labels(given), []).append((float(edge), edge, value))
    for labels, counts in buckets.items():
        total = 0.0
        for _, edge, value in sorted(counts):
            total += value
            metric.add_sample(f"{family.name}_bucket", {**dict(labels), "le": edge}, total)
        metric.add_sample(f"{family.name}_count", dict(labels), total)
