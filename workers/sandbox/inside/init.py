"""The first process of a sandbox: starts the command behind the inner fences, and ends when the command does.

It is process 1 of a namespace of its own: with it the kernel ends all that the command has started, and only then tells
whoever waits. It is told what to do on one descriptor, tells what became of it on another, a line each:

    ready               every fence stands; the command is started now
    failed WHAT ERRNO   this could not be done, so the command did not start
    exit N, signal N    how the command ended
    late 0              it should have been ended long ago, and nobody did: whoever watches is frozen
    heavy 0             all of it together took more memory than it may

and obeys a third: a byte passes SIGTERM on to everything inside; when that descriptor closes, nobody waits any more.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from . import kernel, landlock, limits, seccomp
from .memory import Scales

_FIRST_FREE: Final = 3
_CHUNK: Final = 65_536
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def main() -> NoReturn:
    """told, tell, obey: numbers of the three descriptors, on the command line."""
    told, tell, obey = map(int, sys.argv[1:4])
    run(read_order(told), tell, obey)


def read_order(told: int) -> dict[str, Any]:
    """What the descriptor says until it ends."""
    said = b""
    while chunk := os.read(told, _CHUNK):
        said += chunk
    os.close(told)
    order: dict[str, Any] = json.loads(said)
    return order


def run(order: dict[str, Any], tell: int, obey: int) -> NoReturn:
    """Start the command and see it out."""
    if os.getpid() != 1:
        os.write(tell, b"failed namespace 1\n")  # SIGTERM for everything inside would be for everything outside
        os._exit(1)
    kernel.prctl(kernel.SET_DUMPABLE, 0)  # of one user with the command, and yet not to be looked into
    try:
        see_out(order, tell, obey, _ask_all_to_end)
    finally:
        os._exit(0)  # in silence: what Python says of a fault would be taken for the command's own words


def _ask_all_to_end() -> None:
    """Everything in this namespace but process 1."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGTERM)


# ---- the command's own process


def _become(order: dict[str, Any], tell: int) -> NoReturn:
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("user", _never_root),
        ("session", os.setsid),
        ("folder", lambda: os.chdir(order["folder"])),
        ("descriptors", lambda: _close_all_but(tell)),
        ("limits", lambda: limits.apply(order["limits"])),
        ("landlock", lambda: landlock.restrict(order["writable"]) if order["fenced"] else None),
        ("privileges", lambda: kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)),
        ("signals", _listen_again),
        ("seccomp", lambda: seccomp.restrict() if order["fenced"] else None),
        ("ready", lambda: os.write(tell, b"ready\n")),
        ("exec", lambda: os.execve(order["command"][0], order["command"], order["environment"])),
    )
    doing = ""
    try:
        for name, act in steps:
            doing = name
            act()
    except BaseException as fault:  # noqa: BLE001  (whatever it is: the command has not started, and must not)
        number = fault.errno if isinstance(fault, OSError) and fault.errno else 0
        os.write(tell, f"failed {doing} {number}\n".encode())
    os._exit(1)


def _never_root() -> None:
    """And what it makes is for its own user alone."""
    if 0 in (os.getuid(), os.geteuid()):
        raise PermissionError(1, "a command never runs as root")
    os.umask(0o077)


def _close_all_but(tell: int) -> None:
    """The command gets 0, 1 and 2. tell closes by itself when it starts."""
    os.set_inheritable(tell, False)
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= _FIRST_FREE and int(name) != tell:
            with suppress(OSError):
                os.close(int(name))


def _listen_again() -> None:
    """Signals that Python ignores would be ignored by the command too."""
    signal.set_wakeup_fd(-1)
    for number in (*_IGNORED_BY_PYTHON, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


# ---- its parent


def see_out(order: dict[str, Any], tell: int, obey: int, ask_to_end: Callable[[], None]) -> None:
    """Start the command; until it has ended, or is too much, or nobody wants to know."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the kernel keeps from process 1, as it keeps no handler's
    heard = _hear_of_children()
    try:
        child = os.fork()
    except OSError as fault:
        os.write(tell, f"failed start {fault.errno}\n".encode())
        return
    if child == 0:
        os.close(obey)
        _become(order, tell)
    waiting = select.poll()
    waiting.register(heard, select.POLLIN)
    waiting.register(obey, select.POLLIN)
    limits_of_all = _LimitsOfAll(order)
    while (status := _reap(child)) is None:
        if beyond := limits_of_all.beyond():
            os.write(tell, beyond)
            return
        for descriptor, _ in waiting.poll(limits_of_all.wait_ms()):
            if not os.read(descriptor, _CHUNK):
                return
            if descriptor == obey:
                ask_to_end()
    os.write(tell, _told(status))


class _LimitsOfAll:
    """What the command as a whole is held to; without a sandbox, where others' processes are seen too, its time."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._late_at: float = time.monotonic() + order["late_s"]
        self._scales = Scales(order["memory"]) if order["fenced"] else None

    def beyond(self) -> bytes:
        """What to tell; nothing as long as all is well."""
        if time.monotonic() >= self._late_at:
            return b"late 0\n"
        return b"heavy 0\n" if self._scales and self._scales.are_over() else b""

    def wait_ms(self) -> float:
        """Until there is something to look at."""
        left_s = max(0.0, self._late_at - time.monotonic())
        return 1000 * min(left_s, self._scales.wait_s() if self._scales else left_s)


def _hear_of_children() -> int:
    """A descriptor that can be read when a child has ended."""
    heard, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return heard


def _reap(child: int) -> int | None:
    """Bury all that has ended; the command's status, once it is among them."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
    return found


def _told(status: int) -> bytes:
    code = os.waitstatus_to_exitcode(status)
    return f"exit {code}\n".encode() if code >= 0 else f"signal {-code}\n".encode()
