"""Tests that must not hurt the machine if what they test fails: in namespaces of their own.

Inside there are no other processes and no network but the loopback; what is mounted there is mounted for nobody else.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.environment import ROOT

STRANGER: Final = 61_537  # a user who has nothing on this machine
_APART: Final = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc", "--uts")
_UNSHARE: Final = ("unshare", *_APART, "sh", "-c", '"$@"; exit $?', "fence")
_SET_FLAGS, _IS_UP = 0x8914, 0x1  # SIOCSIFFLAGS, IFF_UP


def pass_in_a_fence(*arguments: str) -> None:
    """These tests, as pytest takes them, pass in there; the one who asks is skipped where there can be no fence."""
    if os.geteuid() != 0 or subprocess.run([*_UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("only root can put up the fence, and not everywhere")
    pytest_of_its_own = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")
    argv = [*_UNSHARE, *pytest_of_its_own, *arguments]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]


def furnish(secret: str) -> None:
    """What a fence has: a loopback, and a secret where containers have theirs. Fails outside."""
    assert Path("/proc/1/cmdline").read_bytes().endswith(b"fence\0" + Path("/proc/self/cmdline").read_bytes())
    _loopback_up()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    Path("/run/secrets").mkdir()
    Path("/run/secrets/token").write_text(secret)


def _loopback_up() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _IS_UP))
