"""Steps that swap links under each other: twenty rounds of writing, reading, removing, running and keeping in a
workspace in which two other steps exchange folders and files for links that lead out, as fast as they can.
Nothing gets out or in.

By whoever runs the tests, on both sandboxes; where that is root, once more by nobody.
"""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.policy import Rung
from tests.support.sandboxes import NEEDS_ROOT, SECRET, Box, again_by_nobody, canary_in, ladder, skip_without
from tests.support.waiting import eventually
from workers.keeping import ARTIFACTS, Wanted, keep
from workers.removal import remove_tree
from workers.sandbox.jobs import Ended
from workers.workspace import PathRefused, Workspace, Workspaces

RUN = "11111111-1111-8111-8111-111111111111"
ROUNDS = 20
SWAP = """
import ctypes, os, sys
libc, mine, canary = ctypes.CDLL(None), os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2])
os.symlink(canary, mine)
os.symlink(canary + b"/secret.txt", mine + b".f")
swaps = 0
open(mine + b".begun", "w").close()
while os.path.exists(mine + b".begun"):
    for name, other in ((b"d", mine), (b"f", mine + b".f")):
        swaps += libc.renameat2(-100, name, -100, other, 2) == 0  # exchanged, in one step
print(swaps)
"""
TRY = "i=0; while [ $i -lt 20 ]; do echo pwned >d/secret.txt; echo pwned >f; cat d/secret.txt f; i=$((i+1)); done 2>&1"


@pytest.fixture(params=(Rung.BUBBLEWRAP, Rung.NAMESPACES), ids=str)
def rung(request: pytest.FixtureRequest) -> Rung:
    found: Rung = request.param
    skip_without(found)
    return found


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return canary_in(tmp_path)


def looks(folder: Path) -> list[tuple[object, ...]]:
    """All that a write, a new name or a new owner would change."""
    found = [(path.name, path.lstat()) for path in (folder, *sorted(folder.rglob("*")))]
    return [(name, s.st_ino, s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in found]


class Swapper:
    """A step of the same run, in a sandbox of its own."""

    def __init__(self, sandbox: Box, name: str, canary: Path) -> None:
        self._sandbox = sandbox
        self._argv = (ladder().host.python, "-IS", "-c", SWAP, name, str(canary))
        self._begun = sandbox.workspace / f"{name}.begun"
        self.ended: list[Ended] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Swapper":
        self._thread.start()
        eventually(lambda: self._begun.exists() or bool(self.ended), what="the swapping begins")
        return self

    def __exit__(self, *_: object) -> None:
        self._begun.unlink(missing_ok=True)
        self._thread.join()

    def _run(self) -> None:
        self.ended.append(self._sandbox.start(*self._argv, timeout_s=100))


def outcome(act: Callable[[], object]) -> str:
    try:
        act()
    except PathRefused:
        return "refused"
    except FileNotFoundError:
        return "none there"
    return "done"


def read(files: Workspace, path: str) -> None:
    assert SECRET.encode() not in files.read(path, max_bytes=100)


@pytest.mark.full
def test_twenty_rounds_of_swapped_links_write_and_read_nothing_outside(
    rung: Rung, tmp_path: Path, canary: Path
) -> None:
    files = Workspaces(tmp_path / "home").open(RUN, fence=1)
    (files.path / "d").mkdir()
    files.write("f", b"mine")
    sandbox, before, found = Box(rung, files.path), looks(canary), Counter[str]()
    with Swapper(sandbox, "a", canary) as one, Swapper(sandbox, "b", canary) as other:
        for number in range(ROUNDS):
            for act in acts(files, number):
                found[outcome(act)] += 1
            assert SECRET not in sandbox.said(TRY)
            if number % 5 == 0:
                keep(files.path, tmp_path, RUN, number, Wanted(frozenset({"**"}), 1 << 20, frozenset()), lambda: True)
        assert looks(canary) == before
    for swapper in (one, other):
        assert int(swapper.ended[0].stdout.head) > 100 * ROUNDS
    assert min(found["done"], found["refused"]) > ROUNDS, found
    keep(files.path, tmp_path, RUN, ROUNDS, Wanted(frozenset({"**"}), 1 << 20, frozenset()), lambda: True)
    kept = [path.read_text() for path in (tmp_path / ARTIFACTS).rglob("n0") if path.is_file()]
    assert "pwned" in kept
    everything = [path.read_text() for path in (tmp_path / ARTIFACTS).rglob("*") if path.is_file()]
    assert all(SECRET not in content for content in everything)


def acts(files: Workspace, number: int) -> list[Callable[[], object]]:
    """What other steps do meanwhile."""
    write, remove = files.write, files.remove
    return [
        lambda: write("d/n0", b"pwned"),
        lambda: write(f"d/made{number}/n0", b"pwned"),
        lambda: write("d/secret.txt", b"pwned"),
        lambda: write("f", b"pwned"),
        lambda: read(files, "d/secret.txt"),
        lambda: read(files, "f"),
        lambda: remove("d/secret.txt"),
        lambda: remove("f"),
    ]


@pytest.mark.full
def test_a_workspace_goes_under_the_hands_of_who_swaps_links_in_it(rung: Rung, tmp_path: Path, canary: Path) -> None:
    files = Workspaces(tmp_path / "home").open(RUN, fence=1)
    sandbox, before = Box(rung, files.path), looks(canary)
    (files.path / "d").mkdir()
    for number in range(300):
        (files.path / "d" / f"n{number}").mkdir()
    (files.path / "f").touch()
    with Swapper(sandbox, "a", canary):
        eventually(lambda: remove_tree(files.path.parent), what="it goes, at one of some looks")
    assert looks(canary) == before
    assert not files.path.parent.exists()


@pytest.mark.full
@NEEDS_ROOT
def test_all_of_this_by_a_user_who_is_not_root() -> None:
    again_by_nobody(__file__)
