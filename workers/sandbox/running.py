"""One sandbox from its start until nothing of it is alive.

Whatever happens here, also an exception of `check`, the sandbox's whole process group is killed and waited for before
this returns. Its process 1 takes the rest with it.
"""

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from schemas.policy import Rung
from workers import orphans
from workers.sandbox import rungs
from workers.sandbox.host import Host
from workers.sandbox.jobs import End, Ended, Exited, Flooded, Job, SandboxFailed, Signalled, TimedOut, TooHeavy
from workers.sandbox.output import Kept

START_S: Final = 10.0  # until the command begins; a sandbox that takes longer is ended and counts as not made
_LOOK_S: Final = 0.05
_LEAVE_S: Final = 1.0
_BURY_S: Final = 5.0
_CHUNK: Final = 65_536
_SAID_BYTES: Final = 300
_ENDS: Final[Mapping[str, Callable[[int], End]]] = {
    "exit": Exited,
    "signal": Signalled,
    "late": lambda _: TimedOut(),
    "heavy": lambda _: TooHeavy(),
}


def run(rung: Rung, host: Host, job: Job, check: Callable[[], None] = lambda: None) -> Ended:
    """Start the command, and wait until it has ended.

    check: asked all the time; what it raises ends the command, then passes. SandboxFailed: it did not start.
    """
    started = rungs.start(rung, host, job)
    with _descriptors(json.dumps(started.order).encode()) as pipes:
        others = orphans.children() if rung is Rung.RLIMITS else set()
        process = _begin(started.argv, pipes)
        watched = _Watched(process, pipes, job)
        try:
            watched.see_out(check)
        finally:
            _end(process, pipes)
            if rung is Rung.RLIMITS and process.returncode != 0:
                orphans.end_all(others, _BURY_S)  # it was killed and ended nothing: all came to this process
            watched.drain()
        return watched.ended()


def _descriptors(order: bytes) -> "_Descriptors":
    try:
        return _Descriptors(order)
    except OSError as fault:
        raise SandboxFailed("descriptors", fault.errno or 0) from None


def _begin(argv: tuple[str, ...], pipes: "_Descriptors") -> "subprocess.Popen[bytes]":
    """With an empty environment, in a session and group of its own."""
    theirs = pipes.theirs
    try:
        return subprocess.Popen(
            [*argv, *map(str, theirs)],
            env={},
            cwd="/",
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as fault:
        raise SandboxFailed("start", fault.errno or 0) from None
    finally:
        pipes.close_theirs()


def _end(process: "subprocess.Popen[bytes]", pipes: "_Descriptors") -> None:
    """Nobody waits any more, which ends the sandbox from within; then kill whatever is left of its group. That is done
    before its leader is buried: until then, its number is nobody else's.
    """
    pipes.close_ours()
    with _selector((), process.pid) as selector:
        selector.select(_LEAVE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    give_up = time.monotonic() + _BURY_S
    while time.monotonic() < give_up and _others_left(process.pid):
        time.sleep(_LOOK_S / 10)


def _others_left(group: int) -> bool:
    """Process 1 of the sandbox comes to us when its parent was killed first: this process adopts."""
    try:
        os.waitpid(-group, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


class _Descriptors:
    """A file in memory that holds the order, and two pipes: we hear what became of it, and are obeyed."""

    def __init__(self, order: bytes) -> None:
        with ExitStack() as undone:
            (told,) = _kept(undone, os.memfd_create("order"))
            self.hearing, tell = _kept(undone, *os.pipe())
            obey, self.ordering = _kept(undone, *os.pipe())
            os.write(told, order)
            os.lseek(told, 0, os.SEEK_SET)
            undone.pop_all()
        self.theirs: tuple[int, ...] = (told, tell, obey)
        self._is_over = False

    def __enter__(self) -> "_Descriptors":
        return self

    def __exit__(self, *_: object) -> None:
        self.close_theirs()
        self.close_ours()
        os.close(self.hearing)

    def close_ours(self) -> None:
        """There are no more orders."""
        if not self._is_over:
            self._is_over = True
            os.close(self.ordering)

    def close_theirs(self) -> None:
        """They have theirs, or never will."""
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs = ()


def _kept(undone: ExitStack, *descriptors: int) -> tuple[int, ...]:
    for descriptor in descriptors:
        undone.callback(os.close, descriptor)
    return descriptors


class _Watched:
    """A started sandbox."""

    def __init__(self, process: "subprocess.Popen[bytes]", pipes: _Descriptors, job: Job) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._pipes = pipes
        self._limits = job.limits
        self._out, self._err = Kept(job.limits.kept_bytes), Kept(job.limits.kept_bytes)
        self._readers: dict[int, Callable[[bytes], None]] = {
            process.stdout.fileno(): self._out.add,
            process.stderr.fileno(): self._err.add,
        }
        self._readers[pipes.hearing] = self._hear
        self._said = b""
        self._cut_short: End | None = None
        self._began = time.monotonic()
        self._over_at = self._began + START_S
        self._kill_at = float("inf")
        self._took_s = 0.0

    # ---- until it ends

    def see_out(self, check: Callable[[], None]) -> None:
        """Return once the sandbox has ended, or is to be killed."""
        with _selector(self._readers, self._process.pid) as selector:
            while not self._has_ended(selector):
                check()
                now = time.monotonic()
                self._look_at_clock(now)
                if now >= self._kill_at:
                    break
        self._took_s = time.monotonic() - self._began

    def _has_ended(self, selector: selectors.BaseSelector) -> bool:
        """Read what there is, for a moment."""
        for key, _ in selector.select(_LOOK_S):
            if key.data == "ended":
                return True
            if not self._read(key.fd):
                selector.unregister(key.fd)
        return False

    def _read(self, descriptor: int) -> bool:
        chunk = os.read(descriptor, _CHUNK)
        self._readers[descriptor](chunk)
        return bool(chunk)

    def _hear(self, chunk: bytes) -> None:
        before = self._has_begun()
        self._said += chunk
        if self._has_begun() and not before:
            self._began = time.monotonic()
            self._over_at = self._began + self._limits.timeout_s

    def _has_begun(self) -> bool:
        return self._said.startswith(b"ready\n")

    def _look_at_clock(self, now: float) -> None:
        if self._out.bytes + self._err.bytes > self._limits.output_bytes:
            self._cut_short = self._cut_short or Flooded()
            self._kill_at = now
        elif now >= self._over_at and self._cut_short is None:
            self._cut_short = TimedOut()
            self._kill_at = now + self._limits.grace_s
            with suppress(BrokenPipeError):
                os.write(self._pipes.ordering, b"T")

    # ---- afterwards

    def drain(self) -> None:
        """What was written before the end and not yet read. Nobody is left who could write on."""
        for descriptor in self._readers:
            os.set_blocking(descriptor, False)
            with suppress(BlockingIOError):
                while self._read(descriptor):
                    pass
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdout.close()
        self._process.stderr.close()

    def ended(self) -> Ended:
        """How it ended; SandboxFailed where it never began."""
        words = [line.split() for line in self._said.decode().splitlines()]
        failed = next((word for word in words if word[0] == "failed"), None)
        if failed is not None:
            raise SandboxFailed(failed[1], int(failed[2]))
        if not self._has_begun():
            stderr = self._err.stream()
            raise SandboxFailed("setup", 0, (stderr.head + stderr.tail)[-_SAID_BYTES:].decode(errors="replace"))
        return Ended(
            self._cut_short or _end_of(words), self._out.stream(), self._err.stream(), int(self._took_s * 1000)
        )


def _end_of(words: list[list[str]]) -> End:
    """The last word of process 1. It has none where it was killed itself, with everything else."""
    what, number = next((word for word in words if word[0] in _ENDS), ("signal", "9"))
    return _ENDS[what](int(number))


@contextmanager
def _selector(readers: Iterable[int], pid: int) -> Iterator[selectors.BaseSelector]:
    ended = os.pidfd_open(pid)
    try:
        with selectors.DefaultSelector() as selector:
            for descriptor in readers:
                selector.register(descriptor, selectors.EVENT_READ, "read")
            selector.register(ended, selectors.EVENT_READ, "ended")
            yield selector
    finally:
        os.close(ended)
