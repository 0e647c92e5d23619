"""Sandboxes of this machine, as a worker of the user who runs the tests finds them."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
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
SECRET: Final = "s3cr3t-value"
NEEDS_ROOT: Final = pytest.mark.may_skip(os.geteuid() != 0)  # to become another user; root has no excuse
LIBRARIES: Final = os.pathsep.join((str(ROOT), sysconfig.get_paths()["purelib"]))
# for one process and what it starts: of a closed folder nothing is left but the Python below it, where it was
_OPEN: Final = """
mount --bind "$0" /mnt && mount -t tmpfs -o mode=755 tmpfs "$1" && mkdir -p "$0" && mount --bind /mnt "$0" &&
shift && exec "$@"
"""
LIMITS: Final = Limits(
    timeout_s=10,
    grace_s=0.3,
    cpu_s=10,
    memory_bytes=512 << 20,
    processes=64,
    kept_bytes=4096,
    output_bytes=4 << 20,
    file_bytes=256 << 20,
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


def canary_in(folder: Path) -> Path:
    """A folder outside, which everybody may write."""
    canary = folder / "canary"
    canary.mkdir()
    canary.chmod(0o777)
    (canary / "secret.txt").write_text(SECRET)
    (canary / "secret.txt").chmod(0o666)
    return canary


def user_of_commands() -> int:
    """Whom they run as here."""
    uid = ladder().host.uid
    return os.geteuid() if uid is None else uid


def again_by_nobody(tests: str) -> None:
    """The same tests, by a user who is not root. Skipped if one of them is, which says why."""
    others = ("-k", "not by_a_user_who_is_not_root")
    done = as_nobody("-m", "pytest", "-q", "-rs", "--noconftest", "-p", "no:cacheprovider", *others, tests, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    *reasons, summary = done.stdout.splitlines()
    assert " passed" in summary or " skipped" in summary
    if " skipped" in summary:
        pytest.skip("\n".join(reasons)[-3000:])


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
    """This Python with our libraries, by a user who is not root."""
    return _run([*needed_python_of(NOBODY), *argv], cwd, env)


def needed_python_of(user: int) -> tuple[str, ...]:
    """What starts it so; the test is skipped where that cannot be."""
    python = _python_of(user)
    if python is None:
        pytest.skip("the tests are not run by root, or nobody but root can start this Python")
    return python


def _run(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    given = {"PYTHONPATH": LIBRARIES, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1", **env}
    return subprocess.run(argv, env=given, cwd=cwd, capture_output=True, text=True, check=False)


@cache
def _python_of(user: int) -> tuple[str, ...] | None:
    """What starts this very Python as an ordinary user, arguments to follow; None where that cannot be."""
    prefix, python = os.path.realpath(sys.base_prefix), os.path.realpath(sys.executable)
    closed = next((one for one in reversed(Path(prefix).parents) if not one.stat().st_mode & 0o001), None)
    opened = ("unshare", "--mount", "sh", "-c", _OPEN, prefix, str(closed)) if closed else ()
    become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
    program = (*opened, *become, python)
    return program if os.geteuid() == 0 and _starts(program) else None


def _starts(python: Sequence[str]) -> bool:
    says = "import sys, pytest, redis, workers.sandbox.ladder; print(sys.version)"
    try:
        return _run([*python, "-c", says], Path("/"), {}).stdout.strip() == sys.version
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
