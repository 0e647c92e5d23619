"""Submissions from a process that does not have our code, on an installation of real processes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator.lookup import Lookup
from schemas.canonical import hash_of
from schemas.dead_letter import DeadLetterKind
from schemas.run import RunView
from schemas.states import RUN_TERMINAL, RunStatus
from tests.support.environment import clean_environment
from tests.support.installation import Installation, installation
from tests.support.processes import Processes
from tests.support.servers import Server
from tests.support.waiting import eventually

STRANGER = Path(__file__).with_name("foreign_client.py")
ODD = {"id": {"__type__": "uuid", "__value__": {"hex": "ff"}}, "when": {"__type__": "nobody's", "__value__": [1]}}


def send(ours: Installation, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    given = {"broker": ours.settings.broker, "results": ours.settings.results, "calls": calls}
    env = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-I", str(STRANGER)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def plan(context: dict[str, Any], *steps: dict[str, Any]) -> str:
    return json.dumps({"plan_id": str(uuid4()), "context_hash": hash_of(context), "steps": steps})


def write(name: str, content: str = "x", **fields: Any) -> dict[str, Any]:
    return {"action": "create_file", "id": name, "params": {"path": f"{name}.txt", "content": content}, **fields}


def ended(ours: Installation, run_id: str) -> RunView:
    lookup = Lookup(ours.ledger, ours.store)

    def look() -> RunView | None:
        view = lookup.run(run_id)
        row = lookup.find(run_id)
        return view if view.status in RUN_TERMINAL and row.ended_at else None

    found = eventually(look, timeout_s=40, what=f"the end of run {run_id}")
    assert found is not None
    return found


def test_a_stranger_submits_and_the_run_ends(ours: Installation, running: Processes) -> None:
    said = len(running.lines())
    diamond = plan(ODD, write("a"), write("b", needs=["a"]), write("c", needs=["a"]), write("d", needs=["b", "c"]))
    bare = {"kwargs": {"plan": diamond, "context": ODD}}
    named = {"kwargs": {"plan": diamond, "context": ODD, "request_id": "r"}, "queue": "mandor.control"}
    wrong = {"kwargs": {"plan": diamond, "context": ODD, "nope": 1, "self": 2}}
    conflicting = {"kwargs": {"plan": diamond, "context": ODD, "request_id": "r", "goal": "other"}}
    first, second, third = send(ours, bare, named, wrong)
    (fourth,) = send(ours, conflicting)  # once the one that it disagrees with is accepted

    for accepted in (first, second):
        assert accepted.get("answer", accepted).get("created") is True
        view = ended(ours, accepted["answer"]["run_id"])
        assert (view.status, [step.status for step in view.steps]) == (RunStatus.SUCCEEDED, ["completed"] * 4)
        # untouched: the hash of the context is the hash of what was sent
        assert view.context_hash == hash_of(ODD)
    kind, text = third["error"]
    assert kind == "SubmissionRefused"
    assert "nope" in text
    assert "self" in text
    assert fourth["error"][0] == "SubmissionConflict"
    (letter,) = ours.ledger.letters(10, kind=DeadLetterKind.SUBMISSION)
    assert letter.content["submission"]["context"] == ODD
    quiet(running, said)


def test_fifty_identical_submissions_are_one_run(ours: Installation) -> None:
    call = {"kwargs": {"plan": plan({}, write("a")), "request_id": "same"}}
    answers = [line["answer"] for line in send(ours, *[call] * 50)]
    assert len({answer["run_id"] for answer in answers}) == 1
    assert sum(answer["created"] for answer in answers) == 1
    assert ended(ours, answers[0]["run_id"]).status == RunStatus.SUCCEEDED
    assert [run.request_id for run in ours.ledger.listed(60)].count("same") == 1


def test_chord_keys_deleted_in_the_middle_change_nothing(ours: Installation, running: Processes) -> None:
    said = len(running.lines())
    steps = [write(f"s{i}", needs=[f"s{i - 1}"] if i else []) for i in range(12)]
    (line,) = send(ours, {"kwargs": {"plan": plan({}, *steps)}})
    run_id = line["answer"]["run_id"]
    client = ours.app.backend.client
    eventually(lambda: client.keys(f"celery-taskset-meta-{run_id}*"))
    client.delete(*client.keys(f"celery-taskset-meta-{run_id}*"))
    view = ended(ours, run_id)
    assert (view.status, {step.attempt for step in view.steps}) == (RunStatus.SUCCEEDED, {1})
    quiet(running, said)


def quiet(processes: Processes, since: int) -> None:
    """Since then no process has told of an error, and Celery's backend of nothing at all."""
    lines = processes.lines()[since:]
    assert [line for line in lines if '"level":"error"' in line or "Traceback" in line] == []
    assert [line for line in lines if "celery.backends" in line] == []


def test_killed_between_the_ledger_and_the_ack_it_is_one_run(new_server: Callable[[], Server], tmp_path: Path) -> None:
    """No request_id: the redelivered message names the same run."""
    server = new_server()
    env = clean_environment(redis_url=server.url, home=tmp_path / "home", log_format="json", embedded=1)
    env.update(REMAP_SIGTERM="SIGQUIT", KILL_ONCE=str(tmp_path / "killed"))
    argv = (
        "-m",
        "celery",
        "-A",
        "tests.support.dying_control",
        "worker",
        "-n",
        "control@%h",
        "-Q",
        "control",
        "-c",
        "1",
    )
    with installation(server.url, tmp_path / "home", embedded=1) as made, Processes(env, tmp_path) as processes:
        processes.python("control", *argv, ready=r"\bready\.")
        (line,) = send(made, {"kwargs": {"plan": plan({}, write("a"))}})
        assert (tmp_path / "killed").exists()
        (row,) = made.ledger.listed(10)
        assert line["answer"] == {"run_id": row.run_id, "status": "accepted", "created": True}
