"""Handing a workspace over while commands of its run are at work in it."""

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from workers.removal import remove_tree
from workers.sandbox import ownership
from workers.sandbox.ownership import hand_to

NOBODY = 65_534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def owners(top: Path) -> dict[str, int]:
    return {path.relative_to(top).as_posix(): path.lstat().st_uid for path in top.rglob("*")}


@as_root
def test_all_of_it_is_given_but_what_links_lead_to_and_files_of_two_names(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").write_text("x")
    outside.mkdir()
    (outside / "file").write_text("x")
    (tree / "link").symlink_to(outside)
    os.link(outside / "file", tree / "shared")
    hand_to(tree, NOBODY, NOBODY)
    assert owners(tree) == {"a": NOBODY, "a/b": NOBODY, "a/b/file": NOBODY, "link": NOBODY, "shared": 0}
    assert {tree.stat().st_uid, outside.stat().st_uid, (outside / "file").stat().st_uid} == {NOBODY, 0}


def become_pipe(folder: Path, _: Path) -> None:
    folder.rmdir()
    os.mkfifo(folder)


def become_link(folder: Path, outside: Path) -> None:
    folder.rmdir()
    folder.symlink_to(outside)


@as_root
@pytest.mark.timeout(20)
@pytest.mark.parametrize("swap", [become_pipe, become_link])
def test_a_folder_that_is_swapped_meanwhile_is_neither_followed_nor_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: Callable[[Path, Path], None]
) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "d").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").write_text("x")
    chown, opened = os.chown, list[str]()

    def given(path: str, uid: int, gid: int, **where: bool | int) -> None:
        chown(path, uid, gid, **where)  # type: ignore[arg-type]
        if path == "d":
            swap(tree / "d", outside)

    def scanned(descriptor: int) -> "os._ScandirIterator[str]":
        opened.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        return scandir(descriptor)

    scandir = os.scandir
    monkeypatch.setattr(os, "chown", given)
    monkeypatch.setattr(os, "scandir", scanned)
    hand_to(tree, NOBODY, NOBODY)
    assert (opened, (outside / "file").stat().st_uid) == (["tree"], 0)


def test_folders_deeper_than_a_stack_and_the_descriptors_of_a_process_are_no_trouble(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        hand_to(tmp_path, os.geteuid(), os.getegid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        remove_tree(tmp_path / "d", 60)


def test_whoever_makes_entries_without_end_is_not_run_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "ENTRIES", 3)
    for name in "abc":
        (tmp_path / name).touch()
    hand_to(tmp_path, os.geteuid(), os.getegid())
    (tmp_path / "d").touch()
    with pytest.raises(OSError, match="grows faster"):
        hand_to(tmp_path, os.geteuid(), os.getegid())
