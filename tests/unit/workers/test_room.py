"""How full a workspace may be, what it is full of, and the names that policy protects."""

import ctypes
import errno
import os
import stat
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from schemas.policy import Policy
from workers.paths import protected_part
from workers.room import Usage, WorkspaceFull, _taken, refuse_overfull, usage_beside
from workers.workspace import NameProtected, Workspace, Workspaces

RUN = "11111111-1111-8111-8111-111111111111"


def workspace(tmp_path: Path, **fields: int) -> Workspace:
    return Workspaces(tmp_path / "home").open(RUN, 5, policy=Policy.model_validate(fields))


def in_all(files: Workspace) -> int:
    return sum(path.stat().st_size for path in files.path.rglob("*") if path.is_file())


# ---- room


def test_a_workspace_takes_what_its_policy_allows_and_not_a_byte_more(tmp_path: Path) -> None:
    files = workspace(tmp_path, workspace_bytes=10)
    files.write("a", b"12345")
    files.write("b", b"12345")
    files.write("b", b"54321")  # what is replaced makes room
    with pytest.raises(WorkspaceFull, match=r"11 bytes, at most 10 .*workspace_bytes of the policy, MANDOR_WORK"):
        files.write("b", b"123456")
    with pytest.raises(WorkspaceFull) as full:
        files.write("c/d", b"1")
    assert (full.value.kind, full.value.path) == ("workspace_full", "params.content")
    assert full.value.hint
    assert (files.read("b", max_bytes=9), in_all(files)) == (b"54321", 10)
    assert sorted(path.name for path in files.path.iterdir()) == ["a", "b"]
    files.remove("a")
    files.write("c/d", b"12345")


def test_folders_and_whatever_commands_make_are_counted(tmp_path: Path) -> None:
    files = workspace(tmp_path, workspace_files=4)
    files.write("a/b/c", b"")
    os.mkfifo(files.path / "pipe")
    files.write("a/b/c", b"again")
    with pytest.raises(WorkspaceFull, match=r"5 entries, at most 4 .*MANDOR_WORKSPACE_FILES") as full:
        files.write("d", b"")
    assert full.value.path == "params.path"
    (files.path / "pipe").unlink()
    files.write("d", b"")


def test_holes_and_second_names_are_counted_and_what_links_lead_to_is_not(tmp_path: Path) -> None:
    files = workspace(tmp_path)
    (tmp_path / "large").write_bytes(b"x" * 1000)
    (files.path / "link").symlink_to(tmp_path / "large")
    (files.path / "folder").symlink_to(tmp_path)
    with (files.path / "holes").open("wb") as made:
        made.truncate(10**12)
    os.link(files.path / "holes", files.path / "again")
    root = os.open(files.path, os.O_RDONLY)
    assert usage_beside(root, ("new",), 100) == Usage(2 * 10**12, 4)
    os.close(root)


def test_space_that_is_reserved_beyond_a_file_s_end_is_counted(tmp_path: Path) -> None:
    files = workspace(tmp_path)
    with (files.path / "small").open("wb") as made:
        made.write(b"12345")
    with (files.path / "reserved").open("wb") as made:
        if _fallocate(made.fileno(), 1, 8 << 20):  # FALLOC_FL_KEEP_SIZE
            pytest.skip("this file system reserves nothing")
        assert os.fstat(made.fileno()).st_size == 0
    root = os.open(files.path, os.O_RDONLY)
    assert usage_beside(root, ("new",), 100).bytes >= 5 + (8 << 20)
    (files.path / "reserved").unlink()
    assert usage_beside(root, ("new",), 100).bytes == 5, "a block that is not full is none"
    os.close(root)


def test_what_many_names_took_of_a_folder_is_counted_when_they_are_gone(tmp_path: Path) -> None:
    """ext4 never makes a folder smaller; others do, so each is asked what it takes now."""
    files = workspace(tmp_path)
    files.write("d/e/f", b"12345")
    grown = (files.path, files.path / "d", files.path / "d" / "e")
    for folder in grown:
        for number in range(300):
            (folder / f"{number:0250}").touch()
        for number in range(300):
            (folder / f"{number:0250}").unlink()
    taken = sum(max(0, 512 * found.st_blocks - found.st_blksize) for found in map(Path.stat, grown))
    root = os.open(files.path, os.O_RDONLY)
    assert usage_beside(root, ("new",), 100) == Usage(5 + taken, 3)
    assert usage_beside(root, ("d", "e", "f"), 100) == Usage(taken, 0), "the folders on the way stay"
    os.close(root)


@pytest.mark.parametrize("kind", [stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO])
def test_of_what_is_no_file_all_but_one_block_counts(kind: int) -> None:
    assert [_taken(looked_at(kind, blocks)) for blocks in (0, 8, 16, 5696)] == [0, 0, 4096, 5696 * 512 - 4096]


def looked_at(kind: int, blocks: int) -> os.stat_result:
    return os.stat_result((kind | 0o700, 1, 1, 1, 0, 0, 100, 0, 0, 0), {"st_blocks": blocks, "st_blksize": 4096})


def _fallocate(descriptor: int, mode: int, size: int) -> int:
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return int(call(descriptor, mode, 0, size))


def test_counting_ends_where_it_is_too_much_anyway(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()
    root = os.open(tmp_path, os.O_RDONLY)
    assert 10 < usage_beside(root, ("new",), 10).files < 15
    assert usage_beside(root, ("7",), 100).files == 49
    os.close(root)


def test_a_folder_that_leads_deeper_than_any_path_fills_the_workspace(tmp_path: Path) -> None:
    files = workspace(tmp_path)
    here = os.open(files.path, os.O_RDONLY)
    for _ in range(8):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(WorkspaceFull, match="deeper"):
        files.write("a", b"")


def test_a_folder_that_cannot_be_looked_into_fills_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root looks into everything, so the kernel's answer to anybody else is given here."""
    files = workspace(tmp_path)

    def denied(*_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "denied", str(tmp_path))

    monkeypatch.setattr("workers.room.open_beneath", denied)
    with pytest.raises(WorkspaceFull, match="looked into") as full:
        files.write("a", b"")
    assert str(tmp_path) not in str(full.value)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.ELOOP])
def test_what_a_command_takes_away_meanwhile_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = os.open(tmp_path, os.O_RDONLY)

    def gone(*_: object) -> NoReturn:
        raise OSError(number, "gone")

    monkeypatch.setattr("workers.room.open_beneath", gone)
    refuse_overfull(root, ("a",), 1, Policy())
    os.close(root)


def test_files_that_are_written_at_once_do_not_take_the_same_room(tmp_path: Path) -> None:
    """The case cf-29 of the corpus, smaller."""
    files, full = workspace(tmp_path, workspace_bytes=10_000), list[str]()
    together = threading.Barrier(8)

    def fill(writer: int) -> None:
        together.wait(30)
        for number in range(5):
            try:
                files.write(f"f{writer}-{number}", b"x" * 1000)
            except WorkspaceFull as error:
                full.append(error.kind)

    threads = [threading.Thread(target=fill, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (in_all(files), full) == (10_000, ["workspace_full"] * 30)
    assert list((files.path.parent / "incoming").iterdir()) == []
    Workspaces(tmp_path / "home").open(RUN.replace("1", "2"), 1).write("a", b"x" * 1000)


# ---- protected names


@pytest.mark.parametrize(
    "path",
    [
        *(".git/hooks/pre-commit", "a/.git/config", ".GIT/config", ".git./x", ".git /x", ".bashrc", "b/.\u017fsh/key"),
        *(".git::$INDEX_ALLOCATION/config", ".git:x", ".Git. :$DATA"),
        *("GIT~1/config", "a/git~4/x", "GI7EB8~1/x", "git~12/x"),
        *("BASHRC~1", "bash_p~1", "ENVRC~2.", "VSCOD~10/x", "ssh~1/authorized_keys"),
    ],
)
def test_a_protected_name_is_refused_wherever_it_stands_and_however_it_is_spelled(tmp_path: Path, path: str) -> None:
    files = workspace(tmp_path)
    with pytest.raises(NameProtected, match=r"protected_names of the policy, MANDOR_PROTECTED_NAMES") as refused:
        files.write(path, b"x")
    assert (refused.value.kind, refused.value.path) == ("name_protected", "params.path")
    assert refused.value.hint
    assert list(files.path.iterdir()) == []


def test_other_names_are_not_protected(tmp_path: Path) -> None:
    files = workspace(tmp_path)
    plain = (".gitignore", "git", ".git.txt", "a.git", ".github/x")
    for path in (*plain, "git~", "git~x", "gi~1", "notes~1", "a:.git", "report~1.txt", "gitlab~1", "file.txt~1", "~1"):
        files.write(path, b"x")


def test_the_names_are_the_policys(tmp_path: Path) -> None:
    files = Workspaces(tmp_path).open(RUN, 1, policy=Policy(protected_names=frozenset({"Straße.txt"})))
    files.write(".git/config", b"x")
    with pytest.raises(NameProtected, match=r"Straße\.txt"):
        files.write("STRASSE.TXT", b"x")
    assert protected_part(("a", "b"), ()) is None
