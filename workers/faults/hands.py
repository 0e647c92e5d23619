"""The processes of the throw-away installation: the Procfile's own lines, and the witness.

Who ends is started again, as any process manager would; who was killed or frozen on purpose is no exception.
"""

import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.local import Command, Runner, procfile
from orchestrator.local.interrupts import Interrupts
from workers.faults import log, witness

STEP_WORKERS: Final = ("steps-1", "steps-2")
SLOTS: Final = 3  # of each of them
KIT: Final = ("--include", "workers.faults.inside")
LEFT_OUT: Final = ("exporter", "flower")
READY_S: Final = 90.0
GRACE_S: Final = 5.0
PAUSE_S: Final = 0.5
WITNESS: Final = "witness"


def commands(env: Mapping[str, str], kit: Sequence[str] = KIT, slots: int = SLOTS) -> list[Command]:
    """The Procfile's processes that work at runs, workers with these options more; steps twice."""
    found = {one.name: one for one in procfile.commands(env) if one.name not in LEFT_OUT}
    steps, beat = found.pop("steps"), found.pop("beat")
    others = [_with(one, "-c", "1", *kit) for one in found.values()]
    return [beat, *others, *(replace(_with(steps, *slots_of(name, slots), *kit), name=name) for name in STEP_WORKERS)]


def slots_of(name: str, slots: int) -> Sequence[str]:
    """Options of the step worker of this name."""
    return ("-c", str(slots), "-n", f"{name}@%h")


def _with(command: Command, *options: str) -> Command:
    return replace(command, argv=[*command.argv, *options])


def witness_command(folder: Path) -> Command:
    """The program that keeps the log."""
    argv = [sys.executable, "-IS", witness.__file__, str(folder / log.PIPE), str(folder / log.LOG)]
    return Command(WITNESS, argv, ready=witness.READY)


class Hands:
    """Starts, kills, freezes and restarts them; their output lies in a file each."""

    def __init__(self, logs: Path, interrupts: Interrupts) -> None:
        self._logs = logs
        self._interrupts = interrupts
        self._lock = threading.Lock()
        self._runner = Runner(self._write, grace_s=GRACE_S)
        self._commands: list[Command] = []
        self._paused: dict[str, float] = {}

    def start(self, commands: list[Command]) -> None:
        """Start them, return when all can work. ChildFailed says who cannot, and why."""
        with self._interrupts.held():
            children = [self._runner.start(command) for command in commands]
            self._commands += commands
        for child in children:
            child.wait_ready(READY_S)

    def guard(self, group: int | None) -> None:
        """A process group that somebody else has started goes with ours, should this program be killed."""
        if group is not None:
            self._runner.end_with_us(group)

    def forget(self, group: int | None) -> None:
        """That group is about to end by itself."""
        if group is not None:
            self._runner.forget(group)

    def tend(self) -> None:
        """Start again who has ended, after a short pause."""
        running = self._runner.running()
        for command in self._commands:
            if command.name in running:
                self._paused.pop(command.name, None)
            elif time.monotonic() > self._paused.setdefault(command.name, time.monotonic() + PAUSE_S):
                with self._interrupts.held():
                    self._runner.start(command)

    def all_ready(self) -> bool:
        """Whether everybody can work."""
        return all(self.is_ready(command.name) for command in self._commands)

    def is_ready(self, name: str) -> bool:
        """Whether this one can work."""
        return self._runner.child(name).ready

    def group_of(self, name: str) -> int:
        """The process group of the one that bears, or last bore, this name; its main process has the same number."""
        return self._runner.child(name).pid

    def name_of(self, group: int) -> str | None:
        """Whose process group that is."""
        return next((command.name for command in self._commands if self.group_of(command.name) == group), None)

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all its children."""
        self._runner.kill(name)

    def freeze(self, name: str) -> None:
        """SIGSTOP to the same."""
        self._runner.child(name).signal_group(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT to the same."""
        self._runner.child(name).signal_group(signal.SIGCONT)

    def kill_all(self) -> None:
        """End them all now: nothing here is worth waiting for."""
        for name in self._runner.running():
            self._runner.kill(name)

    def end(self) -> None:
        """Nothing is to be guarded any more."""
        self._runner.stop_all()

    def _write(self, name: str, line: str) -> None:
        with self._lock, (self._logs / f"{name}.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
