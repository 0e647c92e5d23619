"""Facts about the files of runs: what is kept of them, and when they go."""

from dataclasses import dataclass
from typing import Literal

from orchestrator.telemetry.events import Occurrence


@dataclass(frozen=True, slots=True)
class WorkspaceGone(Occurrence):
    """A workspace was taken away. why: its run has ended and its time is over, or nobody knows a run of it."""

    event = "workspace.gone"
    why: Literal["ended", "unknown"]


@dataclass(frozen=True, slots=True)
class ArtifactsKept(Occurrence):
    """Files of a run were copied out of its workspace. left_out: those that policy names and that were not."""

    event = "artifacts.kept"
    files: int
    bytes: int
    left_out: int


@dataclass(frozen=True, slots=True)
class WorkspacesNotDone(Occurrence):
    """What a look for workspaces could not do; the next one tries it again. kind, where: of the first that failed."""

    event = "workspaces.failed"
    level = "warning"
    failed: int
    kind: str
    where: str | None
