"""Ctrl-C in programs that start others: in a process of its own, which gets a real signal."""

import signal
import subprocess
import sys

from tests.support.environment import ROOT, clean_environment

BEGIN = """
import os, signal, sys, time
from orchestrator.local.interrupts import Interrupts

interrupts = Interrupts()
interrupts.install()

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
"""
LOST = """
Dying()
print("lost", flush=True)
time.sleep(60)
"""
HEARD = """
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    interrupts.ignore()
    time.sleep(2)
    print("cleaned up")
"""


def ran(script: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", BEGIN + script]
    return subprocess.run(
        argv, check=False, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=30
    )


def test_an_interrupt_that_python_drops_comes_again() -> None:
    ended = ran(LOST)
    assert ended.stdout == "lost\n"
    assert ended.stderr.startswith("Exception ignored in: <function Dying.__del__")
    assert ended.returncode == -signal.SIGINT


def test_one_that_was_heard_disturbs_nobody_who_cleans_up() -> None:
    ended = ran(HEARD)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "cleaned up\n", "")
