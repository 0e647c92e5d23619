"""The parts of `mandor up`: what it starts, in which order it stops, how long it pauses, who holds a home."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli.prefixed import Lines
from orchestrator.local import ChildFailed, Command, Runner, procfile
from orchestrator.local.crew import Crew, pause_s, stages
from orchestrator.local.lock import Lock
from orchestrator.settings import read_settings
from tests.support.environment import ROOT
from tests.support.waiting import eventually

PATIENT = "import signal; print('service.ready', flush=True); signal.pause()"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {PATIENT}; signal.pause()"


# ---- the Procfile


def test_what_is_started_are_the_procfiles_own_lines() -> None:
    lines = (ROOT / "Procfile").read_text().splitlines()
    commands = procfile.commands({"A": "b"})
    assert [command.name for command in commands] == [line.partition(":")[0] for line in lines]
    for command, line in zip(commands, lines, strict=True):
        words = " ".join(command.argv)
        for script, module in procfile.MODULES.items():
            words = words.replace(f"{sys.executable} -m {module}", script)
        assert words == shlex.join(shlex.split(line.partition(":")[2]))
        assert command.env == {"A": "b"}


def test_only_the_command_itself_becomes_a_module() -> None:
    assert procfile.argv("env A=celery celery -Q celery") == [
        "env", "A=celery", sys.executable, "-m", "celery", "-Q", "celery"
    ]  # fmt: skip
    assert procfile.argv("redis-server --port 1") == ["redis-server", "--port", "1"]


def test_comments_and_empty_lines_are_no_processes() -> None:
    assert list(procfile.lines("# a: b\n\nweb:  run it : now\nnothing\n")) == [("web", "run it : now")]


# ---- order and pauses


def test_the_way_in_stops_first_and_the_watchers_last() -> None:
    names = [name for name, _ in procfile.lines(procfile.procfile().read_text())]
    assert stages(names) == [
        ["control"],
        ["beat"],
        ["planner", "steps", "supervise", "deliver"],
        ["exporter", "flower"],
    ]
    assert stages(["steps", "metrics"]) == [["steps"], ["metrics"]]
    assert stages([]) == []


def test_pauses_double_up_to_half_a_minute() -> None:
    assert [pause_s(failures) for failures in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert pause_s(10_000) == 30


class Told(list[str]):
    """What a crew said."""

    def has(self, text: str) -> bool:
        return any(text in line for line in self)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def runner() -> Iterator[Runner]:
    with Runner(lambda name, line: None, grace_s=5) as runner:
        yield runner


def crew_of(runner: Runner, told: Told, grace_s: float = 5, **programs: str) -> Crew:
    commands = [
        Command(name, [sys.executable, "-c", program], ready=procfile.READY) for name, program in programs.items()
    ]
    crew = Crew(runner, commands, told.append, grace_s=grace_s)
    crew.start()
    return crew


def tended(crew: Crew) -> bool:
    crew.tend()
    return True


def test_a_killed_process_is_started_again(runner: Runner, told: Told) -> None:
    crew = crew_of(runner, told, steps=PATIENT)
    eventually(lambda: crew.not_ready() == [])
    first = runner.child("steps").pid
    os.kill(first, signal.SIGKILL)
    eventually(lambda: tended(crew) and told.has("steps was killed (SIGKILL); it starts again in 1 s"))
    assert crew.not_ready() == ["steps"]
    eventually(lambda: tended(crew) and crew.not_ready() == [])
    assert runner.child("steps").pid != first


def test_one_that_refuses_to_start_is_not_tried_again(runner: Runner, told: Told) -> None:
    crew = crew_of(runner, told, steps="raise SystemExit(2)")
    runner.child("steps").wait(20)
    with pytest.raises(ChildFailed, match="steps refuses to start"):
        crew.tend()


def test_a_stage_is_over_before_the_next_begins(runner: Runner, told: Told) -> None:
    crew = crew_of(runner, told, flower=PATIENT, beat=PATIENT, control=PATIENT)
    eventually(lambda: crew.not_ready() == [])
    crew.drain(lambda: False)
    assert told == ["stopping control", "stopping beat", "stopping flower"]
    assert runner.running() == []


def test_one_that_does_not_stop_is_killed_after_its_grace(runner: Runner, told: Told) -> None:
    crew = crew_of(runner, told, grace_s=0.2, steps=DEAF)
    eventually(lambda: crew.not_ready() == [])
    crew.drain(lambda: False)
    assert told == ["stopping steps", "steps did not stop in time and is killed"]


def test_a_hurry_ends_the_rest_at_once(runner: Runner, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.local.crew.HURRY_S", 0.2)
    crew = crew_of(runner, told, grace_s=60, control=DEAF, steps=DEAF)
    eventually(lambda: crew.not_ready() == [])
    crew.drain(lambda: told.has("stopping control"))
    assert told[:2] == ["stopping control", "ending control, steps at once"]
    assert runner.running() == []


# ---- the home


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "up.lock"
    program = (
        f"from pathlib import Path; from orchestrator.local.lock import Lock; Lock(Path({str(path)!r})).take(); input()"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, env=env) as other:
        eventually(lambda: Lock(path).holder() == other.pid)
        ours = Lock(path)
        assert not ours.take()
        other.kill()
    assert ours.take()
    assert ours.holder() == os.getpid()
    ours.release()


def test_the_guardian_holds_what_it_is_given_until_the_last_child_is_gone(tmp_path: Path) -> None:
    ours, other = Lock(tmp_path / "crew.lock"), Lock(tmp_path / "crew.lock")
    assert ours.take()
    with Runner(lambda name, line: None, guardian_holds=[ours.descriptor]) as runner:
        runner.start(Command("a", [sys.executable, "-c", PATIENT]))
        ours.release()
        assert not other.take()
    assert other.take()
    other.release()


@pytest.fixture
def home_with_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "server.conf").write_text("bind 127.0.0.1\nport 4711\nrequirepass geheim\n")
    monkeypatch.setenv("MANDOR_HOME", str(tmp_path))
    return tmp_path


def test_the_homes_own_server_is_found(home_with_server: Path) -> None:
    given = read_settings()
    assert given.redis_url == "redis://:geheim@127.0.0.1:4711/0"
    assert given.broker == given.redis_url
    assert given.embedded


def test_a_named_server_wins(home_with_server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANDOR_REDIS_URL", "redis://elsewhere/0")
    given = read_settings()
    assert (given.redis_url, given.embedded) == ("redis://elsewhere/0", False)


def test_a_home_without_a_server_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANDOR_HOME", str(tmp_path))
    assert read_settings().redis_url == "redis://127.0.0.1:6379/0"


# ---- the screen


def test_lines_bear_names_and_obey_nothing() -> None:
    out = io.StringIO()
    lines = Lines(out, as_json=False, on_gone=lambda: None)
    lines.line("steps", "one \x1b[2J")
    lines.line("steps", "  ")
    lines.say("ready")
    assert out.getvalue() == "steps     | one \\x1b[2J\nmandor    | ready\n"


def test_json_is_an_object_a_line() -> None:
    out = io.StringIO()
    Lines(out, as_json=True, on_gone=lambda: None).line("steps", "one")
    assert json.loads(out.getvalue()) == {"process": "steps", "line": "one"}


def test_a_reader_that_is_gone_is_noticed_once() -> None:
    gone: list[None] = []

    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    lines = Lines(Closed(), as_json=False, on_gone=lambda: gone.append(None))
    lines.say("one")
    lines.say("two")
    assert len(gone) == 1
