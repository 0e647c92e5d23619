"""Dead letters as people deal with them: by commands, some in processes of their own, and two of them at once."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.command import run
from tests.support.drifting import HOSTILE
from tests.support.environment import ROOT, clean_environment
from tests.support.installation import Installation, installation
from tests.support.letters import letter_about, refused_run
from tests.support.servers import Server
from tests.support.shell import Said, Shell, shell_in
from tests.support.up import Up, running_up
from workers.cli import mandor

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]
ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def ours(redis_server: Server, namespace: str, home: Path) -> Iterator[Installation]:
    with installation(redis_server.url, home, namespace=namespace, queue_prefix=f"{namespace}.", shards=1) as made:
        yield made


def refused_plan(ours: Installation, number: int, planner: str = "drift.drifts", reason: str = "not a list") -> str:
    """The letter about a run whose plan was refused."""
    ref = refused_run(ours, {"planner": planner, "goal": "greet"}, f"task-{number}")
    errors = [{"path": f"steps.{number}", "kind": "list_type", "message": reason}]
    attempts = [{"raw": f'{{"steps": "{HOSTILE}"}}', "errors": errors}]
    return letter_about(ours, ref, reason, planner=planner, attempts=attempts)


def says(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(mandor, ["dlq", *arguments]) == code
    return capsys.readouterr().out


def answers(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    return json.loads(says(capsys, *arguments, "--json", code=code))


def test_letters_are_listed_by_what_they_say(ours: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    letters = [refused_plan(ours, number) for number in range(3)]
    other = refused_plan(ours, 9, planner="other.planner", reason=HOSTILE)
    page = answers(capsys, "list", "--groups", "--limit", "1")
    (newest,) = page["groups"]
    assert (newest["count"], newest["newest_id"], newest["planner"]) == (1, other, "other.planner")
    following = answers(capsys, "list", "--groups", "--before", page["next"])
    (group,) = following["groups"]
    assert (group["count"], group["newest_id"], following["next"]) == (3, letters[-1], None)
    assert group["fingerprint"] in says(capsys, "list", "--planner", "drift.drifts")
    one_by_one = answers(capsys, "list", "--fingerprint", group["fingerprint"])["dead_letters"]
    assert [letter["id"] for letter in one_by_one] == letters[::-1]
    assert answers(capsys, "list", "--kind", "step")["dead_letters"] == []
    assert run(mandor, ["dlq", "list", "--groups", "--before", "nonsense"]) == 2
    assert not UNSAFE.search(says(capsys, "list") + says(capsys, "list", "--each") + says(capsys, "show", other))


def test_letters_are_exported_whole_as_lines(ours: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    letters = [refused_plan(ours, number) for number in range(3)]
    ours.ledger.triage.drop(letters[0], ours.settings.namespace, "ann", "a test")
    lines = [json.loads(line) for line in says(capsys, "export").splitlines()]
    assert [line["id"] for line in lines] == letters[::-1]
    assert lines[0]["attempts"][0]["raw"] == f'{{"steps": "{HOSTILE}"}}'
    (decision,) = lines[2]["decisions"]
    assert (decision["decision"], decision["by"], decision["reason"]) == ("drop", "ann", "a test")
    assert [line["id"] for line in map(json.loads, says(capsys, "export", "--status", "open").splitlines())] == letters[
        :0:-1
    ]


def started(ours: Installation, *arguments: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    argv = [sys.executable, "-m", "workers.cli", "dlq", *arguments, "--json"]
    env = {**clean_environment(actions="tests.support.drifting"), **ours.variables}
    return subprocess.Popen(argv, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answered(process: subprocess.Popen[str], code: int = 0) -> Any:
    out, err = process.communicate(timeout=90)
    assert process.returncode == code, out + err
    return json.loads(out)


def test_two_people_at_once_replay_a_letter_once(ours: Installation) -> None:
    letter = refused_plan(ours, 1)
    people = [started(ours, "replay", letter, "--by", name) for name in ("ann", "bob")]
    told = [answered(one) for one in people]
    (first,) = [one for one in told if one["made"]]
    assert {(one["run_id"], one["by"], one["carried_out"]) for one in told} == {(first["run_id"], first["by"], True)}
    assert len(ours.ledger.listed(9)) == 2


def test_many_letters_are_dealt_with_by_what_they_say(ours: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    letters = {refused_plan(ours, number) for number in range(3)}
    (group,) = answers(capsys, "list", "--groups")["groups"]
    replay = ("replay", "--fingerprint", group["fingerprint"])
    foreseen = answers(capsys, *replay, "--dry-run")
    assert ({one["letter_id"] for one in foreseen["letters"]}, foreseen["count"]) == (letters, 3)
    assert "3 letters" in answers(capsys, *replay, code=2)["error"]["message"]
    assert "did you mean llm" in answers(capsys, *replay, "--planner", "lm", code=2)["error"]["message"]
    assert len(ours.ledger.listed(9)) == 3
    done = answered(started(ours, *replay, "--planner", "drift.careful", "--yes"))["letters"]
    assert ({one["letter_id"] for one in done}, len({one["run_id"] for one in done})) == (letters, 3)
    assert [run.planner for run in ours.ledger.listed(3)] == ["drift.careful"] * 3
    assert answers(capsys, "drop", *replay[1:], "--reason", "no use") == {"letters": []}


# ---- a whole triage, at a terminal


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    folder = tmp_path / "work"
    with running_up(folder, clean_environment(actions="tests.support.drifting", sweep_s=0.5)) as started_up:
        yield started_up.wait_ready()


@pytest.fixture
def shell(up: Up) -> Iterator[Shell]:
    with shell_in(up.folder, up.env) as opened:
        yield opened


def editor(folder: Path, old: str, new: str) -> str:
    """An editor that changes one thing."""
    script = folder / "editor.py"
    script.write_text(
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[3])\n"
        "text = file.read_text()\n"
        "assert sys.argv[1] in text, text\n"
        "file.write_text(text.replace(sys.argv[1], sys.argv[2]))\n"
    )
    return f"EDITOR='{sys.executable} {script} {old} {new}'"


def found(pattern: str, said: Said, code: int = 0) -> str:
    """What a pattern finds in what was said, which nothing hostile is part of."""
    assert said.code == code, said
    assert HOSTILE not in said.text
    match = re.search(pattern, said.text)
    assert match is not None, (pattern, said.text)
    return match[1] if match.groups() else match[0]


@pytest.mark.timeout(600)
def test_from_a_drifting_planner_to_runs_that_succeed(up: Up, shell: Shell) -> None:
    for _ in range(2):
        found("dead_lettered", shell.run("mandor run submit --planner drift.drifts --wait"), code=1)
    said = shell.run("mandor dlq list")
    group = found(r"(?m)^\W*([0-9a-f]{12}) +2 ", said)
    one, other = re.findall(rf"(?m)^({ID}) ", shell.run(f"mandor dlq list --fingerprint {group}").text)
    found(r"steps\.0\.params\.greeting: ", shell.run(f"mandor dlq show {one}"))

    # a mistake in the editor costs nothing, and what was written is there again
    wrong = editor(up.folder, '"greeting\\": 3"', '"greeting\\": 4"')
    said = shell.run(f"{wrong} mandor dlq edit {one}")
    found(r"steps\.0\.params\.greeting", said, code=1)
    kept = Path(found(r"kept in (\S+)", said, code=1))
    assert kept.stat().st_mode & 0o777 == 0o600
    right = editor(up.folder, '"greeting\\": 4"', '"greeting\\": \\"four\\""')
    run_id = found(ID, shell.run(f"{right} mandor dlq edit {one}"))
    assert not kept.exists()
    found("succeeded", shell.run(f"mandor run watch {run_id}"))
    assert found(r"was first, at ", shell.run(f"mandor dlq replay {one} --by bob"))

    # the other one is planned anew by somebody else
    foreseen = found(rf"submit run ({ID})", shell.run(f"mandor dlq replay {other} --planner drift.careful --dry-run"))
    assert found(ID, shell.run(f"mandor dlq replay {other} --planner drift.careful")) == foreseen
    found("succeeded", shell.run(f"mandor run watch {foreseen}"))
    found("no dead letters that are open", shell.run("mandor dlq list"))
