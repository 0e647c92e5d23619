"""Facts about a state store that forgot, and what was done about it."""

from dataclasses import dataclass

from orchestrator.telemetry.events import Occurrence


@dataclass(frozen=True, slots=True)
class MemoryLost(Occurrence):
    """A shard has forgotten runs. It is built again once holders of claims have ended, in wait_ms at the earliest."""

    event = "memory.lost"
    level = "error"
    shard: int
    cause: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class MemoryRestored(Occurrence):
    """A shard is whole again. runs: built from the ledger; dropped: that had ended meanwhile."""

    event = "memory.restored"
    level = "warning"
    shard: int
    cause: str
    runs: int
    dropped: int


@dataclass(frozen=True, slots=True)
class MemoryNotRestored(Occurrence):
    """A shard could not be built again, or taken over. It stays shut, and is tried again. runs: of it that met errors,
    each of which is told of; kind, where: of an error that was not about one run."""

    event = "memory.not_restored"
    level = "error"
    shard: int
    runs: int
    kind: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class RunNotBuilt(Occurrence):
    """A run could not be built again, or looked at: an error that may pass, as where a database of a user's own is
    away. It is tried again, and so is its shard if that is shut."""

    event = "run.not_built"
    level = "error"
    kind: str
    where: str | None = None


@dataclass(frozen=True, slots=True)
class RunNotRestored(Occurrence):
    """A run is not in the state store, and the ledger does not know enough of its plan to build it again: an older
    release accepted it. Its effects are in the ledger; a person has to see what is to be done."""

    event = "run.not_restored"
    level = "error"


@dataclass(frozen=True, slots=True)
class ServerAccepted(Occurrence):
    """Another server, or one that was started again, has all that the ledger knows. runs: whose fences went ahead."""

    event = "server.accepted"
    level = "warning"
    shard: int
    runs: int


@dataclass(frozen=True, slots=True)
class RunMended(Occurrence):
    """A run was not where supervisors look. places: that were added."""

    event = "run.mended"
    level = "warning"
    places: int
