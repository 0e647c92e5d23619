"""Whether a process of the same user can look into one that has closed itself, seen by processes of our own."""

import subprocess
import sys

import pytest

from tests.support.environment import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process close itself")
PROGRAM = """
import ctypes, os, subprocess
from workers import privacy
if os.geteuid() == 0:  # who may look into everything
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)

def sees(pid):
    told = [f"/proc/{pid}/{name}" for name in ("environ", "maps")]
    return [subprocess.run(["cat", path], capture_output=True).returncode == 0 for path in told]

print(sees(os.getpid()), flush=True)
print(privacy.close(), sees(os.getpid()), flush=True)
if os.fork() == 0:
    print(sees(os.getpid()), flush=True)
    os._exit(0)
os.wait()
other = subprocess.Popen(["sleep", "9"])
print(sees(other.pid), flush=True)
other.kill()
"""


def test_only_root_looks_into_a_worker_and_its_forks() -> None:
    argv = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(argv, check=True, cwd=ROOT, capture_output=True, text=True, timeout=30)
    open_, closed = "[True, True]", "[False, False]"
    assert done.stdout.splitlines() == [open_, f"True {closed}", closed, open_]
