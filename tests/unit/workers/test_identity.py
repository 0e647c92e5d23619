"""A process and its parent call it the same."""

import os
import subprocess
import sys

from tests.support.environment import clean_environment
from workers.identity import child_id, process_id, worker_id

SAY = "from workers.identity import worker_id; print(worker_id(), flush=True); input()"


def test_parent_and_child_agree() -> None:
    argv = [sys.executable, "-c", SAY]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, env=clean_environment(), **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline().strip() == child_id(child.pid)
        child.communicate("\n")


def test_a_process_that_is_gone_is_not_mistaken_for_another() -> None:
    """Where the start time can be read, a pid that was given out again is another process."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    assert child_id(child.pid) == process_id(child.pid, os.getpid())
    assert child_id(child.pid).endswith(f":{child.pid}:p{os.getpid()}")


def test_it_has_three_parts() -> None:
    host, pid, start = worker_id().split(":")
    assert host
    assert int(pid) == os.getpid()
    assert start
