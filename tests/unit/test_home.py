"""The home folder is its user's alone, whoever makes it and whatever the umask."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator import flower
from orchestrator.healing import serving
from orchestrator.home import make_private
from orchestrator.ledger import open_ledger
from orchestrator.local import up
from orchestrator.telemetry.counting import _begin
from workers.keeping import Wanted, keep
from workers.scratch import Scratch
from workers.workspace import Workspaces

RUN = "11111111-1111-8111-8111-111111111111"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(top: Path) -> set[int]:
    """Of a folder and of those below it."""
    return {path.stat().st_mode & 0o7777 for path in (top, *top.rglob("*")) if path.is_dir()}


def copies(home: Path) -> None:
    tree = home.parents[1] / "tree"
    (tree / "d").mkdir(parents=True)
    (tree / "d" / "file").write_text("x")
    assert keep(tree, home, RUN, 1, Wanted(frozenset({"**"}), 100, frozenset()), lambda: True)


MAKERS: dict[str, Callable[[Path], object]] = {
    "up": up._make,
    "workspaces": lambda home: Workspaces(home).open(RUN, 1).write("a/b", b"x"),
    "artifacts": copies,
    "scratch": lambda home: Scratch(home).close(),
    "ports": lambda home: serving.remember(home, "steps", "http://127.0.0.1:1"),
    "flower": flower.password,
    "counters": lambda home: _begin(home / "counters" / "1", lambda: None),  # type: ignore[arg-type]  # has a lock
    "ledger": lambda home: open_ledger(f"sqlite:///{home}/ledger.db").upgrade(),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_whoever_makes_the_home_makes_it_for_its_user_alone(tmp_path: Path, maker: str) -> None:
    with umask(0):
        MAKERS[maker](tmp_path / "above" / "home")
    assert modes(tmp_path / "above") == {0o700}


def test_a_umask_that_takes_too_much_does_not_matter_either(tmp_path: Path) -> None:
    with umask(0o277):
        make_private(tmp_path / "a" / "b")
    assert modes(tmp_path / "a") == {0o700}


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    make_private(tmp_path)
    assert modes(tmp_path) == {0o750}


def test_where_a_file_stands_it_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            make_private(path)
