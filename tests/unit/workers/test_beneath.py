"""Opening beneath a folder: the kernel's way and ours agree, and nothing leads out."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.environment import clean_environment
from workers.beneath import FOLDER, _in_one_call, _name_by_name, make_folders, open_beneath

READ = os.O_RDONLY | os.O_NONBLOCK
WAYS = [_in_one_call, _name_by_name]
Way = Callable[[int, tuple[str, ...], int], int]
LINK = {errno.ELOOP, errno.ENOTDIR}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    """A folder with a bit of everything."""
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "f").write_text("f")
    (tmp_path / "secret").write_text("secret")
    (tree / "out").symlink_to(tmp_path)
    (tree / "in").symlink_to("a")
    (tree / "a" / "self").symlink_to("f")
    (tree / "proc").symlink_to("/proc/self/root")
    descriptor = os.open(tree, FOLDER)
    yield descriptor
    os.close(descriptor)


def tried(way: Way, root: int, path: str, flags: int = READ) -> int:
    """0 where it was opened, else the error."""
    try:
        os.close(way(root, tuple(path.split("/")) if path else (), flags))
    except OSError as error:
        return error.errno or -1
    return 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("path", "errors"),
    [
        ("", {0}),
        ("a", {0}),
        ("a/b/f", {0}),
        ("a/x", {errno.ENOENT}),
        ("a/b/f/x", {errno.ENOTDIR}),
        ("out", LINK),
        ("out/secret", LINK),
        ("in/b/f", LINK),
        ("a/self", LINK),
        ("proc/etc", LINK),
        ("a/" + "x" * 256, {errno.ENAMETOOLONG}),
    ],
)
def test_both_ways_open_the_same_and_follow_no_link(root: int, way: Way, path: str, errors: set[int]) -> None:
    assert tried(way, root, path) in errors


@pytest.mark.parametrize("path", ["..", "a/../../secret", "/etc/passwd"])
def test_the_kernel_itself_lets_nothing_out(root: int, path: str) -> None:
    """Such names are refused before; this is the second line."""
    assert tried(_in_one_call, root, path) == errno.EXDEV


@pytest.mark.parametrize("way", WAYS)
def test_another_file_system_is_not_entered(way: Way) -> None:
    root = os.open("/", FOLDER)
    try:
        assert tried(way, root, "proc", FOLDER) == errno.EXDEV
        assert tried(way, root, "proc/self/status") in {errno.EXDEV, *LINK}
    finally:
        os.close(root)


@pytest.mark.parametrize("way", WAYS)
def test_no_descriptor_is_left_and_none_is_inherited(root: int, way: Way) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    for path in ("a/b/f", "out/secret", "a/x/y"):
        tried(way, root, path)
    assert set(Path("/proc/self/fd").iterdir()) == before
    found = way(root, ("a", "b"), FOLDER)
    assert not os.get_inheritable(found)
    os.close(found)


def test_folders_are_made_private_whatever_the_umask(root: int, tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        make_folders(root, ("a", "n", "m"))
    finally:
        os.umask(before)
    assert [(tmp_path / "tree" / "a" / path).stat().st_mode & 0o7777 for path in ("n", "n/m")] == [0o700, 0o700]


@pytest.mark.parametrize("path", ["out/new", "in/new", "a/b/f/new", "out"])
def test_folders_are_made_through_nothing_but_folders(root: int, tmp_path: Path, path: str) -> None:
    with pytest.raises(OSError, match=r"link|directory|syscall"):
        make_folders(root, tuple(path.split("/")))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["secret", "tree"]
    assert not (tmp_path / "tree" / "a" / "new").exists()


# a filter of four instructions that lets the kernel itself answer: there is no call 437
WITHOUT_OPENAT2 = """
import ctypes, os, struct, sys
from workers import beneath
from workers.sandbox.inside import kernel

answer = int(sys.argv[2])
code = b"".join(struct.pack("=HBBI", *one) for one in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x00050000 | answer), (0x06, 0, 0, 0x7FFF0000)))
filled = ctypes.create_string_buffer(code, len(code))
program = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(filled)))
kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)
kernel.call("prctl", 22, 2, ctypes.addressof(program), 0, 0)
root = os.open(sys.argv[1], beneath.FOLDER)
try:
    beneath._in_one_call(root, ("a",), beneath.FOLDER)
except OSError as missing:
    print(missing.errno)
print(os.read(beneath.open_beneath(root, ("a", "b", "f"), os.O_RDONLY), 9).decode())
for path in ("out/secret", "in/b/f"):
    try:
        beneath.open_beneath(root, path.split("/"), os.O_RDONLY)
    except OSError as refused:
        print(refused.errno)
"""


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("answer", [errno.ENOSYS, errno.EPERM])
def test_where_the_kernel_has_no_such_call_it_is_done_name_by_name(tmp_path: Path, answer: int) -> None:
    argv = [sys.executable, "-c", WITHOUT_OPENAT2, str(tmp_path / "tree"), str(answer)]
    done = subprocess.run(argv, env=clean_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(answer), "f", str(errno.ENOTDIR), str(errno.ENOTDIR)]


def test_any_other_refusal_stands(root: int) -> None:
    assert tried(open_beneath, root, "in/b/f") == errno.ELOOP
