"""Cases of files: paths that lead out, what commands plant for steps to write through, and too much."""

from collections import Counter
from typing import Any, Final

from tests.fenced.fleet import PROTECTED, Scene, command, how, plays, said
from tests.support.system import step

MOST_ROUNDS: Final = 30  # a folder that a worker of root has made stays: most of its rounds have no refusal
SWAPPING_MS: Final = 2000
REFUSED, DONE = "path_refused", "completed"
OUTSIDE: Final = ("cf-01", "cf-02", "cf-03", "cf-15", "cf-17", "cf-20", "cf-21")


@plays(*OUTSIDE)
def lead_out(scene: Scene) -> None:
    """What needs it does not run; nothing is half made; devices and what is in memory stay as they are."""
    for one in scene.steps():
        view = scene.run({**one, "id": "w"}, command("true", "after", ["w"]))
        assert (view.status, how(view)[0], view.steps[1].attempt) == ("failed", REFUSED, 0)
        assert plain(view.steps[0].error) == "steps.0.params.path"
        assert not scene.tree(view).exists() or list(scene.tree(view).iterdir()) == []


def plain(error: Any) -> str:
    """Where it is; what it says is short."""
    assert len(error.message) < 400
    return str(error.path)


@plays("cf-28")
def lead_into_another_run(scene: Scene) -> None:
    other = scene.run(step("create_file", path="kept.txt", content="kept"), session_id="other")
    tree = scene.tree(other)
    for name in (tree.parent.name, f"../{tree.parent.name}/tree", other.run_id):
        assert how(scene.whole(OTHER_RUN=name)) == [REFUSED]
    assert [(path.name, path.read_text()) for path in tree.iterdir()] == [("kept.txt", "kept")]


@plays("iso-08")
def poison_a_cache(scene: Scene) -> None:
    cache = scene.fleet.bait.folder / "cache"
    assert [how(view) for view in scene.each()] == [[REFUSED], ["command_failed"]]
    assert [(path.name, path.read_text()) for path in cache.iterdir()] == [("result.json", "{}")]


@plays("cf-05", "cf-06", "cf-23")
def mean_something_elsewhere(scene: Scene) -> None:
    """Here it means itself."""
    view = scene.whole()
    steps = scene.steps()
    assert how(view) == [DONE] * len(steps)
    for one in steps:
        assert (scene.tree(view) / one["params"]["path"]).read_text() == one["params"]["content"]
    names = {path.name for path in scene.fleet.worker.home.iterdir()}
    assert not [name for name in names if "x.txt" in name or "stream" in name]


@plays("cf-08", "cf-09", "cf-10", "cf-18", "cf-19")
def write_through(scene: Scene) -> None:
    """Each write beside what was planted; the child is free for another run at once."""
    planted, *writes = scene.steps()
    for one in writes:
        view = scene.run(planted, one, command("true", "after", ["s1"]))
        assert how(view)[:2] == [DONE, REFUSED]
        assert plain(view.steps[1].error) == "steps.1.params.path"
        assert view.steps[2].attempt == 0
    assert scene.said("echo next") == "next\n"


@plays("cf-14")
def link_what_it_cannot_see(scene: Scene) -> None:
    view = scene.whole()
    assert (how(view)[0], view.steps[1].attempt) == ("command_failed", 0)


@plays("cf-12")
def swap_a_link(scene: Scene) -> None:
    """Forty files beside a swapper that has begun, for three rounds, and on until it was met with both ways."""
    seen: Counter[str] = Counter()
    while seen["rounds"] < 3 or not seen[DONE] or not seen[REFUSED]:
        assert seen["rounds"] < MOST_ROUNDS, seen
        seen["rounds"] += 1
        seen.update(swapped(scene))


def swapped(scene: Scene) -> list[str]:
    """How the writes of a round have ended. It stops at the first that is refused."""
    swapper, *writes = scene.steps()
    line = f": > begun; {swapper['params']['command']}"
    swapping = command(line, "swapper", [], timeout_ms=SWAPPING_MS)
    begun = command("until [ -e begun ]; do sleep 0.02; done", "begun", [])
    view = scene.run(swapping, begun, *({**one, "needs": ["begun"]} for one in writes[:40]))
    assert view.steps[0].attempt == 1
    ended = how(view)[2:]
    assert set(ended) <= {DONE, REFUSED, "workspace", "pending", "skipped", "cancelled"}, how(view)
    return ended


@plays("cf-24", "cf-25")
def run_by_itself(scene: Scene) -> None:
    """Refused by the names that a policy protects; where it protects none, nothing outside a sandbox reads them."""
    for one in scene.steps():
        if one["action"] == "create_file":
            assert how(scene.run(one, policy=PROTECTED)) == ["name_protected"]
    view = scene.whole()
    assert how(view) == [DONE] * len(scene.steps())


@plays("cf-27")
def be_the_sandbox(scene: Scene) -> None:
    """The worker's PATH has empty parts, and a folder with another bwrap that tells of each call."""
    view = scene.whole()
    assert how(view) == [DONE] * 3
    assert view.steps[2].result["sandboxed"] is True
    assert view.steps[2].result["rung"] == scene.fleet.rung
    assert not (scene.fleet.bait.folder / "calls").exists()


@plays("cf-31")
def be_open_to_all(scene: Scene) -> None:
    """The worker has no umask."""
    view = scene.whole()
    assert how(view) == [DONE] * 2
    assert said(view.steps[1]) == "600\n"
    folder = scene.tree(view)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o7777 for path in folder.iterdir()} == {0o600}


@plays("cf-29")
def fill_the_disk(scene: Scene) -> None:
    """A plan of two such files is too large for the door; then 16 KiB a file, with room for sixteen."""
    large = [step("create_file", path=f"f{number}.bin", content="x" * (1 << 20)) for number in range(2)]
    assert "MANDOR_PLAN_BYTES" in scene.turned_away(*large)
    quota = 256 << 10
    files = [step("create_file", path=f"f{number}.bin", content="x" * (16 << 10)) for number in range(20)]
    view = scene.run(*files, policy={"workspace_bytes": quota})
    assert how(view)[:17] == [DONE] * 16 + ["workspace_full"]
    assert {one.attempt for one in view.steps[17:]} == {0}
    assert sum(path.stat().st_size for path in scene.tree(view).iterdir()) == quota
    assert how(scene.run(files[0], policy={"workspace_bytes": quota})) == [DONE]
