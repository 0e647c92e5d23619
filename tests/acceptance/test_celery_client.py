"""`orchestrator.client.Client` in a program of its own, on an installation of real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from schemas.canonical import hash_of
from tests.support.environment import clean_environment
from tests.support.installation import Installation, installation
from tests.support.servers import Server
from tests.support.waiting import eventually

PROGRAM = """
import json, sys
from orchestrator.client import Client
from orchestrator.errors import MandorError

client = Client()
for name, given in json.load(sys.stdin):
    try:
        answer = getattr(client, name)(**given)
        shown = answer if isinstance(answer, str) else answer.model_dump(mode="json")
    except MandorError as error:
        shown = error.as_json()
    print(json.dumps(shown), flush=True)
"""


def calls(env: dict[str, str], cwd: Path, *given: tuple[str, dict[str, Any]]) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=env,
        cwd=cwd,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def environment(ours: Installation, **changes: Any) -> dict[str, str]:
    given = {"redis_url": ours.settings.redis_url, "home": ours.settings.home, **changes}
    return clean_environment(**given)


def ready(name: str = "a") -> dict[str, Any]:
    step = {"action": "create_file", "id": name, "params": {"path": f"{name}.txt", "content": "x"}}
    return {"plan": json.dumps({"plan_id": str(uuid4()), "context_hash": hash_of({}), "steps": [step]})}


def test_submit_waits_for_the_answer_and_raises_what_it_says(ours: Installation, tmp_path: Path) -> None:
    plan = ready()
    first, again, conflict, bad = calls(
        environment(ours),
        tmp_path,
        ("submit", {**plan, "request_id": "c1"}),
        ("submit", {**plan, "request_id": "c1"}),
        ("submit", {**ready(), "request_id": "c1"}),
        ("submit", {**plan, "nope": 1}),
    )
    assert (first["created"], again["created"]) == (True, False)
    assert first["run_id"] == again["run_id"]
    assert conflict["kind"] == "conflict"
    assert first["run_id"] in conflict["message"]
    assert (bad["kind"], bad["path"]) == ("submission_refused", "nope")


def test_what_the_worker_refuses_reaches_the_caller_with_its_own_mend(ours: Installation, tmp_path: Path) -> None:
    untold, widened = calls(
        environment(ours),
        tmp_path,
        ("submit", {**ready(), "callback": "https://example.com/hooks"}),
        ("submit", {**ready(), "policy": {"max_steps": 5000}}),
    )
    assert (untold["kind"], untold["path"]) == ("submission_refused", "callback")
    assert untold["hint"].startswith("set MANDOR_WEBHOOK_SECRETS")
    assert (widened["kind"], widened["path"]) == ("submission_refused", "policy.max_steps")
    assert "mandor config policy" in widened["hint"]


def test_send_knows_the_run_before_anybody_has_answered(ours: Installation, tmp_path: Path) -> None:
    (run_id,) = calls(environment(ours), tmp_path, ("send", ready()))
    ((answer),) = calls(environment(ours), tmp_path, ("wait", {"run_id": run_id, "timeout_s": 30}))
    assert (answer["run_id"], answer["status"]) == (run_id, "succeeded")
    assert [step["status"] for step in answer["steps"]] == ["completed"]


def test_a_run_nobody_accepted_is_not_found(ours: Installation, tmp_path: Path) -> None:
    (answer,) = calls(environment(ours), tmp_path, ("show", {"run_id": "0190aa6e-5f1c-8a3e-9d5b-2f6c1d7e8a90"}))
    assert answer["kind"] == "not_found"


def test_without_a_control_worker_the_caller_learns_its_run_id(ours: Installation, tmp_path: Path) -> None:
    env = environment(ours, queue_prefix="nobody-here.")
    (answer,) = calls(env, tmp_path, ("submit", {**ready(), "timeout_s": 0.3}))
    assert answer["kind"] == "no_answer"
    assert "the run will be" in answer["message"]


def test_a_broker_that_is_away_is_said_in_seconds(ours: Installation, tmp_path: Path) -> None:
    env = environment(ours, broker_url="redis://127.0.0.1:1/0", store_timeout_s=1)
    (answer,) = calls(env, tmp_path, ("submit", ready()))
    assert answer["kind"] == "broker_unavailable"


def test_a_result_store_that_ends_while_the_answer_is_awaited_is_named(
    new_server: Callable[[], Server], tmp_path: Path
) -> None:
    """Nobody consumes the submission: it lies in the queue, and the caller is told which run it will be."""
    server = new_server()
    with installation(server.url, tmp_path / "home") as made:
        killer = threading.Thread(target=_kill_when_sent, args=(server, made.queue("control")))
        killer.start()
        (said,) = calls(environment(made), tmp_path, ("submit", {**ready(), "timeout_s": 20}))
        killer.join()
    assert said["kind"] == "no_answer"
    assert re.search(r"the result store went away: .*; the run will be [0-9a-f-]{36}$", said["message"])


def _kill_when_sent(server: Server, queue: str) -> None:
    eventually(lambda: server.client.llen(queue))
    os.kill(server.pid, signal.SIGKILL)
