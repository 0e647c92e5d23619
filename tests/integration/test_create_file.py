"""The hostile plans of the corpus that write files: refused at the door or in the workspace, with nothing outside.

What a case would do with run_command beforehand (planting links, pipes and folders) is done by the test: here they are
there even if a sandbox would not let a command plant them.
"""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.policy import Policy
from tests.support.environment import ROOT
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, narrowed, workbench
from workers.actions.files import create_file

CASES = {
    case["id"]: case
    for case in map(json.loads, (ROOT / "tests" / "corpora" / "hostile.jsonl").read_text(encoding="utf-8").splitlines())
}
OUTSIDE = ("cf-01", "cf-02", "cf-03", "cf-15", "cf-17", "cf-20", "cf-28", "iso-08")
ODD_NAMES = ("cf-21",)
UNREADABLE = ("log-01", "log-03", "met-02")
LITERAL = ("cf-05", "cf-06", "cf-23", "cf-27", "cf-31", "rc-49", "tpl-02", "dlq-01")
PROTECTED = ("cf-24", "cf-25")
PLANTED = ("cf-08", "cf-09", "cf-10", "cf-14", "cf-18", "cf-19")


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    made = workbench(redis_server.url, namespace, tmp_path)
    made.registry._add_action(create_file)
    return made


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A folder outside every workspace that must stay as it is."""
    folder = tmp_path / "canary"
    folder.mkdir()
    secret = folder / "secret.txt"
    secret.write_text("random")
    before = secret.stat()
    yield folder
    assert [path.name for path in folder.iterdir()] == ["secret.txt"]
    assert secret.read_text() == "random"
    assert secret.stat().st_ino == before.st_ino


def writes(name: str, canary: Path) -> list[dict[str, Any]]:
    """The create_file steps of a case, its tokens replaced."""
    case = CASES[name]
    steps = eval(case["steps_expr"], {}) if "steps_expr" in case else case["steps"]  # the corpus is our own
    text = json.dumps([{"action": s["action"], "params": s["params"]} for s in steps if s["action"] == "create_file"])
    for token in ("CANARY", "CACHE_REL", "OTHER_RUN"):
        text = text.replace(f"@@{token}@@", "../cache" if token == "CACHE_REL" else str(canary))
    found: list[dict[str, Any]] = json.loads(text)
    return found


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def run_all(bench: Workbench, steps: list[dict[str, Any]], name: str) -> Run:
    """A run of these steps, each free to start, each delivered until it has ended or failed."""
    run = bench.planned(*({**step, "needs": []} for step in steps), name=name)
    if run.state.status == "running":
        for number in range(len(steps)):
            run.deliver(f"s{number}")
    return run


@pytest.mark.parametrize("name", OUTSIDE + ODD_NAMES)
def test_a_path_that_leads_out_or_is_not_plain_fails_its_step(bench: Workbench, canary: Path, name: str) -> None:
    for number, step in enumerate(writes(name, canary)):
        run = bench.planned(step, name=f"{name}.{number}")
        run.deliver()
        assert (run.state.status, run.step().status) == ("failing", "failed")
        assert (run.error()["kind"], run.error()["path"]) == ("path_refused", "steps.0.params.path")
        assert len(run.error()["message"]) < 400
        assert str(bench.settings.home) not in run.error()["message"]
        assert not everything(bench.services.workspaces.path(run.ref.run_id))


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_path_that_nobody_could_read_never_gets_in(bench: Workbench, canary: Path, name: str) -> None:
    for number, step in enumerate(writes(name, canary)):
        run = run_all(bench, [step], f"{name}.{number}")
        assert run.state.status == "dead_lettered"
        errors = bench.letters[-1].content["attempts"][0]["errors"]
        assert [error["path"] for error in errors] == ["steps.0.params.path"]
        assert len(errors[0]["message"]) < 400
    assert not (bench.settings.home / "workspaces").exists()


@pytest.mark.parametrize("name", LITERAL)
def test_what_would_mean_something_elsewhere_is_written_as_it_is(bench: Workbench, canary: Path, name: str) -> None:
    steps = [{**step, "needs": []} for step in writes(name, canary)]
    run = run_all(bench, steps, name)
    tree = bench.services.workspaces.path(run.ref.run_id)
    for number, step in enumerate(steps):
        assert run.result(f"s{number}")["path"] == step["params"]["path"]
        written = tree / step["params"]["path"]
        assert written.read_text(encoding="utf-8") == step["params"]["content"]
        assert written.stat().st_mode & 0o7777 == 0o600
    assert all(tree in path.parents or path == tree for path in bench.settings.home.rglob("*.txt"))


@pytest.mark.parametrize("name", PROTECTED)
def test_what_other_programs_would_run_by_themselves_is_refused_unless_policy_lets_it(
    bench: Workbench, canary: Path, name: str
) -> None:
    for number, step in enumerate(writes(name, canary)):
        run = bench.planned(step, name=f"{name}.{number}")
        run.deliver()
        assert (run.state.status, run.step().status) == ("failing", "failed")
        assert (run.error()["kind"], run.error()["path"]) == ("name_protected", "steps.0.params.path")
        assert not everything(bench.services.workspaces.path(run.ref.run_id))
        free = bench.planned(step, name=f"{name}.{number}.free", policy=Policy(protected_names=frozenset()))
        free.deliver()
        assert free.result()["path"] == step["params"]["path"]


def test_a_run_of_many_files_stops_at_its_quota_and_others_go_on(bench: Workbench) -> None:
    """The case cf-29 of the corpus, a thousand times smaller."""
    steps = [
        {"action": "create_file", "params": {"path": f"f{number}.bin", "content": "x" * 1024}} for number in (1, 2)
    ]
    small = narrowed(workspace_bytes=1536)
    run, other = (bench.planned(*steps, name=name, policy=small) for name in ("run", "other"))
    for number in (0, 1):
        run.deliver(f"s{number}")
    assert run.step("s0").status == "completed"
    assert (run.error("s1")["kind"], run.error("s1")["path"]) == ("workspace_full", "steps.1.params.content")
    assert "workspace_bytes of the policy, MANDOR_WORKSPACE_BYTES" in run.error("s1")["message"]
    assert everything(bench.services.workspaces.path(run.ref.run_id)) == {"f1.bin"}
    other.deliver()
    assert other.step().status == "completed"


def plant(name: str, tree: Path, canary: Path) -> None:
    """What the case's commands would have left behind."""
    if name == "cf-08":
        (tree / "link").symlink_to(canary)
    elif name == "cf-09":
        (tree / "dangling").symlink_to(canary / "new.txt")
    elif name == "cf-10":
        (tree / "out.txt").symlink_to(canary / "secret.txt")
    elif name == "cf-14":
        os.link(canary / "secret.txt", tree / "hl")
    elif name == "cf-18":
        os.mkfifo(tree / "pipe")
    else:
        (tree / "d").mkdir()
        with socket.socket(socket.AF_UNIX) as made:
            here = Path.cwd()
            os.chdir(tree)
            made.bind("s")
            os.chdir(here)


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_not_written_through(bench: Workbench, canary: Path, name: str) -> None:
    for number, step in enumerate(writes(name, canary)):
        run = bench.planned(step, name=f"{name}.{number}")
        tree = bench.services.workspaces.open(run.ref.run_id, 1).path
        plant(name, tree, canary)
        run.deliver()
        assert run.step().status == "failed"
        assert (run.error()["kind"], run.error()["path"]) == ("path_refused", "steps.0.params.path")
        assert str(bench.settings.home) not in run.error()["message"]


def test_every_case_that_writes_a_file_is_accounted_for() -> None:
    """cf-12, cf-33: test_workspace; rc-51: there too; cf-29: test_room, and smaller here."""
    elsewhere = {"cf-12", "cf-29", "cf-33", "rc-51"}
    mentioned = {name for name, case in CASES.items() if "create_file" in json.dumps(case)}
    assert mentioned - elsewhere == {*OUTSIDE, *ODD_NAMES, *UNREADABLE, *LITERAL, *PROTECTED, *PLANTED}


def test_large_content_is_written_whole(bench: Workbench) -> None:
    """The case cf-33 writes five million bytes, more than a plan may hold; this is about the most that it may."""
    content = "y" * 1_000_000
    run = bench.planned({"action": "create_file", "params": {"path": "big.txt", "content": content}})
    run.deliver()
    assert run.result()["bytes"] == len(content)
    assert bench.services.workspaces.open(run.ref.run_id, 9).read("big.txt", max_bytes=10**7).decode() == content


def test_the_content_may_be_an_earlier_result(bench: Workbench) -> None:
    params = {"path": "a.txt", "content": "first"}
    reference = {"$result": "s0", "path": "/sha256"}
    run = bench.planned(
        {"action": "create_file", "params": params},
        {"action": "create_file", "params": {"path": "b.txt", "content": reference}},
    )
    run.deliver("s0")
    run.deliver("s1")
    assert (bench.services.workspaces.path(run.ref.run_id) / "b.txt").read_text() == run.result("s0")["sha256"]


def test_a_file_over_the_policys_limit_is_refused_before_anything_is_written(bench: Workbench) -> None:
    fits, large = (
        bench.planned(
            {"action": "create_file", "params": {"path": "a", "content": "é" * count}},
            name=f"of {count}",
            policy=narrowed(file_bytes=10),
        )
        for count in (5, 6)
    )
    fits.deliver()
    assert fits.result() is not None
    large.deliver()
    assert (large.error()["kind"], large.error()["path"]) == ("file_too_large", "steps.0.params.content")
    assert "file_bytes of the policy, MANDOR_FILE_BYTES" in large.error()["message"]
    assert not bench.services.workspaces.path(large.ref.run_id).exists()
