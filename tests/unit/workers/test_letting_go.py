"""Workspaces go when nobody needs them any more, whoever dies while that is done; nothing else ever goes."""

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import LedgerError
from orchestrator.ledger import Ledger
from orchestrator.ledger.files import FilesOfRuns
from orchestrator.settings import Settings
from schemas.policy import Policy, policy_text
from schemas.states import RunStatus
from tests.support.ledgers import accepted, fresh_ledger, run_named
from workers import keeping
from workers.belonging import NAMEPLATE, alone, come_in, run_of
from workers.keeping import ARTIFACTS
from workers.letting_go import GOING, LettingGo
from workers.outcomes import NoEffect
from workers.removal import remove_tree
from workers.scratch import Scratch, remove_dead
from workers.workspace import Workspace, WorkspaceFault, Workspaces

MINUTE_MS = 60_000


class House:
    """A home, its ledger, and somebody who lets go."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(home=folder / "home", workspace_keep_s=60, deadline_s=100)
        self.ledger: Ledger = fresh_ledger(folder)
        self.workspaces = Workspaces(self.settings.home)

    def run(self, name: str, **policy: Any) -> str:
        """A run that the ledger has accepted."""
        text = policy_text(Policy(**{"workspace_keep_s": 60.0, **policy}))
        row = run_named(name)
        self.ledger.accept(type(row)(**{**_fields(row), "policy_text": text}))
        return row.run_id

    def open(self, run_id: str, **files: str) -> Workspace:
        """Its workspace with these files, names with `_` for a folder's stroke."""
        opened = self.workspaces.open(run_id, 1)
        for name, content in files.items():
            opened.write(name.replace("_", "/"), content.encode())
        return opened

    def end(self, run_id: str, ago_ms: int, generation: int = 1, status: RunStatus = RunStatus.FAILED) -> None:
        at = self.ledger.now_ms() - ago_ms
        assert self.ledger.end_run(run_id, generation, status, None, 9, at)

    def look(self) -> None:
        LettingGo(self.settings, self.ledger).look()

    def folder(self, run_id: str) -> Path:
        return self.workspaces.path(run_id).parent

    def left(self) -> set[Path]:
        return set((self.settings.home / "workspaces").iterdir())

    def age(self, folder: Path, seconds: float) -> None:
        """As if nobody had used it for so long."""
        before = time.time() - seconds
        for path in (folder, folder / NAMEPLATE):
            with suppress(FileNotFoundError):
                os.utime(path, (before, before))


def _fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.ledger.close()


# ---- when one goes


def test_it_goes_when_the_run_has_ended_and_its_time_is_over(house: House) -> None:
    ids = [house.run(name) for name in ("old", "young", "open")]
    for run_id in ids:
        house.open(run_id, a_txt="x")
    house.end(ids[0], 2 * MINUTE_MS)
    house.end(ids[1], 1000)
    house.look()
    assert house.left() == {house.folder(ids[1]), house.folder(ids[2])}
    assert [house.ledger.files.gone(run_id) for run_id in ids] == [1, 0, 0]


def test_at_once_where_policy_says_so(house: House) -> None:
    run_id = house.run("r", workspace_keep_s=0.0)
    house.open(run_id, a_txt="x")
    house.look()
    assert house.left() == {house.folder(run_id)}
    house.end(run_id, 0)
    house.look()
    assert house.left() == set()


def test_that_of_a_run_that_was_undone_goes_at_once(house: House) -> None:
    undone, partly = house.run("undone", artifacts=frozenset({"a/*"})), house.run("partly")
    for run_id, status in ((undone, RunStatus.COMPENSATED), (partly, RunStatus.COMPENSATION_FAILED)):
        house.open(run_id, a_txt="x", b_txt="y")
        house.end(run_id, 0, status=status)
    house.look()
    assert house.left() == {house.folder(partly)}
    assert [one.path for one in house.ledger.files.kept(undone)] == ["a/txt"], "what policy keeps is nobody's effect"


def test_it_stays_while_something_that_came_late_is_to_be_undone(house: House) -> None:
    run_id = house.run("r")
    house.open(run_id, a_txt="x")
    house.end(run_id, 0, status=RunStatus.COMPENSATED)
    effects = house.ledger.effects
    effects.close(run_id, "s0", "do", 5)
    effects.land(run_id, "s0", "do", 4, "token", "null")
    house.look()
    assert house.left() == {house.folder(run_id)}
    late = house.ledger.late.of(run_id, "s0")
    assert late is not None
    assert house.ledger.late.end(late)
    house.look()
    assert house.left() == set()


def test_it_stays_when_the_run_is_started_over_or_is_about_to_be(house: House) -> None:
    decided, over = house.run("decided"), house.run("over")
    for run_id in (decided, over):
        house.open(run_id, a_txt="x")
        house.end(run_id, 2 * MINUTE_MS)
    house.ledger.decide(decided, 1, "retry", "ann", None)
    house.ledger.reopen_run(over, 2, RunStatus.RUNNING)
    house.look()
    assert house.left() == {house.folder(decided), house.folder(over)}
    assert house.ledger.files.gone(decided) == 0


def test_each_generation_has_its_own_time(house: House) -> None:
    run_id = house.run("r")
    house.end(run_id, 2 * MINUTE_MS)
    assert house.ledger.files.let_go(run_id, 1, house.ledger.now_ms())
    house.ledger.reopen_run(run_id, 2, RunStatus.RUNNING)
    house.open(run_id, a_txt="x")
    house.end(run_id, 1000, generation=2)
    house.look()
    assert house.left() == {house.folder(run_id)}
    assert not house.ledger.files.let_go(run_id, 1, house.ledger.now_ms())
    assert house.ledger.files.gone(run_id) == 1


# ---- nobody's


def test_of_a_run_that_nobody_knows_it_goes_once_none_can_be_using_it(house: House) -> None:
    unknown = run_named("unknown").run_id
    folder = house.open(unknown, a_txt="x").path.parent
    house.age(folder, 150)
    house.look()
    assert house.left() == {folder}
    house.age(folder, 170)
    house.look()
    assert house.left() == set()


def test_whoever_comes_in_makes_it_young_again(house: House) -> None:
    unknown = run_named("unknown").run_id
    folder = house.open(unknown).path.parent
    house.age(folder, 170)
    house.open(unknown)
    house.look()
    assert house.left() == {folder}


def test_what_a_worker_left_that_died_while_it_made_one(house: House) -> None:
    half = house.open(house.run("r")).path.parent
    (half / NAMEPLATE).unlink()
    house.look()
    assert house.left() == {half}
    house.age(half, 170)
    house.look()
    assert house.left() == set()


def test_one_run_of_many_that_cannot_be_seen_to_keeps_back_no_other(house: House) -> None:
    odd, plain = house.run("odd"), house.run("plain")
    with house.ledger.begin() as connection:
        connection.exec_driver_sql("UPDATE runs SET policy_text = '{\"of_next_year\": 1}' WHERE run_id = ?", (odd,))
    for run_id in (odd, plain):
        house.open(run_id)
        house.end(run_id, 2 * MINUTE_MS)
    house.look()
    assert house.left() == {house.folder(odd)}


# ---- interrupted, and twice at once


def test_what_was_interrupted_is_gone_on_with(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed behind the ledger's note, then behind the renaming, then in the middle of the removal."""
    run_id = house.run("r")
    folder = house.open(run_id, a_b_txt="x", a_c_txt="y", d_txt="z").path.parent
    house.end(run_id, 2 * MINUTE_MS)
    steps = [
        (LettingGo, "_move_away", {folder}, None),
        (LettingGo, "_remove", 1, GOING),
        (os, "rmdir", 1, GOING),
    ]
    for owner, name, expected, prefix in steps:
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, _die)
            with pytest.raises(KeyboardInterrupt):
                house.look()
        left = house.left()
        assert left == expected if prefix is None else len(left) == expected
        assert all(one.name.startswith(prefix or "") for one in left)
        assert house.ledger.files.gone(run_id) == 1
    house.look()
    assert house.left() == set()


def _die(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_two_at_once_do_it_once(house: House) -> None:
    ids = [house.run(f"r{number}", artifacts=frozenset({"**"})) for number in range(12)]
    for run_id in ids:
        house.open(run_id, a_b_txt="x")
        house.end(run_id, 2 * MINUTE_MS)
    program = (
        "import sys; from pathlib import Path; from orchestrator.settings import Settings;"
        "from orchestrator.ledger import open_ledger; from workers.letting_go import LettingGo;"
        "LettingGo(Settings(home=Path(sys.argv[1]), workspace_keep_s=60), open_ledger(sys.argv[2])).look()"
    )
    argv = [
        sys.executable,
        "-c",
        program,
        str(house.settings.home),
        f"sqlite:///{house.settings.home.parent}/ledger.db",
    ]
    both = [subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(one.communicate()[1], one.returncode) for one in both] == [("", 0)] * 2
    house.look()
    assert house.left() == set()
    for run_id in ids:
        assert [kept.path for kept in house.ledger.files.kept(run_id)] == ["a/b/txt"]
        assert (house.settings.home / ARTIFACTS / run_id / "1" / "files" / "a" / "b" / "txt").read_text() == "x"


def test_a_zombie_that_still_writes_gets_nothing_back(house: House) -> None:
    run_id = house.run("r")
    zombie = house.open(run_id, a_txt="x")
    tree = os.open(zombie.path, os.O_RDONLY)
    house.end(run_id, 2 * MINUTE_MS)
    house.look()
    with pytest.raises(FileNotFoundError):
        os.open("late.txt", os.O_WRONLY | os.O_CREAT, dir_fd=tree)
    os.close(tree)
    with pytest.raises((FileNotFoundError, WorkspaceFault)):
        zombie.write("late.txt", b"late")
    assert house.left() == set()


def test_who_is_still_writing_is_waited_for(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder fills again under the hands of who takes it away; the next look goes on."""
    run_id = house.run("r")
    house.open(run_id, a_txt="x")
    house.end(run_id, 2 * MINUTE_MS)
    removed = os.rmdir

    def write_once_more(folder: Any, **given: Any) -> None:
        if isinstance(folder, Path):
            (folder / "late.txt").write_text("late")
            monkeypatch.setattr(os, "rmdir", removed)
        removed(folder, **given)

    monkeypatch.setattr(os, "rmdir", write_once_more)
    house.look()
    assert len(house.left()) == 1
    house.look()
    assert house.left() == set()


def test_one_file_that_cannot_be_taken_away_keeps_no_other_and_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = house.run("r")
    house.open(run_id, stuck="x", a="y", z="y", b_c_txt="z")
    house.end(run_id, 2 * MINUTE_MS)
    unlink = os.unlink

    def immutable(path: Any, **given: Any) -> None:
        if path == "stuck":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(path, **given)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", immutable)
        house.look()
    (going,) = house.left()
    assert [path.name for path in going.rglob("*") if path.is_file()] == ["stuck"]
    (said,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("workspace")]
    assert said.startswith("workspaces.failed"), "not that it is gone"
    assert "kind=" in said
    house.look()
    assert house.left() == set()


def test_what_failed_is_told_although_the_ledger_fails_afterwards(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house.open(house.run("r"), a_txt="x")
    (house.settings.home / "workspaces" / f"{GOING}shut" / "stuck").mkdir(parents=True)
    monkeypatch.setattr(os, "rmdir", _not_permitted)
    monkeypatch.setattr(FilesOfRuns, "standing", _away)
    with pytest.raises(LedgerError):
        house.look()
    assert [line for line in caplog.messages if line.startswith("workspaces.failed")]


def _away(*_: Any) -> None:
    raise LedgerError("it is away")


def _not_permitted(*_: Any, **__: Any) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


# ---- the lock between who comes in and who lets go


def test_nobody_comes_in_while_it_is_let_go_and_who_waited_finds_a_new_one(house: House) -> None:
    run_id = house.run("r")
    folder = house.open(run_id, a_txt="old").path.parent
    with alone(folder) as mine:
        assert mine
        assert not come_in(folder, run_id, 0.0)
        folder.rename(folder.with_name("elsewhere"))
        assert house.open(run_id).path.is_dir()
        assert run_of(folder) == run_id
        assert not (folder / "tree" / "a.txt").exists()


def test_who_comes_in_keeps_it_from_being_let_go(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = house.run("r")
    folder = house.open(run_id).path.parent
    house.end(run_id, 2 * MINUTE_MS)
    at_door: list[bool] = []
    used = os.utime

    def look_meanwhile(*arguments: Any) -> None:
        used(*arguments)
        house.look()
        at_door.append(folder.is_dir())

    monkeypatch.setattr(os, "utime", look_meanwhile)
    house.workspaces.open(run_id, 1)
    assert at_door == [True]


def test_a_lock_that_is_not_let_go_is_a_fault_that_may_be_tried_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = house.run("r")
    folder = house.open(run_id).path.parent
    monkeypatch.setattr("workers.workspace.LOCK_WAIT_S", 0.05)
    with alone(folder), pytest.raises(WorkspaceFault) as fault:
        house.workspaces.open(run_id, 2)
    assert not isinstance(fault.value, NoEffect)


# ---- trees that nobody would make by chance


def test_deep_shut_and_linked_trees_go_and_nothing_that_they_lead_to(tmp_path: Path) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(1100):  # deeper than a stack, a path and the descriptors of a process
        os.mkdir("d", dir_fd=here)
        os.symlink(outside, "link", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    for name in ("shut", "odd\udcff\n"):
        (top / name / "in").mkdir(parents=True)
        (top / name / "in" / "file").write_text("x")
        (top / name / "in").chmod(0)
        (top / name).chmod(0)
    os.mkfifo(top / "pipe")
    os.link(outside / "mine.txt", top / "hard")
    mode = outside.stat().st_mode
    assert remove_tree(top, 60)
    assert not top.exists()
    assert (outside / "mine.txt").read_text() == "mine"
    assert outside.stat().st_mode == mode
    assert remove_tree(top)


def nobody_finds(folder: Path, act: Callable[[], bool]) -> bool:
    """What a process of the user nobody answers, who may come as far as to this folder."""
    for above in list(folder.parents)[:-2]:
        above.chmod(above.stat().st_mode | 0o011)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65_534)
            os.setuid(65_534)
            os._exit(0 if act() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_one_that_is_not_root_opens_what_was_shut_to_it(tmp_path: Path) -> None:
    """Root may do it anyway, so another user tries."""
    if os.geteuid() != 0:
        pytest.skip("the test above was that user's")
    tmp_path.chmod(0o711)
    top = tmp_path / "top"
    (top / "shut" / "in").mkdir(parents=True)
    (top / "shut" / "in" / "file").write_text("x")
    for path in (tmp_path, top, top / "shut", top / "shut" / "in", top / "shut" / "in" / "file"):
        os.chown(path, 65_534, 65_534)
    for path in (top / "shut" / "in", top / "shut", top):
        path.chmod(0)
    assert nobody_finds(tmp_path, lambda: remove_tree(top))
    assert not top.exists()


def test_of_what_one_that_is_not_root_may_not_take_away_it_says_so_and_takes_the_rest(tmp_path: Path) -> None:
    """Another user's folder, with a file in it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    tmp_path.chmod(0o777)
    top = tmp_path / "top"
    for name in ("a", "theirs", "z"):
        (top / "in" / name).mkdir(parents=True)
        (top / "in" / name / "file").write_text("x")
    for path in (top, top / "in", *(top / "in").rglob("*")):
        if "theirs" not in path.parts:
            os.chown(path, 65_534, 65_534)

    def is_refused() -> bool:
        try:
            remove_tree(top)
        except PermissionError:
            return True
        return False

    assert nobody_finds(tmp_path, is_refused)
    assert {path.name for path in top.rglob("*")} == {"in", "theirs", "file"}


def test_what_takes_too_long_is_gone_on_with(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    assert not remove_tree(top, -1)
    assert top.exists()
    assert remove_tree(top)


# ---- scratch


def test_scratch_goes_with_who_has_it_and_is_left_alone_before(tmp_path: Path) -> None:
    mine = Scratch(tmp_path)
    (mine.path / "secret").write_text("x")
    (mine.path / "shut").mkdir(mode=0)
    assert mine.path.stat().st_mode & 0o777 == 0o700
    assert remove_dead(tmp_path) == 0
    mine.close()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_scratch_of_a_killed_process_goes_at_the_next_look(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from workers.scratch import Scratch;"
        "made = Scratch(Path(sys.argv[1])); (made.path / 'secret').write_text('x'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert [path.name for path in (tmp_path / "scratch").glob("*/*")] == ["secret"]
    assert remove_dead(tmp_path) == 1
    assert list((tmp_path / "scratch").iterdir()) == []


# ---- artifacts


def kept_of(house: House, run_id: str) -> dict[str, str | None]:
    return {one.path: one.left_out for one in house.ledger.files.kept(run_id)}


def test_what_policy_names_is_copied_out_when_the_run_ends_and_outlasts_the_workspace(house: House) -> None:
    run_id = house.run("r", artifacts=frozenset({"out/*", "log/**"}))
    files = house.open(run_id)
    for path in ("out/a.txt", "out/deep/b.txt", "log/x/y.log", "other.txt"):
        files.write(path, path.encode())
    house.end(run_id, 1000)
    house.look()
    copies = house.settings.home / ARTIFACTS / run_id / "1" / "files"
    assert kept_of(house, run_id) == {"out/a.txt": None, "log/x/y.log": None}
    assert house.left() == {house.folder(run_id)}
    assert all(path.stat().st_mode & 0o077 == 0 for path in [copies, *copies.rglob("*")])
    assert {str(path.relative_to(copies)) for path in copies.rglob("*") if path.is_file()} == set(
        kept_of(house, run_id)
    )
    assert (copies / "out" / "a.txt").read_text() == "out/a.txt"
    assert all(one.place.endswith(str(copies)) for one in house.ledger.files.kept(run_id))


@pytest.mark.parametrize("far", ["decided", "begun"])
def test_what_is_copied_while_the_run_is_started_over_is_thrown_away(
    house: House, monkeypatch: pytest.MonkeyPatch, far: str
) -> None:
    """A step of the new generation writes while the old one's files are read."""
    run_id = house.run("r", artifacts=frozenset({"**"}))
    tree = house.open(run_id, a="old").path
    house.end(run_id, 1000)
    copy = keeping._Copies.of

    def started_over(self: Any, tree: Path) -> Any:
        if far == "decided":
            house.ledger.decide(run_id, 1, "retry", "ann", None)
        else:
            house.ledger.reopen_run(run_id, 2, RunStatus.RUNNING)
        (tree / "a").write_text("new")
        return copy(self, tree)

    monkeypatch.setattr(keeping._Copies, "of", started_over)
    house.look()
    monkeypatch.undo()
    assert kept_of(house, run_id) == {}
    assert list((house.settings.home / ARTIFACTS / run_id).iterdir()) == []
    if far == "begun":
        house.end(run_id, 1000, generation=2)
        house.look()
        assert (house.settings.home / ARTIFACTS / run_id / "2" / "files" / "a").read_text() == "new"
        assert tree.exists()


def test_no_more_than_policy_allows_is_copied_and_the_rest_is_named(house: House) -> None:
    run_id = house.run("r", artifacts=frozenset({"**"}), artifact_bytes=10)
    files = house.open(run_id)
    for name, size in (("a", 6), ("b", 6), ("c", 4), ("d", 1)):
        files.write(name, b"x" * size)
    house.end(run_id, 1000)
    house.look()
    over = "artifact_bytes of the policy are used up"
    assert kept_of(house, run_id) == {"a": None, "b": over, "c": None, "d": over}


def test_where_there_is_room_for_none_not_even_an_empty_file_is_kept(house: House) -> None:
    run_id = house.run("r", artifacts=frozenset({"**"}), artifact_bytes=0)
    house.open(run_id).write("empty", b"")
    house.end(run_id, 1000)
    house.look()
    assert kept_of(house, run_id) == {}
    assert not (house.settings.home / ARTIFACTS).exists()


def test_links_pipes_and_second_names_are_not_copied(house: House, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    run_id = house.run("r", artifacts=frozenset({"**"}))
    tree = house.open(run_id, fine="x").path
    (tree / "link").symlink_to(secret)
    (tree / "folder").symlink_to(tmp_path)
    os.mkfifo(tree / "pipe")
    os.link(secret, tree / "hard")
    (tree / "odd\u202e").write_text("x")
    house.end(run_id, 1000)
    house.look()
    assert kept_of(house, run_id) == {"fine": None, "hard": "it is no file of one name"}
    copies = house.settings.home / ARTIFACTS / run_id
    assert "secret" not in [path.read_text() for path in copies.rglob("*") if path.is_file()]


def test_names_that_policy_protects_are_not_copied_where_people_work(house: House) -> None:
    run_id = house.run("r", artifacts=frozenset({"**"}))
    tree = house.open(run_id, fine="x", a_b="x").path
    (tree / "a" / ".GIT" / "hooks").mkdir(parents=True)
    (tree / "a" / ".GIT" / "config").write_text("fsmonitor = true")
    (tree / ".envrc").write_text("true")
    house.end(run_id, 1000)
    house.look()
    said = "the policy protects the name "
    assert kept_of(house, run_id) == {
        "fine": None,
        "a/b": None,
        "a/.GIT": f"{said}.git",
        ".envrc": f"{said}.envrc",
    }
    copies = house.settings.home / ARTIFACTS / run_id / "1" / "files"
    assert {path.relative_to(copies).as_posix() for path in copies.rglob("*")} == {"a", "a/b", "fine"}


def test_one_that_is_not_root_copies_out_of_a_workspace_that_was_shut_to_it(tmp_path: Path) -> None:
    """Root may read it anyway, so another user tries."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    tree, home = tmp_path / "tree", tmp_path / "home"
    (tree / "in").mkdir(parents=True)
    home.mkdir()
    (tree / "in" / "file").write_text("x")
    for path in (tmp_path, home, tree, tree / "in", tree / "in" / "file"):
        os.chown(path, 65_534, 65_534)
    for path in (tree / "in", tree):
        path.chmod(0)

    def all_is_kept() -> bool:
        wanted = keeping.Wanted(frozenset({"**"}), 100, frozenset())
        found = keeping.keep(tree, home, "r", 1, wanted, lambda: True) or ()
        return [one.path for one in found if one.left_out is None] == ["in/file"]

    assert nobody_finds(tmp_path, all_is_kept)


def test_what_cannot_be_copied_keeps_no_workspace_for_ever(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left", "/secret")

    late, early = (house.run(name, artifacts=frozenset({"**"})) for name in ("late", "early"))
    for run_id, minutes in ((late, 70), (early, 30)):
        house.open(run_id, a_txt="x")
        house.end(run_id, minutes * MINUTE_MS)
    with monkeypatch.context() as patched:
        patched.setattr(keeping, "_write", full)
        patched.setattr(os, "pwrite", full)
        house.look()
    assert house.left() == {house.folder(early)}
    assert [one.left_out for one in house.ledger.files.kept(late)] == [
        "it could not be copied while the workspace was there: No space left on device"
    ]
    assert house.ledger.files.kept(early) == []
    house.look()
    assert (house.left(), kept_of(house, early)) == (set(), {"a/txt": None})


@pytest.mark.parametrize(
    ("owner", "name"), [(keeping, "_write"), (Path, "rename"), (FilesOfRuns, "keep"), (os, "pwrite")]
)
def test_copies_are_whole_whoever_died_making_them(
    house: House, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """And nothing goes before they are there, and the ledger knows."""
    run_id = house.run("r", artifacts=frozenset({"**"}), workspace_keep_s=0.0)
    house.open(run_id, a_txt="x", b_txt="y")
    house.end(run_id, 1000)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, _die)
        with pytest.raises(KeyboardInterrupt):
            house.look()
    assert house.left() == {house.folder(run_id)}
    assert house.ledger.files.gone(run_id) == 0
    house.look()
    assert house.left() == set()
    assert kept_of(house, run_id) == {"a/txt": None, "b/txt": None}
    above = house.settings.home / ARTIFACTS / run_id
    assert [path.name for path in above.iterdir()] == ["1"]
    assert {one["path"] for one in json.loads((above / "1" / "manifest.json").read_text())} == {"a/txt", "b/txt"}


def test_a_run_that_was_started_over_leaves_the_files_of_its_last_generation(house: House) -> None:
    run_id = house.run("r", artifacts=frozenset({"*"}))
    house.open(run_id, a="one")
    house.end(run_id, 1000)
    house.look()
    house.ledger.reopen_run(run_id, 2, RunStatus.RUNNING)
    house.look()
    house.open(run_id, a="two", b="new")
    house.end(run_id, 500, generation=2)
    house.look()
    assert kept_of(house, run_id) == {"a": None, "b": None}
    above = house.settings.home / ARTIFACTS / run_id
    assert [(above / generation / "files" / "a").read_text() for generation in "12"] == ["one", "two"]


def test_copies_go_with_what_the_ledger_knows_of_their_run(house: House) -> None:
    forgotten, known = run_named("forgotten").run_id, accepted(house.ledger, "known").run_id
    for run_id in (forgotten, known):
        (house.settings.home / ARTIFACTS / run_id / "1").mkdir(parents=True)
        os.utime(house.settings.home / ARTIFACTS / run_id, (0, time.time() - 91 * 86_400))
    young = run_named("young").run_id
    (house.settings.home / ARTIFACTS / young).mkdir()
    house.look()
    assert {path.name for path in (house.settings.home / ARTIFACTS).iterdir()} == {known, young}
