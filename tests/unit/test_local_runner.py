"""The process runner: order, readiness, and no child that outlives anybody."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.local import ChildFailed, Command, Runner
from orchestrator.local.guardian import reach

PATIENT = "import signal; print('up'); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); signal.pause(); signal.pause()"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]).wait()"


def python(name: str, program: str, ready: str | None = None) -> Command:
    return Command(name, [sys.executable, "-c", program], ready=ready)


def wait_until(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Heard:
    """Lines as the runner reported them."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.news = threading.Event()

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        self.news.set()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def runner(heard: Heard) -> Iterator[Runner]:
    with Runner(heard, grace_s=5) as runner:
        yield runner


def test_output_is_reported_line_by_line_under_the_childs_name(runner: Runner, heard: Heard) -> None:
    child = runner.start(python("a", "import sys; print('one'); print('two', file=sys.stderr); print('half', end='')"))
    assert child.wait(20) == 0
    assert heard.lines == [("a", "one"), ("a", "two"), ("a", "half")]


def test_a_child_is_ready_when_it_says_so(runner: Runner) -> None:
    runner.start(python("a", PATIENT, ready="^up$")).wait_ready(20)
    assert runner.running() == ["a"]


def test_a_child_that_ends_before_it_is_ready_is_shown_with_its_last_words(runner: Runner) -> None:
    child = runner.start(python("a", "print('no such table'); raise SystemExit(3)", ready="^up$"))
    with pytest.raises(ChildFailed, match=r"(?s)a: ended with status 3.*no such table"):
        child.wait_ready(20)


def test_a_child_that_is_never_ready_is_not_waited_for_longer_than_said(runner: Runner) -> None:
    child = runner.start(python("a", PATIENT, ready="^done$"))
    with pytest.raises(ChildFailed, match=r"not ready within 0\.1 s"):
        child.wait_ready(0.1)


def test_a_command_that_does_not_exist_is_refused_by_name(runner: Runner) -> None:
    with pytest.raises(ChildFailed, match="ghost"):
        runner.start(Command("ghost", ["/nowhere/ghost"]))


def test_a_name_belongs_to_one_running_child(runner: Runner) -> None:
    runner.start(python("a", PATIENT))
    with pytest.raises(ChildFailed, match="a runs already"):
        runner.start(python("a", PATIENT))
    runner.kill("a")
    runner.start(python("a", PATIENT))
    assert runner.running() == ["a"]


def test_stop_leaves_the_others_running(runner: Runner) -> None:
    for name in ("a", "b", "c"):
        runner.start(python(name, PATIENT, ready="up")).wait_ready(20)
    runner.stop("a", "b")
    assert runner.running() == ["c"]
    assert runner.child("a").poll() == -signal.SIGTERM


def test_leaving_stops_the_last_started_first(heard: Heard) -> None:
    program = "import signal, sys; signal.signal(15, lambda *_: sys.exit(print('bye'))); print('up'); signal.pause()"
    with Runner(heard) as runner:
        for name in ("server", "worker", "beat"):
            runner.start(python(name, program, ready="up")).wait_ready(20)
    assert [name for name, line in heard.lines if line == "bye"] == ["beat", "worker", "server"]


def test_who_ignores_sigterm_is_killed_after_the_grace(heard: Heard) -> None:
    with Runner(heard, grace_s=0.2) as runner:
        child = runner.start(python("a", STUBBORN, ready="up"))
        child.wait_ready(20)
        runner.stop("a")
        assert child.poll() == -signal.SIGKILL


def test_descendants_end_with_the_child_that_started_them(runner: Runner) -> None:
    child = runner.start(python("a", PARENT, ready="up"))
    child.wait_ready(20)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(20) == -signal.SIGKILL
    wait_until(lambda: not reach(child.pid, 0))


def test_children_end_when_the_runner_is_killed(tmp_path: Path) -> None:
    program = f"""
import sys, signal
from orchestrator.local import Command, Runner
runner = Runner(lambda name, line: None, grace_s=0.2)
child = runner.start(Command("a", [sys.executable, "-c", {PARENT!r}], ready="up"))
child.wait_ready(20)
print(child.pid, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        group = int(starter.stdout.readline())
        starter.kill()
    wait_until(lambda: not reach(group, 0))


@pytest.mark.parametrize("killed", [True, False])
def test_a_group_that_somebody_else_started_ends_with_the_runner(killed: bool) -> None:
    program = """
import sys
from orchestrator.local import Runner
with Runner(lambda name, line: None, grace_s=0.2) as runner:
    runner.end_with_us(int(sys.argv[1]))
    print("ready", flush=True)
    input()
"""
    stranger = subprocess.Popen([sys.executable, "-c", PATIENT], start_new_session=True, stdout=subprocess.DEVNULL)
    argv, pipes = (
        [sys.executable, "-c", program, str(stranger.pid)],
        {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE},
    )
    with subprocess.Popen(argv, text=True, **pipes) as starter:  # type: ignore[call-overload]
        assert starter.stdout.readline() == "ready\n"
        assert stranger.poll() is None
        starter.kill() if killed else starter.communicate("\n")
    assert stranger.wait(20) == -signal.SIGTERM
