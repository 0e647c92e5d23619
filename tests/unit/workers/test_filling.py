"""What a command may fill its workspace with, as it is looked at beside the command."""

import os
from pathlib import Path

import pytest

from schemas.policy import Policy
from workers import filling
from workers.filling import CommandFilled, Filling
from workers.outcomes import LeaseLost, NoEffect
from workers.room import WorkspaceFull


def ready(tree: Path, monkeypatch: pytest.MonkeyPatch, **quota: int) -> Filling:
    """Due at once, and each time."""
    monkeypatch.setattr(filling, "FIRST_S", 0.0)
    monkeypatch.setattr(filling, "_SHARE", 0)
    return Filling(tree, Policy.model_validate(quota), lambda: None)


def test_entries_of_every_kind_and_sizes_with_holes_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = ready(tmp_path, monkeypatch, workspace_files=3, workspace_bytes=100)
    (tmp_path / "a" / "b").mkdir(parents=True)
    os.mkfifo(tmp_path / "a" / "b" / "pipe")
    look()
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(
        CommandFilled, match=r"3 entries \(workspace_files of the policy, MANDOR_WORKSPACE_FILES"
    ) as filled:
        look()
    assert not isinstance(filled.value, NoEffect), "it has done something"
    assert (filled.value.path, bool(filled.value.hint)) == ("params.command", True)
    with pytest.raises(WorkspaceFull, match="not started") as full:
        look.refuse()
    assert (full.value.path, bool(full.value.hint)) == ("params.command", True)
    (tmp_path / "link").unlink()
    (tmp_path / "a" / "b" / "pipe").unlink()
    with (tmp_path / "hole").open("wb") as hole:
        hole.truncate(100)
        look()
        hole.truncate(101)
    with pytest.raises(CommandFilled, match=r"100 bytes \(workspace_bytes of the policy, MANDOR_WORKSPACE_BYTES"):
        look()


def test_what_nobody_can_count_is_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = ready(tmp_path, monkeypatch)
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(8):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(CommandFilled, match="nobody can say"):
        look()


def test_one_that_took_its_whole_workspace_away_has_not_filled_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(tmp_path / "gone", monkeypatch)()


def test_the_lease_is_asked_first_and_a_look_waits_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        raise LeaseLost("lost")

    quota = Policy(workspace_files=1)
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(LeaseLost):
        Filling(tmp_path, quota, lost)()
    monkeypatch.setattr(filling, "FIRST_S", 1000.0)
    Filling(tmp_path, quota, lambda: None)()
