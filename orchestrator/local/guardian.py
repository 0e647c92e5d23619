"""Ends process groups whose runner is gone.

A program of its own, run with nothing but the standard library. The runner keeps the writing end of its standard input
and writes `+GROUP` or `-GROUP` lines. When the runner ends, however it ends, the kernel closes that pipe, and the
guardian terminates what is left on its list. This reaches whole groups and works wherever there are pipes. A
parent-death signal would do neither: it is Linux only, reaches the direct child alone, follows the thread that forked,
and has to be set between fork and exec.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable

POLL_S = 0.05


def guard(lines: Iterable[str], grace_s: float) -> None:
    """Follows the runner's list until the lines end, then ends the groups on it."""
    groups: set[int] = set()
    for line in lines:
        change = groups.add if line.startswith("+") else groups.discard
        change(int(line[1:]))
    end(groups, grace_s)


def end(groups: set[int], grace_s: float) -> None:
    """SIGTERM to each group; SIGKILL to those that are still there after `grace_s` seconds."""
    left = {group for group in groups if reach(group, signal.SIGTERM)}
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = {group for group in left if reach(group, 0)}
    for group in left:
        reach(group, signal.SIGKILL)


def reach(group: int, number: int) -> bool:
    """Sends a signal to a group; False if nobody is left there."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    guard(sys.stdin, float(sys.argv[1]))
