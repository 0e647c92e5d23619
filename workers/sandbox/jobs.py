"""What is to run in a sandbox, and how it ended."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import MandorError

ROOM_BYTES: Final = 64 * 1024 * 1024
ROOM_FILES: Final = ROOM_BYTES // 4096  # a page each; without a bound, empty ones take memory that nobody counts
OPEN_FILES: Final = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """timeout_s counts from the command's start; grace_s: from SIGTERM to the end of everything.

    cpu_s, file_bytes: of each process; memory_bytes: of each, and in a sandbox of all together. kept_bytes: of the
    head, and of the tail, of each stream; output_bytes: both streams together, then it is ended.
    """

    timeout_s: float
    grace_s: float
    cpu_s: int
    memory_bytes: int
    processes: int
    kept_bytes: int
    output_bytes: int
    file_bytes: int

    def inside(self) -> dict[str, int]:
        """What each process of the command is held to."""
        return {
            "cpu_s": self.cpu_s,
            "memory_bytes": self.memory_bytes,
            "processes": self.processes,
            "file_bytes": self.file_bytes,
            "files": OPEN_FILES,
            "core_bytes": 0,
        }


@dataclass(frozen=True, slots=True)
class Job:
    """command: an argv, its first an absolute path. workspace: the one folder it may write."""

    command: tuple[str, ...]
    workspace: Path
    limits: Limits


@dataclass(frozen=True, slots=True)
class Exited:
    """The command ended by itself, with this code."""

    code: int


@dataclass(frozen=True, slots=True)
class Signalled:
    """A signal ended the command."""

    number: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    """It was ended at its time limit."""


@dataclass(frozen=True, slots=True)
class Flooded:
    """It was ended because it had written more than it may."""


@dataclass(frozen=True, slots=True)
class TooHeavy:
    """It was ended because all of it together took more memory than it may."""


End = Exited | Signalled | TimedOut | Flooded | TooHeavy


@dataclass(frozen=True, slots=True)
class Stream:
    """The first and the last of what was written; between them `bytes` minus both is missing. bytes: all of it."""

    head: bytes
    tail: bytes
    bytes: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that was started, and of which nothing is alive any more."""

    end: End
    stdout: Stream
    stderr: Stream
    duration_ms: int


class SandboxFailed(MandorError):
    """The sandbox could not be made, so the command was not started. doing: what failed; number: errno, 0 unknown;
    said: by the program that failed. It names folders of the host: for the log alone.
    """

    kind = "sandbox_failed"

    def __init__(self, doing: str, number: int, said: str = "") -> None:
        super().__init__(f"the sandbox could not be made: {doing}, errno {number}")
        self.args = (doing, number, said)
        self.doing = doing
        self.number = number
        self.said = said
