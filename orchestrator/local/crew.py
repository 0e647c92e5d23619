"""The processes of an installation together: started, kept alive, stopped in order.

A process that ends by itself is started again, after a pause that doubles up to PAUSE_MAX_S and begins anew once it has
run for STEADY_S. One that refuses to start (exit code REFUSED) would refuse again: that ends them all.

    stop    the way in first, then the ticks, then those who work, then those who watch; each stage has the grace
    hurry   all that are left at once, HURRY_S for their own end
"""

import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.local.child import Child, Command
from orchestrator.local.errors import ChildFailed
from orchestrator.local.runner import Runner

REFUSED: Final = 2
PAUSE_MAX_S: Final = 30.0
STEADY_S: Final = 60.0
HURRY_S: Final = 3.0
POLL_S: Final = 0.05
STAGES: Final = (("control",), ("beat",), ("planner", "steps", "supervise", "deliver"))


@dataclass(slots=True)
class Member:
    """One process. failures: ends in a row; since: its last start; due: its next one, None while it runs."""

    command: Command
    failures: int = 0
    since: float = 0.0
    due: float | None = None


def stages(names: Collection[str]) -> list[list[str]]:
    """The names in the order in which their processes stop; whoever is in no stage stops last."""
    known = {name for stage in STAGES for name in stage}
    found = [[name for name in stage if name in names] for stage in STAGES]
    return [stage for stage in [*found, [name for name in names if name not in known]] if stage]


def pause_s(failures: int) -> float:
    """How long to wait before the next start after so many ends in a row."""
    return float(min(2 ** min(failures - 1, 16), PAUSE_MAX_S))


class Crew:
    """tell: gets a sentence about what happens here. grace_s: what each stage has between SIGTERM and SIGKILL."""

    def __init__(
        self,
        runner: Runner,
        commands: Sequence[Command],
        tell: Callable[[str], None],
        *,
        grace_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._members = [Member(command) for command in commands]
        self._tell = tell
        self._grace_s = grace_s
        self._clock = clock

    def start(self) -> None:
        """Start them all; nobody is waited for."""
        for member in self._members:
            self._start(member)

    def not_ready(self) -> list[str]:
        """Names of those that cannot work yet, or not any more."""
        return [
            member.command.name for member in self._members if member.due is not None or not self._child(member).ready
        ]

    def tend(self) -> None:
        """Notice who has ended, and start again whose pause is over. ChildFailed: one refuses to start."""
        for member in self._members:
            if member.due is None:
                self._notice_end(member)
            elif self._clock() >= member.due:
                self._tell(f"{member.command.name} starts again")
                self._start(member)

    def drain(self, hurried: Callable[[], bool]) -> None:
        """Stop them stage by stage, or all at once as soon as `hurried` says so. Returns when nobody is left."""
        for stage in stages(self._runner.running()):
            if not hurried():
                self._tell(f"stopping {', '.join(stage)}")
                self._stop(stage, self._grace_s, hurried)
        left = self._runner.running()
        if left:
            self._tell(f"ending {', '.join(left)} at once")
            self._stop(left, HURRY_S, lambda: False)

    def _start(self, member: Member) -> None:
        self._runner.start(member.command)
        member.since, member.due = self._clock(), None

    def _child(self, member: Member) -> Child:
        return self._runner.child(member.command.name)

    def _notice_end(self, member: Member) -> None:
        child = self._child(member)
        status = child.poll()
        if status is None:
            return
        if status == REFUSED:
            raise ChildFailed(f"{child.name} refuses to start", hint="its own words are above")
        member.failures = 1 if self._clock() - member.since > STEADY_S else member.failures + 1
        pause = pause_s(member.failures)
        member.due = self._clock() + pause
        self._tell(f"{child.name} {_end(status)}; it starts again in {pause:g} s")

    def _stop(self, names: Sequence[str], grace_s: float, hurried: Callable[[], bool]) -> None:
        children = [self._runner.child(name) for name in names]
        for child in children:
            child.signal(signal.SIGTERM)
        deadline = self._clock() + grace_s
        while any(child.poll() is None for child in children):
            if hurried():
                return
            if self._clock() > deadline:
                self._kill([child for child in children if child.poll() is None])
            time.sleep(POLL_S)

    def _kill(self, children: Sequence[Child]) -> None:
        for child in children:
            self._tell(f"{child.name} did not stop in time and is killed")
            self._runner.kill(child.name)


def _end(status: int) -> str:
    if status >= 0:
        return f"ended by itself (exit code {status})"
    try:
        return f"was killed ({signal.Signals(-status).name})"
    except ValueError:
        return f"was killed (signal {-status})"
