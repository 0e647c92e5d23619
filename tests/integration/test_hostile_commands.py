"""Every hostile command of the corpus, in both sandboxes, with what it attacks within its reach, were it not fenced in.

One sandbox runs all commands that end by themselves, one after the other; what is outside is compared before and
after. Those that do not want to end have one each. All of it by whoever runs the tests; where that is root, once more
by nobody.
"""

import os
import pty
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from schemas.policy import Policy, Rung
from tests.support.bait import MARK, Bait, laid_out
from tests.support.forks import children
from tests.support.hostile import commands, contents
from tests.support.sandboxes import (
    NEEDS_ROOT,
    Box,
    again_by_nobody,
    ladder,
    skip_without,
    those_within,
    user_of_commands,
)
from workers.outcomes import PermanentError
from workers.sandbox.host import this_host
from workers.sandbox.jobs import End, Ended, Exited, Flooded, SandboxFailed, TimedOut
from workers.workspace import PathRefused, Workspaces

SANDBOXES = (Rung.BUBBLEWRAP, Rung.NAMESPACES)
# what a command may try: to write, to read, to call, to signal, to become more than it is
REACHING = (
    *("rc-01", "rc-02", "rc-03", "rc-04", "rc-06", "rc-07", "rc-08", "rc-09", "rc-11", "rc-13", "rc-27"),
    *("rc-32", "rc-33", "rc-34", "rc-35", "rc-37", "rc-38", "rc-39", "rc-40", "rc-41", "rc-43", "rc-44", "rc-45"),
    *("rc-46", "rc-47", "rc-48", "rc-49", "cf-24", "cf-25", "cf-27", "cf-31", "iso-08", "iso-11", "iso-12", "tpl-01"),
)
PLANTING = ("cf-08", "cf-09", "cf-10", "cf-14", "cf-18", "cf-19")
# without a fence these get out, and harm nothing but the bait
REACHED_UNFENCED = ("rc-03", "rc-04", "rc-06", "rc-32", "rc-33", "rc-34", "rc-35", "rc-39", "rc-46")
EACH = """
ulimit -a > .limits-before
readlink /proc/self/ns/pid > .namespace
for one in .attacks/*; do
    sh -c "$(cat "$one")" < /dev/null > ".said/${one##*/}" 2>&1
    echo $? > ".codes/${one##*/}"
done
ulimit -a > .limits-after
"""


@dataclass(frozen=True)
class Attacked:
    """What became of a sandbox's attacks. before, after: the state of everything outside."""

    bait: Bait
    box: Box
    files: Any
    before: dict[str, Any]
    after: dict[str, Any]

    def said(self, name: str) -> str:
        """Everything that the commands of a case wrote."""
        return "".join(self._read(".said", name))

    def codes(self, name: str) -> list[int]:
        return [int(code) for code in self._read(".codes", name)]

    def _read(self, folder: str, name: str) -> list[str]:
        paths = sorted((self.box.workspace / folder).glob(f"{name}.*"))
        return [path.read_text(errors="replace") for path in paths]


@pytest.fixture(scope="module")
def bait() -> Iterator[Bait]:
    ladder()  # before the environment leads elsewhere
    with laid_out(user_of_commands()) as made:
        yield made


@pytest.fixture(scope="module", params=SANDBOXES, ids=str)
def attacked(request: pytest.FixtureRequest, bait: Bait) -> Attacked:
    return attack(request.param, bait, REACHING)


def attack(rung: Rung, bait: Bait, names: tuple[str, ...]) -> Attacked:
    """Run all commands of these cases in one sandbox; the files that they bring along are there before."""
    skip_without(rung)
    box, files = room(rung, bait)
    for folder in (".attacks", ".said", ".codes"):
        (box.workspace / folder).mkdir()
    tokens = bait.tokens(box.workspace)
    for name in names:
        for number, line in enumerate(commands(name, tokens)):
            (box.workspace / ".attacks" / f"{name}.{number}").write_text(line)
    for path, content in (file for name in names if name not in PLANTING for file in contents(name, tokens)):
        with suppress(PermanentError):  # a path that leads out, or a name that policy protects
            files.write(path, content.encode())
    before = bait.state()
    ended = box.run(EACH, timeout_s=120)
    assert ended.end == Exited(0), ended
    return Attacked(bait, box, files, before, bait.state())


def room(rung: Rung, bait: Bait) -> tuple[Box, Any]:
    """A sandbox with a run's own workspace, and the same workspace as steps write it."""
    name = f"run-{os.urandom(8).hex()}"
    files = Workspaces(bait.folder / "home").open(name, 1, policy=Policy(protected_names=frozenset()))
    return Box(rung, files.path), files


# ---- commands that reach out


@pytest.mark.parametrize("name", REACHING)
def test_nothing_outside_is_changed_and_nothing_of_it_is_told(attacked: Attacked, name: str) -> None:
    assert attacked.codes(name), "it was run"
    assert attacked.after == attacked.before
    assert MARK not in attacked.said(name)


def test_a_name_of_the_sandbox_s_program_in_the_worker_s_path_is_not_it(attacked: Attacked) -> None:
    """cf-27: PATH has empty parts and a folder with another bwrap; what commands brought is not looked at."""
    assert this_host(65_534).bubblewrap == ladder().host.bubblewrap
    assert not (attacked.bait.folder / "calls").exists()


def test_the_memory_of_what_started_it_is_out_of_reach(attacked: Attacked) -> None:
    (line,) = commands("rc-12", {})
    ended = attacked.box.run(f"exec {line}")  # the shell beside it is its own, and no secret
    assert ended.end == Exited(1)
    assert (ended.stdout.bytes, b"PermissionError" in ended.stderr.head) == (0, True)


def test_no_descriptor_of_the_worker_is_seen(attacked: Attacked) -> None:
    listed = re.findall(r"(\d+) -> (\S+)", attacked.said("rc-13"))
    assert {number for number, _ in listed} == {"0", "1", "2", "3"}
    assert dict(listed)["0"] == "/dev/null"


def test_there_is_nothing_to_read_and_no_terminal(attacked: Attacked) -> None:
    assert attacked.said("rc-27") == ""


def test_what_lies_beside_the_workspace_is_not_there(attacked: Attacked) -> None:
    siblings = re.findall(r" (\S+)$", attacked.said("rc-37"), re.MULTILINE)
    assert "workspace" in siblings
    assert not {attacked.box.workspace.parent.name, "workspaces", "other-run"} & set(siblings)


def test_other_processes_are_neither_seen_nor_signalled(attacked: Attacked) -> None:
    said = attacked.said("rc-39")
    assert not re.search("REACHABLE|HIT", said)
    assert int(said.split()[-1]) <= 6


def test_the_workspace_is_all_that_takes_a_file(attacked: Attacked) -> None:
    assert (attacked.box.workspace / "x").exists()
    assert attacked.said("rc-40").count("cannot touch") >= 3


def test_no_power_is_got(attacked: Attacked) -> None:
    assert "uid=0" not in attacked.said("rc-43")
    assert not (attacked.box.workspace / "d").is_block_device()
    assert "nested" not in attacked.said("rc-45").replace("echo nested", "")


def test_limits_stay_as_they_were(attacked: Attacked) -> None:
    before, after = ((attacked.box.workspace / f".limits-{when}").read_text() for when in ("before", "after"))
    assert before == after
    assert re.search(r"process\S*\s.*64", before)


def test_files_are_their_owner_s_alone(attacked: Attacked) -> None:
    assert attacked.said("cf-31") == "600\n"


def test_output_is_data(attacked: Attacked) -> None:
    """The end of a command is told by its process, not by what it writes."""
    assert attacked.codes("iso-11") == [0]
    assert "---RESULT---" in attacked.said("iso-11")


def test_nothing_is_put_into_a_command_s_text(attacked: Attacked) -> None:
    assert attacked.said("tpl-01").startswith(f"x; touch {attacked.bait.canary}/x")


def test_the_next_command_begins_afresh(attacked: Attacked) -> None:
    """rc-38: nothing in memory; rc-41 and rc-49: nothing in the environment."""
    lines = commands("rc-38", attacked.bait.tokens(attacked.box.workspace))
    said = attacked.box.said("\n".join((*lines, "echo; env")))
    assert "me\n" not in said
    assert set(re.findall(r"^([A-Z_]+)=", said, re.MULTILINE)) <= {"HOME", "PATH", "LANG", "TMPDIR", "PWD"}


def test_nothing_of_it_lives_on(attacked: Attacked) -> None:
    assert those_within((attacked.box.workspace / ".namespace").read_text().strip()) == []


def test_without_a_fence_the_same_is_seen_to_get_out() -> None:
    with laid_out(user_of_commands()) as bait:
        unfenced = attack(Rung.RLIMITS, bait, REACHED_UNFENCED)
        changed = {Path(key).name for key in unfenced.after if unfenced.after[key] != unfenced.before.get(key)}
        assert {"canary", "secret.txt", "x", "y", "z", "calls", "decoy"} <= changed
        assert unfenced.after["calls"] == [True, True, True]
        assert unfenced.codes("rc-34") == [0], "it has sent to whom rc-32 did"


# ---- what commands leave in the workspace for steps to write through


@pytest.mark.parametrize("rung", SANDBOXES, ids=str)
def test_what_a_command_plants_is_not_written_through(rung: Rung, bait: Bait) -> None:
    planted = attack(rung, bait, PLANTING)
    for name in PLANTING:
        for path, content in contents(name, bait.tokens(planted.box.workspace)):
            if name == "cf-14":  # the file was not there to be linked
                planted.files.write(path, content.encode())
                continue
            with pytest.raises(PathRefused) as refused:
                planted.files.write(path, content.encode())
            assert str(planted.box.workspace) not in str(refused.value)
    assert bait.state() == planted.before


@pytest.mark.parametrize("rung", SANDBOXES, ids=str)
def test_a_command_can_empty_its_workspace_and_no_other(rung: Rung, bait: Bait) -> None:
    (box, files), (_, others) = room(rung, bait), room(rung, bait)
    skip_without(rung)
    others.write("kept.txt", b"kept")
    for seen_as in (box.workspace, "/workspace"):
        (line,) = commands("rc-51", {**bait.tokens(box.workspace), "WS": seen_as})
        assert box.said(line) == "gone\n"
    assert files.write("x.txt", b"again").bytes == 5
    assert (others.path / "kept.txt").read_text() == "kept"


# ---- commands that do not want to end


@pytest.fixture(params=SANDBOXES, ids=str)
def sandbox(request: pytest.FixtureRequest, bait: Bait) -> Box:
    skip_without(request.param)
    return room(request.param, bait)[0]


def case(name: str, bait: Bait, box: Box) -> str:
    """The one command of a case; where it ran is left in the workspace."""
    (line,) = commands(name, bait.tokens(box.workspace))
    return f"readlink /proc/self/ns/pid > namespace\n{line}"


def nothing_left(box: Box) -> bool:
    return those_within((box.workspace / "namespace").read_text().strip()) == []


@pytest.mark.parametrize("name", ["rc-14", "rc-15", "rc-16"])
def test_descendants_end_with_the_command(sandbox: Box, bait: Bait, name: str) -> None:
    ended = sandbox.run(case(name, bait, sandbox), timeout_s=20)
    assert ended.end == Exited(0)
    assert nothing_left(sandbox)
    assert ended.stdout.head == (b"hi\n" if name == "rc-16" else b"")


@pytest.mark.parametrize("rung", SANDBOXES, ids=str)
def test_time_limits_are_kept_and_told(rung: Rung, bait: Bait) -> None:
    """Beside each other: rc-17 is deaf, rc-18 sleeps, rc-22 burns both cores."""
    skip_without(rung)
    limits = {"rc-17": 1.0, "rc-18": 0.5, "rc-22": 2.0}
    with ThreadPoolExecutor(len(limits)) as pool:
        for ended in pool.map(lambda name: outlasts(room(rung, bait)[0], bait, name, limits[name]), limits):
            assert ended == TimedOut()


def outlasts(box: Box, bait: Bait, name: str, timeout_s: float) -> End:
    """Run a case against its time limit, and see that it was looked after until all of it had ended."""
    looked: list[None] = []
    ended = box.run(case(name, bait, box), timeout_s=timeout_s, grace_s=1.0, check=lambda: looked.append(None))
    assert nothing_left(box)
    assert len(looked) > 5
    return ended.end


@pytest.mark.full
def test_a_fork_bomb_is_bounded_and_others_work_meanwhile(sandbox: Box, bait: Bait) -> None:
    beside, _ = room(sandbox.rung, bait)
    bomb: list[Ended] = []
    line = case("rc-20", bait, sandbox) + "; sleep 1"
    thrower = threading.Thread(target=lambda: bomb.append(sandbox.run(line, timeout_s=20)))
    thrower.start()
    assert beside.run("echo fine").stdout.head == b"fine\n"
    thrower.join()
    assert 0 < int(bomb[0].stdout.head) <= 64
    assert nothing_left(sandbox)


@pytest.mark.full
def test_a_hog_of_memory_fails_alone(sandbox: Box, bait: Bait) -> None:
    ended = sandbox.run(case("rc-21", bait, sandbox), timeout_s=20)
    assert ended.end != Exited(0)
    assert b"MemoryError" in ended.stderr.head
    assert nothing_left(sandbox)


def test_a_flood_is_ended_and_costs_no_memory(sandbox: Box, bait: Bait) -> None:
    before = _resident_kib()
    ended = sandbox.run(case("rc-23", bait, sandbox), timeout_s=20, output_bytes=1 << 20)
    assert ended.end == Flooded()
    assert len(ended.stdout.head + ended.stdout.tail) <= 8192
    assert _resident_kib() - before < 50 * 1024
    assert nothing_left(sandbox)


def _resident_kib() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def test_bytes_and_long_lines_are_taken_as_they_are(sandbox: Box, bait: Bait) -> None:
    ended = sandbox.run("\n".join(case(name, bait, sandbox) for name in ("rc-25", "rc-26")))
    assert ended.end == Exited(0)
    assert ended.stdout.bytes == len(b"\377\376\000\355\240\200 end") + 3_000_000
    assert b" end" in ended.stdout.head
    assert ended.stdout.tail == b"a" * 4096


@pytest.mark.full
def test_no_zombie_is_left(sandbox: Box, bait: Bait) -> None:
    before = children()
    assert sandbox.run(case("rc-30", bait, sandbox), timeout_s=30).end == Exited(0)
    assert children() == before


def test_a_line_that_is_too_long_is_not_started(sandbox: Box, bait: Bait) -> None:
    (line,) = commands("rc-31", {})
    with pytest.raises(SandboxFailed) as failed:
        sandbox.run(line)
    assert (failed.value.doing, failed.value.number) == ("exec", 7)


def test_a_worker_s_terminal_is_not_the_command_s(sandbox: Box, bait: Bait) -> None:
    """rc-28, by a process that has one."""
    line = case("rc-28", bait, sandbox)
    pid, terminal = pty.fork()
    if pid == 0:
        with suppress(BaseException):
            ended = sandbox.run(line, timeout_s=20)
            os.write(1, b"said " + ended.stdout.head)
        os._exit(0)
    try:
        said = _all_of(terminal)
    finally:
        os.waitpid(pid, 0)
        os.close(terminal)
    assert re.search(rb"said rc=[1-9]", said), said


def _all_of(terminal: int) -> bytes:
    said = b""
    with suppress(OSError):  # a terminal whose last user has gone
        while chunk := os.read(terminal, 4096):
            said += chunk
    return said


def test_whom_it_kills_is_still_its_own(sandbox: Box, bait: Bait, monkeypatch: pytest.MonkeyPatch) -> None:
    """rc-52: a number is only killed while its process cannot have been buried, so that nobody else can have it."""
    killed: list[int] = []
    kill = os.killpg

    def watched(group: int, number: int) -> None:
        os.waitid(os.P_PID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises if it was buried
        killed.append(group)
        kill(group, number)

    def never(*_: int) -> None:
        raise AssertionError("by its number alone, whose it is nobody knows")

    monkeypatch.setattr(os, "killpg", watched)
    monkeypatch.setattr(os, "kill", never)
    for line in commands("rc-52", {}):
        assert sandbox.run(line).end == Exited(0)
    assert len(killed) == 2


# ---- by somebody else


@pytest.mark.full
@NEEDS_ROOT
def test_all_of_this_by_a_user_who_is_not_root() -> None:
    again_by_nobody(__file__)
