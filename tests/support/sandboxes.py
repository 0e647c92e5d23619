"""Sandboxes of this machine, as a worker of the user who runs the tests finds them."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.settings import Settings
from schemas.policy import Rung
from workers.sandbox.jobs import Ended, Job, Limits
from workers.sandbox.ladder import Ladder, find
from workers.sandbox.ownership import hand_to
from workers.sandbox.running import run

ROOT: Final = Path(__file__).resolve().parents[2]  # this module is used where the libraries of others are missing
NOBODY: Final = 65_534
LIMITS: Final = Limits(
    timeout_s=10, grace_s=0.3, memory_bytes=512 << 20, processes=64, kept_bytes=4096, output_bytes=4 << 20
)


@cache
def ladder() -> Ladder:
    """What works here, the last rung included."""
    return find(Settings(min_rung=Rung.RLIMITS))


@dataclass(frozen=True)
class Box:
    """One rung, and a workspace of its own. folder: that of the workspace, which no command may leave."""

    rung: Rung
    workspace: Path

    def run(self, command: str, *, check: Callable[[], None] = lambda: None, **limits: Any) -> Ended:
        """A line for the shell."""
        return self.start("/bin/sh", "-c", command, check=check, **limits)

    def start(self, *argv: str, check: Callable[[], None] = lambda: None, **limits: Any) -> Ended:
        """A program with its arguments."""
        host = ladder().host
        hand_to(self.workspace, host.uid, host.gid)
        return run(self.rung, host, Job(argv, self.workspace, replace(LIMITS, **limits)), check)

    def said(self, command: str, **limits: Any) -> str:
        """Everything that it writes, in that order."""
        return self.run(f"exec 2>&1; {command}", **limits).stdout.head.decode(errors="replace")


def box(rung: Rung, folder: Path) -> Box:
    """A sandbox of this rung; the test is skipped where this machine has none."""
    skip_without(rung)
    workspace = folder / "workspace"
    workspace.mkdir(mode=0o700)
    return Box(rung, workspace)


def skip_without(rung: Rung) -> None:
    """The test is skipped where this machine has no such sandbox."""
    if rung not in ladder().working:
        pytest.skip(f"no {rung} here: {ladder().missing[rung]}")


def user_of_commands() -> int:
    """Whom they run as here."""
    uid = ladder().host.uid
    return os.geteuid() if uid is None else uid


def again_by_nobody(tests: str) -> None:
    """The same tests, by a user who is not root."""
    done = as_nobody("-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", tests, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def those_within(namespace: str) -> list[int]:
    """Processes that live in this process namespace, as /proc/self/ns/pid calls it."""
    processes = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in processes if _namespace(entry) == namespace]


def _namespace(process: Path) -> str:
    try:
        return str((process / "ns" / "pid").readlink())
    except OSError:
        return ""


def alive(mark: str) -> list[int]:
    """Processes of this machine whose command line has this in it."""
    processes = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in processes if mark.encode() in _command_line(entry)]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def as_nobody(*argv: str, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    """This Python, or another of the same release, with our libraries, by a user who is not root."""
    python = python_of_nobody()
    if python is None:
        pytest.skip("the tests are not run by root, or nobody but root can start a Python of this release")
    return _by_nobody(python, *argv, cwd=cwd, **env)


def _by_nobody(*argv: str, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    paths = os.pathsep.join((str(ROOT), sysconfig.get_paths()["purelib"]))
    return subprocess.run(
        argv,
        env={"PYTHONPATH": paths, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1", **env},
        cwd=cwd,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )


@cache
def python_of_nobody() -> str | None:
    """One that an ordinary user can start, and that sees our libraries; None where there is none."""
    release = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = (sys.executable, f"/usr/bin/{release}", f"/usr/local/bin/{release}")
    return next(filter(_starts, candidates), None) if os.geteuid() == 0 else None


def _starts(python: str) -> bool:
    try:
        return _by_nobody(python, "-c", "import workers.sandbox.ladder, pytest", cwd=Path("/")).returncode == 0
    except OSError:
        return False


def found_behind(filter_lines: str) -> dict[str, Any]:
    """The ladder as a process finds it that first runs these lines; each missing rung with its reason."""
    program = f"""
import json
from orchestrator.settings import Settings
from workers.sandbox import ladder
from workers.sandbox.inside import kernel, seccomp
{filter_lines}
found = ladder.find(Settings())
print(json.dumps({{"working": found.working, "missing": dict(found.missing)}}))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
