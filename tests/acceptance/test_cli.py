"""The command line as a person or a script meets it, against a running system.

What submits runs in a process of its own; what only reads is called in this one, because a process takes a second to
start.
"""

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from orchestrator import submission
from orchestrator.cli.command import run
from orchestrator.cli.reach import WAIT_S
from orchestrator.releases import release
from orchestrator.telemetry.logs import identity
from schemas.canonical import hash_of
from schemas.run import RunView
from tests.support.environment import ROOT, clean_environment
from tests.support.installation import installation
from tests.support.servers import Server, frozen, running_server
from tests.support.system import System, plan_text, running_system, step
from tests.support.waiting import eventually
from workers.cli import mandor

pytestmark = pytest.mark.timeout(180)
RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LISTING = """
import sys
from datetime import UTC, datetime, timedelta
from orchestrator.client import Client
from schemas.states import RunStatus
hour_ago = datetime.now(UTC) - timedelta(hours=1)
page = Client().runs(session_id=sys.argv[1], status=RunStatus.FAILED, action="test.flaky", since=hour_ago)
print(*(run.run_id for run in page.runs))
"""
NO_RUN = "00000000-0000-8000-8000-000000000000"


@pytest.fixture(scope="module")
def server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server"), server_kind) as started:
        yield started


@pytest.fixture(scope="module")
def running(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running_system(server.url, tmp_path_factory.mktemp("cli")) as started:
        started.start_control()
        started.start_steps()
        yield started


@pytest.fixture
def system(running: System) -> Iterator[System]:
    """The running system, whose settings are also this process's own for the length of a test."""
    with running.installed.in_force():
        yield running


def process(
    env: Mapping[str, str], *arguments: str, stdin: str = "", timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-W", "error", "-m", "workers.cli", *arguments]
    done = subprocess.run(
        argv, env=dict(env), cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def submitted(system: System, plan: str, *arguments: str, code: int = 0) -> Any:
    """What `run submit --plan - … --json` answers."""
    done = process(system.processes.env, "run", "submit", "--plan", "-", *arguments, "--json", stdin=plan)
    assert done.returncode == code, done
    return json.loads(done.stdout)


def text(*arguments: str, code: int = 0) -> str:
    """What a command prints for people. Its settings are those of the running system, which are in the environment."""
    with redirect_stdout(io.StringIO()) as out:
        assert run(mandor, arguments) == code, out.getvalue()
    return out.getvalue()


def answer(*arguments: str, code: int = 0) -> Any:
    """What a command prints for programs."""
    return json.loads(text(*arguments, "--json", code=code))


def settled(system: System, plan: str, **fields: Any) -> RunView:
    """A run of this plan that has ended, submitted without the command line."""
    return system.wait(system.send({"plan": plan, **fields}))


def echo_plan(value: str = "hello", **params: Any) -> str:
    return plan_text(step("test.echo", "one", value=value, **params), step("test.echo", "two", value="2"))


def test_submit_and_wait_prints_the_final_run(system: System) -> None:
    found = submitted(system, echo_plan(), "--wait", "--session", "s")
    assert (found["status"], found["created"], found["session_id"], found["reason"]) == ("succeeded", True, "s", None)
    assert [one["status"] for one in found["steps"]] == ["completed", "completed"]
    assert found["steps"][0]["result"] == {"value": "hello"}
    assert {"plan_id", "plan_hash", "context_hash", "policy_hash", "compensations", "dead_letters"} <= set(found)
    assert hash_of(found["policy"]) == found["policy_hash"]
    assert found["limits"]["test.echo"]["attempts"] == found["policy"]["limits"]["attempts"] == 3


def test_submit_prints_nothing_but_the_id(system: System) -> None:
    done = process(system.processes.env, "run", "submit", "--plan", "-", stdin=echo_plan())
    assert RUN_ID.fullmatch(done.stdout.strip())
    assert done.stderr == ""


def test_show_events_and_result_of_a_run(system: System) -> None:
    run_id = settled(system, echo_plan("a\x1b[2Jb")).run_id
    shown = text("run", "show", run_id)
    assert "status   succeeded" in shown
    assert re.search(r"^max_steps +1000$", shown, re.MULTILINE)
    assert re.search(r"^test\.echo +3 +60 +\d+ +1 +60$", shown, re.MULTILINE)
    assert "\x1b" not in shown
    results = text("run", "result", run_id)
    assert results.splitlines() == ['one: {"value": "a\\u001b[2Jb"}', 'two: {"value": "2"}']
    two = {"run_id": run_id, "step_id": "two", "result": {"value": "2"}}
    assert answer("run", "result", run_id, "two") == two
    assert answer("run", "result", run_id, "three", code=1)["error"]["kind"] == "not_found"


def test_events_are_one_object_a_line(system: System) -> None:
    run_id = settled(system, echo_plan()).run_id
    found = [json.loads(line) for line in text("run", "events", run_id, "--json").splitlines()]
    assert [event["version"] for event in found] == list(range(1, len(found) + 1))
    assert found[0]["event"] == "run.accepted"
    assert found[-1]["event"] == "run.succeeded"
    committed = [event for event in found if event["event"] == "step.committed"]
    assert [event["step_id"] for event in committed] == ["one", "two"]
    assert all(event["worker_id"] and event["policy_hash"] and event["fence"] for event in committed)
    assert "step.committed" in text("run", "events", run_id)


def test_a_failed_run_answers_no_and_says_why(system: System) -> None:
    plan = plan_text(step("test.flaky", "bad", failures=0, for_good=True), step("test.echo", value="x"))
    found = submitted(system, plan, "--wait", code=1)
    assert (found["status"], [one["status"] for one in found["steps"]]) == ("failed", ["failed", "skipped"])
    assert found["steps"][0]["error"]["message"] == "it will never work"
    assert "it will never work" in text("run", "show", found["run_id"])


def test_a_planner_that_is_not_there_is_named(system: System) -> None:
    done = process(system.processes.env, "run", "submit", "--planner", "nobody", "--wait")
    assert done.returncode == 1
    assert "no planner is called 'nobody'" in done.stdout


def test_a_refused_plan_leaves_a_letter(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    raw = plan_text(step("test.echo", value=3), step("frob\u202e"))
    run_id = settled(system, raw).run_id
    run_shown = answer("run", "show", run_id)
    (letter,) = run_shown["dead_letters"]
    assert (run_shown["reason"], run_shown["error"]["kind"]) == ("payload_drift", "payload_drift")
    assert run_shown["error"]["path"] == "steps.0.params.value"
    assert run_shown["error"]["message"].endswith(" (and 1 more fault)")
    assert re.search(
        r"(?m)^error +payload_drift: steps\.0\.params\.value: .* \(and 1 more fault\)$", text("run", "show", run_id)
    )
    assert f"mandor dlq show {letter['id']}" in capsys.readouterr().err
    listed = answer("dlq", "list", "--kind", "plan", "--limit", "1")
    assert (listed["dead_letters"][0]["id"], listed["dead_letters"][0]["run_id"]) == (letter["id"], run_id)
    shown = answer("dlq", "show", letter["id"])
    assert shown["attempts"][0]["raw"] == raw
    assert "steps.0.params.value" in [error["path"] for error in shown["attempts"][0]["errors"]]
    for_people = text("dlq", "show", letter["id"])
    assert "steps.0.params.value" in for_people
    assert "\u202e" not in for_people
    assert answer("dlq", "show", "nonsense", code=1)["error"]["kind"] == "not_found"


def test_the_pages_of_the_letters_are_complete(system: System) -> None:
    for _ in range(3):
        settled(system, "no plan")
    seen: list[str] = []
    before: list[str] = []
    while True:
        page = answer("dlq", "list", "--limit", "2", *before)
        seen += [letter["id"] for letter in page["dead_letters"]]
        if page["next"] is None:
            break
        before = ["--before", page["next"]]
    assert len(seen) == len(set(seen)) >= 3
    assert set(seen) == {letter.id for letter in system.installed.ledger.letters(1000)}


def test_the_same_request_is_one_run_and_another_content_a_conflict(system: System) -> None:
    plan = echo_plan()
    first = submitted(system, plan, "--request-id", "nightly")
    again = submitted(system, plan, "--request-id", "nightly")
    assert (again["run_id"], again["created"]) == (first["run_id"], False)
    other = submitted(system, echo_plan(), "--request-id", "nightly", code=1)
    assert (other["error"]["kind"], other["error"]["path"]) == ("conflict", "request_id")
    assert "another request_id" in other["error"]["hint"]
    assert first["run_id"] in other["error"]["message"]


def test_the_same_content_is_one_run_whoever_sends_it_and_however_it_is_spelt(system: System, tmp_path: Path) -> None:
    """A Celery program sends an object, a terminal the text of a file, and each spells it in its way."""
    order = {"card": "4111", "prices": [1200]}
    plan = json.loads(echo_plan()) | {"context_hash": hash_of(order)}
    fields = {"plan": json.dumps(plan), "request_id": "order-17"}
    first = system.send({**fields, "context": order})
    (tmp_path / "order.json").write_text(json.dumps(order, indent=2))
    from_file = ("--context-file", str(tmp_path / "order.json"))
    for spelt in (from_file, ("--context", '{"prices":[1200.0],"card":"4111"}'), ("--context", json.dumps(order))):
        again = submitted(system, fields["plan"], "--request-id", "order-17", *spelt)
        assert (again["run_id"], again["created"]) == (first, False)
    other = submitted(system, fields["plan"], "--request-id", "order-17", "--context", '{"card": "4111"}', code=1)
    assert other["error"]["kind"] == "conflict"


def test_a_submission_that_does_not_fit_is_refused_before_it_is_sent(system: System) -> None:
    refused = submitted(system, echo_plan(), "--context", "[1]", code=1)
    assert (refused["error"]["kind"], refused["error"]["path"]) == ("submission_refused", "context")
    assert answer("run", "submit", code=2)["error"]["kind"] == "usage"


def test_a_run_that_redis_has_forgotten_is_shown_from_the_ledger(system: System, server: Server) -> None:
    run_id = settled(system, echo_plan()).run_id
    ledger = system.installed.ledger
    eventually(lambda: (row := ledger.run(run_id)) and row.ended_at)
    eventually(lambda: (told := ledger.history.run(run_id)) and told.status == "succeeded", what="the last transition")
    before = answer("run", "show", run_id)
    server.client.unlink(*server.client.keys(f"*{run_id}*"))
    assert answer("run", "show", run_id) == before
    assert [one["status"] for one in before["steps"]] == ["completed", "completed"]


@pytest.mark.parametrize("run_id", [NO_RUN, "nonsense", "../../etc"])
def test_a_run_that_never_was(system: System, run_id: str) -> None:
    error = answer("run", "show", run_id, code=1)["error"]
    assert (error["kind"], error["path"]) == ("not_found", "run_id")


def test_a_reader_that_goes_away_is_no_fault(system: System) -> None:
    run_id = settled(system, echo_plan()).run_id
    command = f'"{sys.executable}" -m workers.cli run events {run_id} --json | head -1'
    done = subprocess.run(
        ["sh", "-c", command], env=system.processes.env, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["event"] == "run.accepted"


def test_a_reader_that_is_gone_is_not_taken_for_a_no(system: System) -> None:
    """Under pipefail, "refused" and "nobody listened" are two things."""
    command = f'"{sys.executable}" -m workers.cli config show | true; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", command], env=system.processes.env, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == ("141", "")


def test_the_ledger_commands(system: System) -> None:
    assert answer("ledger", "upgrade")["shards"] == 0
    assert answer("ledger", "verify")["shards"] == 0


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, env: Mapping[str, str], *arguments: str) -> None:
        self._screen, inside = pty.openpty()
        argv = [sys.executable, "-m", "workers.cli", *arguments]
        self.process = subprocess.Popen(
            argv, env={**env, "TERM": "xterm-256color"}, cwd=ROOT, stdin=inside, stdout=inside, stderr=inside
        )
        os.close(inside)
        self.text = ""

    def read(self) -> str:
        """What was shown so far."""
        while select.select([self._screen], [], [], 0.05)[0]:
            try:
                piece = os.read(self._screen, 65_536)
            except OSError:  # nobody holds the other side any more
                break
            if not piece:
                break
            self.text += piece.decode()
        return self.text

    def end(self) -> int:
        """Read to the end; answers the exit code."""
        eventually(lambda: self.read() is not None and self.process.poll() is not None)
        self.read()
        os.close(self._screen)
        return self.process.wait()


def slow_plan(folder: Path, seconds: float) -> str:
    path = folder / "slow.json"
    path.write_text(plan_text(step("test.note", "slow", value="x", hold_s=seconds), step("test.echo", value="y")))
    return str(path)


def test_on_a_terminal_the_progress_moves_and_the_result_has_colours(system: System, tmp_path: Path) -> None:
    terminal = Terminal(system.processes.env, "run", "submit", "--plan", slow_plan(tmp_path, 1.5), "--wait")
    eventually(lambda: "0 of 2 steps, 1 running" in terminal.read())
    assert terminal.end() == 0
    assert "\x1b[32msucceeded\x1b[0m" in terminal.text


def test_watching_on_a_terminal_shows_the_steps_and_leaves_the_last_picture(system: System, tmp_path: Path) -> None:
    system.processes.freeze("steps")
    try:
        run_id = system.send({"plan": Path(slow_plan(tmp_path, 1.5)).read_text()})
        terminal = Terminal(system.processes.env, "run", "watch", run_id)
        eventually(lambda: re.search(r"slow.*dispatched", terminal.read()), timeout_s=60)
    finally:
        system.processes.thaw("steps")
    eventually(lambda: re.search(r"slow.*running.*of 3", terminal.read()))
    assert terminal.end() == 0
    picture = terminal.text.rpartition(run_id)[2]
    assert "2 of 2 steps" in picture
    assert re.search(r"slow.*completed", picture)
    assert "\x1b[?25h" in terminal.text


def test_no_colour_where_none_is_wanted(system: System) -> None:
    run_id = settled(system, echo_plan()).run_id
    plain = Terminal({**system.processes.env, "NO_COLOR": "1"}, "run", "show", run_id)
    assert plain.end() == 0
    assert "\x1b[3" not in plain.text
    assert "succeeded" in plain.text


def test_watching_in_a_pipe_prints_a_line_for_each_change(system: System) -> None:
    plan = plan_text(step("test.flaky", "bad", failures=0, for_good=True), step("test.echo", "last", value="x"))
    run_id = system.send({"plan": plan})
    lines = [line.split(maxsplit=1)[1] for line in text("run", "watch", run_id, code=1).splitlines()]
    assert lines[0].split() == ["run", "accepted"]
    assert any(re.match(r"bad +failed +after .*: it will never work", line) for line in lines)
    assert re.match(r"run +failed +0 of 2 steps, 1 failed, 1 skipped", lines[-1])


def test_watching_for_programs_tells_all_of_a_run_and_ends_with_it(system: System) -> None:
    run_id = system.send({"plan": echo_plan()})
    found = [json.loads(line) for line in text("run", "watch", run_id, "--json").splitlines()]
    assert [one["version"] for one in found[:-1]] == list(range(1, len(found)))
    moves = [(move["step_id"], move["status"]) for one in found[:-1] for move in one["moves"]]
    assert [status for step_id, status in moves if step_id == "two"] == ["ready", "dispatched", "running", "completed"]
    assert (found[-1]["event"], found[-1]["status"], found[-1]["counts"]) == ("end", "succeeded", {"completed": 2})


def test_a_run_that_is_only_in_the_ledger_is_watched_too(system: System, server: Server) -> None:
    """Accepted and not yet in the store; or ended and forgotten by it."""
    run_id = settled(system, echo_plan()).run_id
    eventually(lambda: (row := system.installed.ledger.run(run_id)) and row.ended_at)
    server.client.unlink(*server.client.keys(f"*{run_id}*"))
    assert re.search(r"run +succeeded +after", text("run", "watch", run_id))
    assert answer("run", "watch", run_id)["status"] == "succeeded"
    assert answer("run", "watch", NO_RUN, code=1)["error"]["kind"] == "not_found"


def test_watching_may_have_an_end_of_its_own(system: System, tmp_path: Path) -> None:
    run_id = system.send({"plan": Path(slow_plan(tmp_path, 2)).read_text()})
    lines = text("run", "watch", run_id, "--timeout", "0.3", "--json", code=1).splitlines()
    assert json.loads(lines[-1])["error"]["kind"] == "timeout"
    assert system.wait(run_id).status == "succeeded"


def test_the_list_has_every_run_newest_first_and_how_it_stands(system: System, tmp_path: Path) -> None:
    oldest = settled(system, echo_plan()).run_id
    done = settled(system, echo_plan(), session_id="shop").run_id
    failed = settled(system, "no plan").run_id
    going = system.send({"plan": Path(slow_plan(tmp_path, 3)).read_text()})
    eventually(lambda: system.view(going).status == "running")
    page = answer("run", "list", "--limit", "3")
    assert [run["run_id"] for run in page["runs"]] == [going, failed, done]
    assert [run["status"] for run in page["runs"]] == ["running", "dead_lettered", "succeeded"]
    assert (page["runs"][0]["source"], page["runs"][2]["session_id"]) == ("store", "shop")
    older = answer("run", "list", "--before", page["next"])
    assert older["runs"][0]["run_id"] == oldest
    assert {run["run_id"] for run in older["runs"]}.isdisjoint({going, failed, done})
    assert answer("run", "list", "--before", NO_RUN, code=1)["error"]["path"] == "before"
    shown = text("run", "list", "--limit", "2").splitlines()
    assert shown[0].split() == ["id", "status", "age", "planner", "session", "reason"]
    assert shown[1].split()[:2] == [going, "running"]
    system.wait(going)


def test_runs_are_found_by_what_they_are(system: System) -> None:
    session = f"shop-{uuid4()}"
    done = settled(system, echo_plan(), session_id=session).run_id
    bad = plan_text(step("test.flaky", "s", failures=9, for_good=True))
    failed = settled(system, bad, session_id=session).run_id

    def found(*options: str) -> list[str]:
        page = answer("run", "list", "--session", session, *options)
        return [run["run_id"] for run in page["runs"]]

    (error,) = [one.error.kind for one in system.view(failed).steps if one.error]
    eventually(lambda: found("--error", error) == [failed], what="the end in the ledger")
    assert found() == [failed, done]
    assert found("--status", "succeeded") == [done]
    assert found("--status", "running") == []
    assert found("--action", "test.echo") == [done]
    assert found("--action", "test.flaky", "--since", "1h") == [failed]
    assert found("--until", "1h") == found("--planner", "nobody") == []
    assert text("run", "list", "--session", session, "--status", "cancelled") == ""
    client = [sys.executable, "-c", LISTING, session]
    done_by_client = subprocess.run(
        client, env=system.processes.env, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done_by_client.stdout.split() == [failed]


def test_the_list_names_the_planner_of_each_run(system: System) -> None:
    run_id = system.send({"planner": "nobody", "context": {"planner": "another"}})
    system.wait(run_id)
    assert answer("run", "list", "--limit", "1")["runs"][0]["planner"] == "nobody"


def test_without_the_store_the_list_is_the_ledger_s(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = system.send({"plan": Path(slow_plan(tmp_path, 6)).read_text()})
    monkeypatch.setenv("MANDOR_REDIS_URL", "redis://127.0.0.1:1/0")
    (run,) = answer("run", "list", "--limit", "1")["runs"]
    assert (run["run_id"], run["status"], run["source"]) == (run_id, "accepted", "ledger")
    assert "open runs are shown as the ledger knows them" in capsys.readouterr().err


def test_ctrl_c_stops_following_and_the_run_goes_on(system: System, tmp_path: Path) -> None:
    terminal = Terminal(system.processes.env, "run", "submit", "--plan", slow_plan(tmp_path, 3), "--wait")
    eventually(lambda: "1 running" in terminal.read())
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "the run goes on; `mandor run watch" in terminal.text.replace("\r\n", "")
    assert "Traceback" not in terminal.text
    assert "\x1b[?25h" in terminal.text, "the cursor must be visible again"
    found = RUN_ID.search(terminal.text)
    assert found
    assert system.wait(found[0]).status == "succeeded"


def test_following_ends_when_its_time_is_up(system: System, tmp_path: Path) -> None:
    arguments = ("run", "submit", "--plan", slow_plan(tmp_path, 3), "--wait", "--timeout", "0.5", "--json")
    done = process(system.processes.env, *arguments)
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "timeout"
    assert "mandor run show" in error["hint"]


# ---- without services


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    return clean_environment(redis_url="redis://:hunter2@127.0.0.1:1/0", home=tmp_path / "home")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "submit", "--planner", "x"),
        ("run", "show", NO_RUN),
        ("run", "events", NO_RUN),
        ("run", "watch", NO_RUN),
        ("run", "list"),
        ("dlq", "list"),
        ("ledger", "upgrade"),
        ("ledger", "verify"),
    ],
)
def test_a_service_that_is_away_is_named_within_seconds(nowhere: dict[str, str], arguments: tuple[str, ...]) -> None:
    began = time.monotonic()
    done = process(nowhere, *arguments, "--json", timeout_s=30)
    assert done.returncode == 3, done
    assert json.loads(done.stdout)["error"]["hint"]
    assert "hunter2" not in done.stdout + done.stderr
    assert time.monotonic() - began < 20


@pytest.mark.full
@pytest.mark.timeout(240)
def test_a_server_that_says_nothing_is_given_up_on_for_people(new_server: Callable[[], Server], tmp_path: Path) -> None:
    """All tries together have the time that a worker gives to one, and the pauses between."""
    silent, patience_s, pauses_s = new_server(), 2.0, 0.75
    with installation(silent.url, tmp_path, store_timeout_s=patience_s) as ours:
        with identity(job_id="task-1"):
            read = submission.read({"planner": "x"}, ours.settings)
            run_id = submission.submit(ours.app, ours.store, ours.ledger, ours.settings, read, "task-1").run_id
        with frozen(silent):
            for arguments in (
                ("run", "show", run_id),
                ("run", "why", run_id),
                ("run", "cancel", run_id),
                ("ledger", "verify"),
            ):
                began = time.monotonic()
                error = answer(*arguments, code=3)["error"]
                assert time.monotonic() - began < 2 * (patience_s + pauses_s), arguments
                assert (error["kind"], error["hint"][:16]) == ("store_unavailable", "is Redis running")
            began = time.monotonic()  # it writes, and has what a worker has
            assert answer("ledger", "upgrade", code=3)["error"]["kind"] == "store_unavailable"
            assert time.monotonic() - began < 2 * (4 * patience_s + pauses_s)
            began = time.monotonic()
            assert answer("run", "submit", "--planner", "x", code=3)["error"]["kind"] == "broker_unavailable"
            assert time.monotonic() - began < 2 * WAIT_S


def test_the_version() -> None:
    done = process(clean_environment(), "--version")
    assert done.stdout == f"mandor {release('mandor')}\n"
