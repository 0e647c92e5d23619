"""A run's files: nothing lands outside, nothing lands half, nothing old lands on something new."""

import errno
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.environment import clean_environment
from workers import workspace as module
from workers.beneath import make_folders
from workers.workspace import PathRefused, StaleWrite, Workspace, WorkspaceFault, Workspaces, WrittenSince

RUN, OTHER = "11111111-1111-8111-8111-111111111111", "22222222-2222-8222-8222-222222222222"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def files(home: Path) -> Workspace:
    return Workspaces(home).open(RUN, fence=5)


def modes(folder: Path) -> set[int]:
    return {path.lstat().st_mode & 0o7777 for path in folder.rglob("*")}


def test_a_file_is_written_and_read(files: Workspace) -> None:
    written = files.write("a/b/c.txt", b"hello")
    assert (written.bytes, written.sha256) == (5, hashlib.sha256(b"hello").hexdigest())
    assert files.read("a/b/c.txt", max_bytes=5) == b"hello"
    assert (files.path / "a" / "b" / "c.txt").read_bytes() == b"hello"


def test_a_file_is_replaced_by_a_new_one(files: Workspace) -> None:
    files.write("a.txt", b"one")
    inode = (files.path / "a.txt").stat().st_ino
    with (files.path / "a.txt").open("rb") as open_before:
        files.write("a.txt", b"two")
        assert open_before.read() == b"one"
    assert files.read("a.txt", max_bytes=9) == b"two"
    assert (files.path / "a.txt").stat().st_ino != inode


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_only_the_owner_may_read_whatever_the_umask(home: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        files = Workspaces(home).open(RUN, fence=1)
        files.write("dir/run.sh", b"#!/bin/sh\n")
    finally:
        os.umask(before)
    assert (files.path / "dir" / "run.sh").stat().st_mode & 0o7777 == 0o600
    assert files.path.stat().st_mode & 0o7777 == 0o700
    assert (home / "workspace.key").stat().st_mode & 0o7777 & 0o077 == 0
    assert all(mode & 0o077 == 0 for mode in modes(files.path.parent))


def test_two_runs_share_nothing_and_their_names_tell_nothing(home: Path) -> None:
    one, other = Workspaces(home).open(RUN, 1), Workspaces(home).open(OTHER, 1)
    one.write("a.txt", b"one")
    assert not (other.path / "a.txt").exists()
    assert one.path.parent.parent == other.path.parent.parent
    assert RUN not in str(one.path)
    assert Workspaces(home).path(RUN) == one.path


def test_another_home_names_them_otherwise(home: Path, tmp_path: Path) -> None:
    assert Workspaces(home).path(RUN).parent.name != Workspaces(tmp_path / "other").path(RUN).parent.name


def test_a_home_may_be_a_link(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    Workspaces(tmp_path / "link").open(RUN, 1).write("a.txt", b"x")
    assert (Workspaces(tmp_path / "link").path(RUN) / "a.txt").read_bytes() == b"x"


def test_processes_that_start_together_agree_on_the_key(home: Path) -> None:
    paths: set[Path] = set()
    threads = [threading.Thread(target=lambda: paths.add(Workspaces(home).open(RUN, 1).path)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 1
    assert [path.name for path in home.iterdir() if "key" in path.name] == ["workspace.key"]


def test_a_workspace_that_was_removed_is_made_again(home: Path, files: Workspace) -> None:
    files.write("a.txt", b"one")
    subprocess.run(["rm", "-rf", str(files.path)], check=True)
    again = Workspaces(home).open(RUN, 6)
    again.write("x.txt", b"two")
    assert [path.name for path in again.path.iterdir()] == ["x.txt"]


# ---- paths


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        ".",
        "..",
        "../x",
        "a/../x",
        "a/./x",
        "dir/",
        "a//b",
        "./c",
        "x" * 256,
        "é" * 128,
        "a/" * 600 + "b",
        "a\0b",
        "a\nb",
        "a\u202eb",
        "a\u200bb",
        "a\ud800b",
    ],
)
def test_a_path_that_is_not_plain_is_refused_before_anything_is_made(files: Workspace, path: str) -> None:
    with pytest.raises(PathRefused) as refused:
        files.write(path, b"pwned")
    assert refused.value.path == "params.path"
    assert str(files.path) not in str(refused.value)
    assert len(str(refused.value)) < 300
    assert list(files.path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["..\\..\\x.txt", "C:\\Windows\\x.txt", "a.txt:stream", "%2e%2e", "...", ".gitignore/config", "~"]
)
def test_a_path_that_means_something_elsewhere_is_a_name_here(files: Workspace, path: str) -> None:
    files.write(path, b"x")
    assert (files.path / path).read_bytes() == b"x"
    assert [one.name for one in files.path.parent.iterdir() if one.name == "tree"] == ["tree"]


# ---- what others have planted


def plant(files: Workspace, kind: str, name: str, target: Path) -> None:
    place = files.path / name
    if kind == "link":
        place.symlink_to(target)
    elif kind == "hard link":
        os.link(target, place)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            here = Path.cwd()
            os.chdir(files.path)
            made.bind(name)
            os.chdir(here)
    else:
        place.mkdir()


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    canary = tmp_path / "canary"
    canary.mkdir()
    path = canary / "secret.txt"
    path.write_text("secret")
    inode = path.stat().st_ino
    yield path
    assert path.read_text() == "secret"
    assert path.stat().st_ino == inode
    assert [one.name for one in canary.iterdir()] == ["secret.txt"]


@pytest.fixture(params=["in one call", "name by name"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernel's openat2, and as where there is none."""
    if request.param == "in one call":
        monkeypatch.setattr("workers.beneath._name_by_name", unexpected)
    else:
        monkeypatch.setattr("workers.beneath.kernel.syscall", not_there)


def unexpected(*_: object) -> NoReturn:
    raise AssertionError("this kernel has openat2")


def not_there(*_: object) -> NoReturn:
    raise OSError(errno.ENOSYS, "not there")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "socket", "folder"])
def test_what_is_no_regular_file_is_neither_written_nor_read(files: Workspace, secret: Path, kind: str) -> None:
    plant(files, kind, "x", secret)
    began = time.monotonic()
    with pytest.raises(PathRefused):
        files.write("x", b"pwned")
    with pytest.raises((PathRefused, WorkspaceFault)):
        files.read("x", max_bytes=100)
    assert time.monotonic() - began < 1


@pytest.mark.usefixtures("way")
def test_a_link_to_nothing_makes_nothing(files: Workspace, secret: Path) -> None:
    plant(files, "link", "dangling", secret.parent / "new.txt")
    with pytest.raises(PathRefused):
        files.write("dangling", b"pwned")


@pytest.mark.usefixtures("way")
def test_a_link_on_the_way_is_not_followed(files: Workspace, secret: Path) -> None:
    plant(files, "link", "out", secret.parent)
    for path in ("out/pwned.txt", "out/deeper/pwned.txt"):
        with pytest.raises(PathRefused):
            files.write(path, b"pwned")
    with pytest.raises(PathRefused):
        files.read("out/secret.txt", max_bytes=100)
    with pytest.raises(PathRefused):
        files.remove("out/secret.txt")


@pytest.mark.usefixtures("way")
def test_a_file_deep_down_is_written_read_and_removed(files: Workspace) -> None:
    deep = "/".join("d" * 200) + "/f"
    files.write(deep, b"x")
    files.write(deep, b"y")
    assert files.read(deep, max_bytes=1) == b"y"
    assert files.remove(deep)


@pytest.mark.usefixtures("way")
def test_a_file_on_the_way_is_no_folder(files: Workspace) -> None:
    files.write("a", b"x")
    with pytest.raises(PathRefused):
        files.write("a/b", b"x")


def test_a_file_with_two_names_is_neither_replaced_nor_read_but_taken_away(files: Workspace) -> None:
    files.write("a", b"mine")
    os.link(files.path / "a", files.path / "b")
    for name in ("a", "b"):
        with pytest.raises(PathRefused, match="hard link"):
            files.write(name, b"new")
        with pytest.raises(PathRefused, match="hard link"):
            files.read(name, max_bytes=9)
    assert files.remove("a")
    assert files.read("b", max_bytes=9) == b"mine"


def test_a_link_in_place_of_the_workspace_is_not_followed(files: Workspace, secret: Path) -> None:
    files.path.rmdir()
    files.path.symlink_to(secret.parent)
    with pytest.raises(PathRefused):
        files.write("pwned.txt", b"pwned")


@pytest.mark.usefixtures("way")
def test_a_folder_that_changes_into_a_link_and_back_leads_nowhere(files: Workspace, secret: Path) -> None:
    over = threading.Event()

    def swap() -> None:
        place = files.path / "d"
        while not over.is_set():
            with suppress(OSError):  # the writer makes the folder too, whenever it finds none
                place.mkdir(exist_ok=True)
                shutil.rmtree(place)
                place.symlink_to(secret.parent)
                place.unlink()
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place, ignore_errors=True)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in range(100):
            try:
                files.write(f"d/f{number}.txt", b"x")
            except (PathRefused, WorkspaceFault, FileNotFoundError):
                continue
    finally:
        over.set()
        swapper.join()


# ---- whole or not at all


KILLED_WRITERS = """
import os, signal, sys, time
from pathlib import Path
from workers.workspace import Workspaces

for fence in range(6, 26):
    files = Workspaces(Path(sys.argv[1])).open(sys.argv[2], fence)
    writer = os.fork()
    if not writer:
        while True:
            files.write("big.txt", b"y" * 5_000_000)
    time.sleep(0.004 * (fence - 5))
    print((files.path / "big.txt").stat().st_size)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    print((files.path / "big.txt").stat().st_size)
"""


def test_a_write_that_is_killed_leaves_the_old_state_or_the_new(home: Path, files: Workspace) -> None:
    files.write("big.txt", b"old")
    argv = [sys.executable, "-c", KILLED_WRITERS, str(home), RUN]
    done = subprocess.run(argv, env=clean_environment(), capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"3", "5000000"}
    Workspaces(home).open(RUN, 30).write("big.txt", b"z")
    assert [path.name for path in files.path.iterdir()] == ["big.txt"]


def test_a_write_whose_folder_a_command_takes_away_may_be_tried_again(
    files: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_and_taken_away(root: int, names: list[str]) -> None:
        make_folders(root, names)
        os.rmdir(names[0], dir_fd=root)

    monkeypatch.setattr(module, "make_folders", made_and_taken_away)
    with pytest.raises(WorkspaceFault, match="taken away meanwhile"):
        files.write("d/a.txt", b"x")
    assert list((files.path.parent / "incoming").iterdir()) == []


def test_a_write_that_fails_leaves_nothing(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space", "/secret/path")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceFault) as fault:
        files.write("a.txt", b"x")
    assert "/secret/path" not in str(fault.value)
    assert list(files.path.iterdir()) == []
    assert list((files.path.parent / "incoming").iterdir()) == []


def test_a_file_is_on_disk_before_it_has_its_name_and_its_name_before_it_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        done.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def renamed(source: str, target: str, **where: int) -> None:
        rename(source, target, **where)
        done.append("renamed")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    for fence in (1, 2):  # a folder that is there already may be one whose maker died before it was on disk
        done.clear()
        files = Workspaces(home).open(RUN, fence)
        files.write("a/b/c", b"x")
        tree, folder = str(files.path), str(files.path.parent)
        before, after = done[: done.index("renamed")], done[done.index("renamed") + 1 :]
        assert {str(home), str(Path(folder).parent), folder, tree, f"{tree}/a"} <= set(before)
        assert any(path.startswith(f"{folder}/incoming/") for path in before)
        assert any(path.startswith(f"{folder}/fences/") for path in before)
        assert f"{folder}/fences" in before or fence == 2
        assert after == [f"{tree}/a/b"]


# ---- fences


def test_an_older_holder_does_not_overwrite_a_newer_one(home: Path) -> None:
    new, old = Workspaces(home).open(RUN, 9), Workspaces(home).open(RUN, 8)
    new.write("a.txt", b"new")
    with pytest.raises(StaleWrite):
        old.write("a.txt", b"old")
    assert new.read("a.txt", max_bytes=9) == b"new"
    old.write("b.txt", b"another path")
    Workspaces(home).open(RUN, 9).write("a.txt", b"the same holder again")


def test_a_fence_of_zeros_is_none(home: Path) -> None:
    """What some file systems leave where the power failed before the number was on disk."""
    files = Workspaces(home).open(RUN, 9)
    files.write("a.txt", b"x")
    (fence,) = (files.path.parent / "fences").iterdir()
    fence.write_bytes(bytes(20))
    Workspaces(home).open(RUN, 8).write("a.txt", b"y")
    with pytest.raises(WrittenSince, match="fence 8"):
        Workspaces(home).open(RUN, 9, wrote=7).remove("a.txt")


def test_an_older_holder_leaves_no_folder_and_no_content_behind(home: Path) -> None:
    new, old = Workspaces(home).open(RUN, 9), Workspaces(home).open(RUN, 8)
    new.write("a/b/c", b"new")
    assert new.remove("a/b/c")
    shutil.rmtree(new.path / "a")
    with pytest.raises(StaleWrite):
        old.write("a/b/c", b"old")
    assert list(new.path.iterdir()) == list((new.path.parent / "incoming").iterdir()) == []


def test_a_refused_write_raises_no_fence(home: Path, tmp_path: Path) -> None:
    old, new = Workspaces(home).open(RUN, 8), Workspaces(home).open(RUN, 9)
    (new.path / "a").symlink_to(tmp_path)
    with pytest.raises(PathRefused):
        new.write("a", b"new")
    (new.path / "a").unlink()
    old.write("a", b"old")
    assert old.read("a", max_bytes=9) == b"old"


FROZEN_WRITER = """
import os, signal, sys
from pathlib import Path
from workers import workspace

def frozen_before(call):
    def frozen(*given, **where):
        os.kill(os.getpid(), signal.SIGSTOP)
        return call(*given, **where)
    return frozen

module = workspace if sys.argv[3] == "_lock" else os
setattr(module, sys.argv[3], frozen_before(getattr(module, sys.argv[3])))
try:
    workspace.Workspaces(Path(sys.argv[1])).open(sys.argv[2], 5).write("a.txt", b"old")
except Exception as error:
    print(type(error).__name__)
"""


@contextmanager
def frozen_writer(home: Path, before: str) -> Iterator[subprocess.Popen[str]]:
    """A process with fence 5, stopped before that call of its write."""
    argv = [sys.executable, "-c", FROZEN_WRITER, str(home), RUN, before]
    with subprocess.Popen(argv, env=clean_environment(), stdout=subprocess.PIPE, text=True) as zombie:
        try:
            os.waitid(os.P_PID, zombie.pid, os.WSTOPPED | os.WNOWAIT)
            yield zombie
        finally:
            zombie.kill()


def test_a_writer_that_was_frozen_for_long_overwrites_nothing(home: Path) -> None:
    newer = Workspaces(home).open(RUN, 9)
    with frozen_writer(home, "_lock") as zombie:
        newer.write("a.txt", b"new")
        zombie.send_signal(signal.SIGCONT)
        said, _ = zombie.communicate(timeout=60)
    assert said.split() == ["StaleWrite"]
    assert newer.read("a.txt", max_bytes=9) == b"new"


def test_a_writer_that_is_frozen_within_the_lock_keeps_others_out_until_it_is_killed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Workspaces(home).open(RUN, 9)
    with frozen_writer(home, "rename"):
        monkeypatch.setattr(module, "LOCK_WAIT_S", 0.1)
        with pytest.raises(WorkspaceFault, match="lock"):
            newer.write("a.txt", b"new")
    newer.write("a.txt", b"new")
    assert newer.read("a.txt", max_bytes=9) == b"new"


def test_what_is_remembered_of_writers_lies_out_of_reach(files: Workspace) -> None:
    files.write("a.txt", b"x")
    assert [path.name for path in files.path.iterdir()] == ["a.txt"]


def test_a_lock_that_is_held_is_waited_for_and_then_given_up(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("a.txt", b"x")
    lock = files.path.parent / "lock"
    monkeypatch.setattr(module, "LOCK_WAIT_S", 0.1)
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(WorkspaceFault):
            files.write("a.txt", b"y")
    files.write("a.txt", b"z")


# ---- reading


def test_reading_is_bounded(files: Workspace) -> None:
    files.write("a.txt", b"12345")
    with pytest.raises(WorkspaceFault):
        files.read("a.txt", max_bytes=4)


def test_a_file_that_is_not_there_is_told_without_the_host_s_paths(files: Workspace) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        files.read("no/such.txt", max_bytes=4)
    assert str(files.path) not in str(missing.value)


# ---- taken away


def test_a_file_is_removed_and_an_older_attempt_cannot_write_it_again(home: Path) -> None:
    Workspaces(home).open(RUN, fence=5).write("a/b.txt", b"x")
    undo = Workspaces(home).open(RUN, fence=9, wrote=5)
    assert undo.remove("a/b.txt")
    assert not undo.remove("a/b.txt")
    with pytest.raises(StaleWrite):
        Workspaces(home).open(RUN, fence=5).write("a/b.txt", b"late")
    with pytest.raises(FileNotFoundError):
        undo.read("a/b.txt", max_bytes=9)


def test_a_file_that_was_never_written_is_kept_from_being_written_late(home: Path) -> None:
    assert not Workspaces(home).open(RUN, fence=9, wrote=5).remove("a/b.txt")
    with pytest.raises(StaleWrite):
        Workspaces(home).open(RUN, fence=5).write("a/b.txt", b"late")


def test_a_file_that_a_later_step_wrote_is_left(home: Path) -> None:
    Workspaces(home).open(RUN, fence=5).write("a.txt", b"x")
    later = Workspaces(home).open(RUN, fence=7)
    later.write("a.txt", b"y")
    with pytest.raises(WrittenSince, match="fence 7 has written this file after fence 5"):
        Workspaces(home).open(RUN, fence=9, wrote=5).remove("a.txt")
    assert later.read("a.txt", max_bytes=9) == b"y"


def test_what_is_no_regular_file_is_not_removed(files: Workspace, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("kept")
    (files.path / "link").symlink_to(tmp_path / "outside")
    (files.path / "folder").mkdir()
    for name in ("link", "folder", "../outside"):
        with pytest.raises(PathRefused):
            files.remove(name)
    assert (tmp_path / "outside").read_text() == "kept"
