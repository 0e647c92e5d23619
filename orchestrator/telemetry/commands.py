"""Facts about commands and what fences them in. Of the kind of telemetry.events: no command line, no output."""

from dataclasses import dataclass

from orchestrator.telemetry.events import Occurrence


@dataclass(frozen=True, slots=True)
class SandboxFound(Occurrence):
    """The strongest sandbox that works for this process; missing: why stronger or other ones do not."""

    event = "sandbox.found"
    rung: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoSandbox(Occurrence):
    """No sandbox works for this process: commands are refused."""

    event = "sandbox.none"
    level = "warning"
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unfenced(Occurrence):
    """The operator allows commands without a sandbox, and there is none: they run with the worker's own reach."""

    event = "sandbox.unfenced"
    level = "warning"


@dataclass(frozen=True, slots=True)
class SandboxFailed(Occurrence):
    """A sandbox that worked before could not be made; its command was not started. said: by the program that failed."""

    event = "sandbox.failed"
    level = "warning"
    rung: str
    doing: str
    number: int
    said: str


@dataclass(frozen=True, slots=True)
class CommandRun(Occurrence):
    """A command was started and has ended. outcome: exit, signal, timed_out, flooded or too_heavy; ended: by its
    workspace's quota, or with its attempt, perhaps before its first line.
    """

    event = "command.run"
    rung: str
    outcome: str
    duration_ms: int
