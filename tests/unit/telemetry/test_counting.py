"""The files of counters: whatever dies, nothing is lost, nothing is counted twice, and nothing piles up."""

import errno
import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, values
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from orchestrator.telemetry import counting
from orchestrator.telemetry.reserved import FIRST_SIZE
from orchestrator.telemetry.writer import Writer
from tests.support.counters import CHILDREN, ROUNDS

NAME = "1-abc"


def write(folder: Path, writer: str = NAME, value: float = 1.0, kind: str = "counter") -> Path:
    """The file of a process that is gone; a name without a lock, and of no process that runs."""
    path = folder / f"{kind}_{writer}.db"
    stored = MmapedDict(str(path))  # type: ignore[no-untyped-call]
    stored.write_value(mmap_key("t", "t_total", ["x"], ["a"], "help"), value, 0.0)  # type: ignore[no-untyped-call]
    stored.close()  # type: ignore[no-untyped-call]
    return path


def dead(number: int) -> str:
    """A name that no living process has: beyond the largest process id."""
    return f"{2**22 + 1 + number}-x"


def count(files: counting.Files) -> float:
    found = files.read().families
    return sum(value for family in found.values() for value in family.samples.values())


def test_children_are_killed_at_any_moment_and_no_count_is_lost_or_falls(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.counters", str(tmp_path)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["fell"] == 0
    # killed between its count and telling of it, a child has counted one more
    assert found["told"] <= found["counted"] <= found["told"] + ROUNDS * CHILDREN
    assert found["told"] > 100
    assert found["files"] <= 2 * (CHILDREN + 1) + 3


@pytest.fixture
def counting_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process counts in a folder, until the end of the test."""
    monkeypatch.setenv(counting.FOLDER_VARIABLE, "")
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setattr(values, "MmapedDict", MmapedDict)
    counting.enter(tmp_path)
    return tmp_path


def test_a_name_that_was_taken_for_a_leftover_is_not_counted_under(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody folds between the making of its lock and the taking: what it counts would be deleted as folded."""
    files, flock = counting.Files(tmp_path), fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        assert files.fold() == 1
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    write(tmp_path, Writer(tmp_path)())
    assert files.fold() == 0
    assert count(files) == 1


def test_a_file_has_its_place_on_the_disk_before_it_is_written_to(counting_process: Path) -> None:
    """A mapped page for which there is no room kills its process."""
    counter = Counter("t_total", "t", ["x"], registry=CollectorRegistry())
    sizes = set()
    for number in range(2000):
        counter.labels(f"{number:04}").inc()
        (file,) = counting_process.glob("*.db")
        found = file.stat()
        assert found.st_blocks * 512 >= found.st_size
        sizes.add(found.st_size)
    assert sizes == {FIRST_SIZE, 2 * FIRST_SIZE}
    assert count(counting.Files(counting_process)) == 2000


def test_a_full_disk_fails_the_count_and_leaves_nothing(
    counting_process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter("t_total", "t", ["x"], registry=CollectorRegistry())
    with monkeypatch.context() as full:

        def no_room(*_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(os, "posix_fallocate", no_room)
        with pytest.raises(OSError, match="No space left"):
            counter.labels("a").inc()
    assert list(counting_process.glob("*.db")) == []
    counter.labels("a").inc()
    assert count(counting.Files(counting_process)) == 1


@pytest.mark.parametrize("room", [0, 1])
def test_a_child_that_met_a_full_disk_counts_once_there_is_room(
    counting_process: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Its first count makes the files of all that its parent counts; there is room for none, or for one."""
    registry = CollectorRegistry()
    counter = Counter("t_total", "t", ["x"], registry=registry).labels("a")
    taken = Histogram("t_seconds", "t", registry=registry)
    child = os.fork()
    if not child:
        os._exit(counts_when_there_is_room(counter, taken, room))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = counting.Files(counting_process).read().families
    assert found["counter", "t"].samples["t_total", (("x", "a"),)] == 1
    assert found["histogram", "t_seconds"].samples["t_seconds_sum", ()] == 2


def counts_when_there_is_room(counter: Any, taken: Any, room: int) -> int:
    left, allocate = [room], os.posix_fallocate

    def full(*given: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(*given)

    os.posix_fallocate = full
    for _ in range(2):
        left[0] = room
        try:
            counter.inc()
        except OSError:
            continue
        return 1
    os.posix_fallocate = allocate
    counter.inc()
    taken.observe(2)
    return 0


def test_a_child_that_finds_no_folder_closes_what_it_inherited_once(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer()
    inherited = writer._lock
    writer.begin_anew()  # as in a child
    shutil.rmtree(tmp_path)
    with pytest.raises(FileNotFoundError):
        writer()
    strangers = os.open(os.devnull, os.O_RDONLY)
    assert strangers == inherited
    with pytest.raises(FileNotFoundError):
        writer()
    os.close(strangers)  # it is still there


def test_the_dead_are_folded_once(tmp_path: Path) -> None:
    files = counting.Files(tmp_path)
    for number in range(3):
        write(tmp_path, dead(number), 2.0)
    assert count(files) == 6
    assert files.fold() == 3
    assert files.fold() == 0
    assert count(files) == 6
    assert [path.name for path in tmp_path.glob("*.db")] == []


def test_a_folder_that_dies_before_it_deletes_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = counting.Files(tmp_path)
    write(tmp_path, dead(1), 5.0)
    with monkeypatch.context() as crash:
        crash.setattr(files, "_delete", lambda names: None)
        files.fold()
    assert list(tmp_path.glob("*.db"))
    assert count(files) == 5
    write(tmp_path, dead(2), 1.0)
    assert files.fold() == 1
    assert count(files) == 6
    assert not list(tmp_path.glob("*.db"))


def test_a_living_writer_is_left_alone_and_told_by_its_lock(tmp_path: Path) -> None:
    files = counting.Files(tmp_path)
    write(tmp_path, dead(1), 5.0)
    lock = os.open(tmp_path / f"{dead(1)}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert files.fold() == 0
    os.close(lock)
    assert files.fold() == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive.json", "fold.lock"]


@pytest.mark.parametrize("content", [b"", b"\0", os.urandom(3000), b"\x7f" * 70_000, b"\x10\x27\0\0"], ids=range(5))
def test_a_file_that_is_none_is_left_out_counted_and_set_aside(tmp_path: Path, content: bytes) -> None:
    files = counting.Files(tmp_path)
    write(tmp_path, dead(1), 5.0)
    (tmp_path / f"counter_{dead(2)}.db").write_bytes(content)
    (tmp_path / "histogram_garbage.db").write_bytes(content)
    read = files.read()
    assert (count(files), read.unreadable, read.live) == (5, 2, 3)
    files.fold()
    assert (count(files), files.read().unreadable, files.read().live) == (5, 2, 0)


def test_files_set_aside_are_bounded(tmp_path: Path) -> None:
    files = counting.Files(tmp_path)
    for number in range(30):
        (tmp_path / f"counter_{dead(number)}.db").write_bytes(b"garbage!" * 10)
        files.fold()
    assert len(list(tmp_path.iterdir())) <= counting.KEPT_ASIDE + 2


def test_no_cut_of_a_file_breaks_the_sum(tmp_path: Path) -> None:
    files = counting.Files(tmp_path)
    whole = write(tmp_path, dead(1), 5.0).read_bytes()
    for _ in range(50):
        torn = bytearray(whole[: random.randrange(200)])
        for _ in range(random.randrange(4)):
            if torn:
                torn[random.randrange(len(torn))] = random.randrange(256)
        (tmp_path / f"counter_{dead(2)}.db").write_bytes(torn)
        files.read()


def test_an_archive_that_is_none_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / counting.ARCHIVE).write_text('{"folded": ')
    write(tmp_path, dead(1), 5.0)
    files = counting.Files(tmp_path)
    assert count(files) == 5
    assert files.fold() == 1
    assert count(files) == 5


def test_a_histogram_is_added_up_once(tmp_path: Path) -> None:
    for number in range(2):
        stored = MmapedDict(str(tmp_path / f"histogram_{dead(number)}.db"))  # type: ignore[no-untyped-call]
        for edge in ("1.0", "5.0", "+Inf"):
            stored.write_value(mmap_key("h", "h_bucket", ["le"], [edge], "help"), 1.0, 0.0)  # type: ignore[no-untyped-call]
        stored.write_value(mmap_key("h", "h_sum", [], [], "help"), 7.5, 0.0)  # type: ignore[no-untyped-call]
        stored.close()  # type: ignore[no-untyped-call]
    files = counting.Files(tmp_path)
    before = shown(files)
    files.fold()
    assert shown(files) == before
    assert before['h_bucket{le="5.0"}'] == 4
    assert (before["h_count"], before["h_sum"], before['h_bucket{le="+Inf"}']) == (6, 15, 6)


def shown(files: counting.Files) -> dict[str, float]:
    class Shown:
        def collect(self) -> object:
            return counting.shown(files.read().families.values())

    registry = CollectorRegistry()
    registry.register(Shown())  # type: ignore[arg-type]
    lines = generate_latest(registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_folders_of_workers_that_never_come_back_are_forgotten(tmp_path: Path) -> None:
    for name in ("gone", "lives", "new"):
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    lock = os.open(tmp_path / "lives" / f"{NAME}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for name in ("gone", "lives"):
        os.utime(tmp_path / name, (0, 0))
    counting.forget_old(tmp_path)
    os.close(lock)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lives", "new"]


def test_a_folder_that_another_worker_forgets_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write(tmp_path / name)
        os.utime(tmp_path / name, (0, 0))
    alone = counting.alone

    def too_late(folder: Path) -> AbstractContextManager[None]:
        shutil.rmtree(folder)
        return alone(folder)

    monkeypatch.setattr(counting, "alone", too_late)
    counting.forget_old(tmp_path)
    assert list(tmp_path.iterdir()) == []
