"""What descendants leave behind, seen by a process of its own: the test's would adopt for the rest of its life."""

import subprocess
import sys
from textwrap import dedent

import pytest

from tests.support.environment import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt what others leave")

BEGIN = """
    import os, subprocess, time
    from workers import orphans

    def left_behind(seconds):
        out = subprocess.run(["sh", "-c", f"setsid sleep {seconds} >&2 & echo $!"], capture_output=False,
                             stdout=subprocess.PIPE, check=True).stdout
        return int(out)

    def states():
        return dict(orphans._children())

    def becomes_zombie(pid):
        while states().get(pid) != b"Z":
            time.sleep(0.01)
"""


def run(script: str) -> None:
    text = dedent(BEGIN) + dedent(script)
    argv = [sys.executable, "-c", text]
    done = subprocess.run(argv, check=False, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_orphans_end_and_no_others() -> None:
    """What ran before, and what the process says is its own, goes on."""
    run("""
        before = subprocess.Popen(["sleep", "600"])
        assert orphans.adopt()
        own = subprocess.Popen(["sleep", "600"])
        orphan = left_behind(600)
        assert orphan in states()
        assert orphans.end_all({own.pid}, 5.0)
        assert set(states()) == {before.pid, own.pid}
        assert (before.poll(), own.poll()) == (None, None)
        before.kill(), own.kill()
    """)


def test_an_orphan_that_ended_is_let_go_and_a_child_may_still_be_asked() -> None:
    run("""
        assert orphans.adopt()
        orphan = left_behind(600)  # one that ends at once may have been let go of by its shell
        os.kill(orphan, 9)
        becomes_zombie(orphan)
        orphans.bury()
        assert orphan in states()
        orphans.bury()
        assert orphan not in states()
        child = subprocess.Popen(["sh", "-c", "exit 3"])
        becomes_zombie(child.pid)
        orphans.bury()
        assert child.wait() == 3
    """)


def test_what_does_not_end_in_time_is_told() -> None:
    run("""
        assert orphans.adopt()
        orphan = left_behind(600)
        kill, os.kill = os.kill, lambda pid, signal: None
        assert not orphans.end_all(set(), 0.05)
        kill(orphan, 9)
    """)
