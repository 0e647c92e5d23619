"""Starts child processes in order, listens to them, stops them in order, and leaves none behind.

The caller decides what a signal to itself means; its children only ever hear from the runner. Should the runner be
killed, its guardian (see there) ends the groups. The one gap is a kill between the start of a child and the next line.
"""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final, Self

from orchestrator.local import guardian
from orchestrator.local.child import Child, Command, OnLine
from orchestrator.local.errors import ChildFailed

GONE_S: Final = 10.0  # nothing survives SIGKILL for longer, unless the machine itself hangs


class Runner:
    """The children of one program, by name; for use by one thread. Leaving its context stops them, last started first.

    on_line: gets a child's name and each line that it prints, on a thread of that child.
    grace_s: what a child has between SIGTERM and SIGKILL. guardian_holds: descriptors that the guardian inherits, so
    that a lock is held until the last child is gone, whoever is killed.
    """

    def __init__(self, on_line: OnLine, *, grace_s: float = 10.0, guardian_holds: Sequence[int] = ()) -> None:
        self._on_line = on_line
        self._grace_s = grace_s
        self._guardian_holds = guardian_holds
        self._children: dict[str, Child] = {}
        self._guardian: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def running(self) -> list[str]:
        """Names of the children that run, in the order of their start."""
        return [name for name, child in self._children.items() if child.poll() is None]

    def child(self, name: str) -> Child:
        """The child that bears, or last bore, this name. ChildFailed if none ever did."""
        if name not in self._children:
            raise ChildFailed(f"no child named {name}", hint=f"there are: {', '.join(self._children) or 'none'}")
        return self._children[name]

    def start(self, command: Command) -> Child:
        """Starts a child. Its name is free for the next as soon as it has ended."""
        if command.name in self.running():
            raise ChildFailed(f"{command.name} runs already", hint="stop it first")
        self._need_guardian()
        child = Child(command, self._on_line, self.forget)
        self._tell_guardian(f"+{child.pid}")
        self._children.pop(command.name, None)
        self._children[command.name] = child
        return child

    def end_with_us(self, group: int) -> None:
        """A process group that somebody else started: ended after all children, also should this program be killed."""
        self._need_guardian()
        self._tell_guardian(f"+{group}")

    def forget(self, group: int) -> None:
        """A process group that has ended, or is nobody's business any more."""
        self._tell_guardian(f"-{group}")

    def stop(self, *names: str) -> None:
        """SIGTERM to all of these at once, SIGKILL to the groups of those that still run when the grace is over."""
        children = [self.child(name) for name in names]
        for child in children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._grace_s
        for child in children:
            if child.wait(deadline - time.monotonic()) is None:
                self.kill(child.name)

    def stop_all(self) -> None:
        """Stops one after the other, last started first, and lets the guardian go."""
        for name in reversed(self.running()):
            self.stop(name)
        if self._guardian is not None:
            self._guardian.communicate()
            self._guardian = None

    def kill(self, name: str) -> None:
        """SIGKILL to the child's whole group; returns when the child is gone."""
        child = self.child(name)
        child.signal_group(signal.SIGKILL)
        if child.wait(GONE_S) is None:
            raise ChildFailed(f"{name} outlives SIGKILL", hint=f"look at process {child.pid}")

    def _need_guardian(self) -> None:
        if self._guardian is None:
            self._guardian = _start_guardian(self._grace_s, self._guardian_holds)

    def _tell_guardian(self, line: str) -> None:
        """A guardian that was killed no longer listens: its absence costs safety in the next accident, not this run."""
        assert self._guardian is not None
        assert self._guardian.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(line, file=self._guardian.stdin, flush=True)


def _start_guardian(grace_s: float, holds: Sequence[int]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-IS", guardian.__file__, str(grace_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        pass_fds=holds,
        start_new_session=True,
    )
