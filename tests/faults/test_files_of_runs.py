"""Files of runs in a whole system: scratch goes with its attempt, a workspace with its run; what is kept is shown."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli.command import run as cli
from tests.support.system import System, step
from tests.support.waiting import eventually
from workers.cli import mandor


def below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.mark.full
def test_nothing_of_a_run_is_left_but_what_its_policy_keeps(
    new_system: Callable[..., System], capsys: pytest.CaptureFixture[str]
) -> None:
    system = new_system(actions="tests.support.planting", workspace_sweep_s=0.5)
    system.start_control()
    system.start_steps(concurrency=1)
    home = system.installed.settings.home
    run_id = system.submit(
        step("test.plant", "one", []),
        step("test.plant", "failing", ["one"], refuse=True),
        step("test.plant", "after", ["failing"]),
        step("test.plant", "dying", ["after"], die=True),
        step("create_file", "report", ["dying"], path="out/report.txt", content="kept"),
        step("create_file", "draft", ["report"], path="draft.txt", content="not kept"),
        policy={"artifacts": ["out/*"], "workspace_keep_s": 0},
    )
    view = system.wait(run_id)
    assert view.status == "succeeded", view
    found = {one.id: one.result for one in view.steps if one.action == "test.plant"}
    assert [found[name]["others"] for name in ("one", "failing", "after")] == [0, 0, 0]
    assert found["one"]["pid"] == found["after"]["pid"] != found["dying"]["pid"]
    eventually(lambda: not below(home / "workspaces"), what="the workspace goes")
    eventually(lambda: not below(home / "scratch"), what="the dead attempt's scratch goes")
    (kept,) = system.view(run_id).artifacts
    assert (kept.path, kept.bytes, kept.left_out) == ("out/report.txt", 4, None)
    copy = Path(kept.place.partition(":")[2]) / kept.path
    assert copy.read_text() == "kept"
    assert cli(mandor, ["run", "show", run_id]) == 0
    shown = capsys.readouterr().out
    assert "out/report.txt" in shown
    assert "artifacts" in shown
