"""Cases that cost a worker its life or its sandbox: played when all others are over, one after the other."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.fenced.fleet import Scene, how, request
from tests.support.commanding import LESS, NAME
from tests.support.scraping import failing, probed
from tests.support.system import step
from tests.support.waiting import eventually

SIZE: Final = 1_000_000  # about the most that a plan can hold
TRIES: Final = 20
SHORT_LEASE: Final = {"limits": {"lease_s": 3}}
WITHOUT_NAMESPACES: Final = ("tests.support.rungless", "namespaces")


def lose_landlock(scene: Scene) -> None:
    """rc-54: what puts it up fails from now on. Tried once more, on what works by then: nothing does."""
    module = scene.fleet.bait.folder / "inside" / "landlock.py"
    whole = module.read_text()
    module.write_text(f"{whole}\n\ndef restrict(*_):\n    raise OSError(1, 'made to fail')\n")
    try:
        view = scene.whole()
    finally:
        module.write_text(whole)
    assert how(view)[0] in ("sandbox_failed", "no_sandbox_rung")
    assert view.steps[0].status == "failed", "nothing was started, so there is no doubt"
    assert "hi" not in str(view.steps[0].error).split()


def die_while_writing(scene: Scene) -> None:
    """cf-33: the file of a worker that dies over it is not there, or whole; and it is there in the end."""
    assert any(dies_while_writing(scene) for _ in range(TRIES)), "none died in the middle"


def dies_while_writing(scene: Scene) -> bool:
    """Whether the writer was dead before its file had its name."""
    name, run_id = request()
    tree = scene.fleet.tree(run_id)
    scene.begin(step("create_file", path="big.txt", content="y" * SIZE), request_id=name)
    eventually(lambda: in_it(tree.parent / "incoming") or in_it(tree), what="the first bytes of the file")
    for pid in scene.fleet.children():
        os.kill(pid, signal.SIGKILL)
    assert in_it(tree) in ({}, {"big.txt": SIZE})
    died = in_it(tree) == {}
    view = scene.end(run_id)
    assert (view.status, in_it(tree)) == ("succeeded", {"big.txt": SIZE})
    assert (tree / "big.txt").read_text() == "y" * SIZE
    return died


def in_it(folder: Path) -> dict[str, int]:
    """Its files with their sizes, now."""
    try:
        return {one.name: one.stat().st_size for one in os.scandir(folder)}
    except FileNotFoundError:
        return {}


def lose_the_worker(scene: Scene) -> None:
    """iso-10: the worker is killed between the two lines that the command writes; the next one can make no sandbox."""
    name, run_id = request()
    log = scene.fleet.tree(run_id) / "log"
    scene.begin(*scene.steps(), policy=SHORT_LEASE, request_id=name)
    eventually(lambda: log.exists() and log.read_text() == "start\n")
    scene.fleet.system.processes.kill(NAME)
    scene.fleet.start(*LESS[scene.fleet.rung], *WITHOUT_NAMESPACES)
    view = scene.end(run_id)
    assert [(one.status, one.attempt) for one in view.steps] == [("in_doubt", 1)]
    assert log.read_text() == "start\n"
    assert not (scene.fleet.worker.home / "workspaces").exists(), "the other has begun nothing"


def lose_namespaces(scene: Scene) -> None:
    """rc-53: the worker's start of a sandbox fails, although bubblewrap is there; it says so, and refuses."""
    assert probed(scene.fleet.worker.url, "/health")[1]["about"] == {"sandbox": "none"}
    assert failing(scene.fleet.worker.url, "/readyz") == {"sandbox"}
    view = scene.whole()
    assert (how(view), view.steps[0].status) == (["no_sandbox_rung"], "failed")
    assert how(scene.run(step("create_file", path="a", content="b"))) == ["completed"], "it has other work"


DEATHS: Final[dict[str, Callable[[Scene], None]]] = {
    "rc-54": lose_landlock,
    "cf-33": die_while_writing,  # whose children come after those that know of no sandbox
    "iso-10": lose_the_worker,
    "rc-53": lose_namespaces,
}
