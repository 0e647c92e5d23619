"""What the ledger knows of the files of runs: which were let go, and which were kept.

Files go when their run has ended and its time is over, unless a person has it go on first. Both sides write here
before they act, each behind the lock of the run's row: who wants to let files go finds a retry that was decided, and
who carries out a retry finds that the files went.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, Connection, select, text, update

from orchestrator.errors import NotFound
from orchestrator.ledger.engine import insert_absent
from orchestrator.ledger.reads import GOES_ON
from orchestrator.ledger.tables import OWED_LATE, artifacts, decisions, effects, runs, workspaces_gone
from orchestrator.ledger.writes import lock_run

Transaction = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Standing:
    """What a run is, for whoever has files of it."""

    run_id: str
    generation: int
    status: str
    ended_at: int | None
    policy_text: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of a run that was kept: its path in the workspace, and the folder with the copy. left_out: why none is
    there; then sha256 is null.
    """

    path: str
    place: str
    bytes: int
    sha256: str | None
    left_out: str | None = None


class FilesOfRuns:
    """The ledger's rows about files."""

    def __init__(self, begin: Transaction, read: Transaction, clock: Callable[[], int]) -> None:
        self._begin = begin
        self._read = read
        self._clock = clock

    def standing(self, run_ids: Sequence[str]) -> dict[str, Standing]:
        """Of these runs, those that the ledger has."""
        columns = [runs.c[name] for name in Standing.__dataclass_fields__]
        with self._read() as connection:
            rows = connection.execute(select(*columns).where(runs.c.run_id.in_(run_ids))).all()
        return {row.run_id: Standing(*row) for row in rows}

    def is_over(self, run_id: str, generation: int) -> bool:
        """Whether the run has ended in this generation and nobody has started it over, or decided to: until now no step
        of another one has written anything.
        """
        with self._read() as connection:
            ended = _stands(connection, run_id, generation, runs.c.ended_at.is_not(None))
            return ended and not _starts_over(connection, run_id)

    def let_go(self, run_id: str, generation: int, ended_before: int) -> bool:
        """Note that the files of a run go now. False: they must stay, for it has not ended in this generation before
        that moment, somebody has decided to start it over, or is about to undo what came late and may want to read
        them. Repeated after a crash, it answers the same.
        """
        with self._begin() as connection:
            try:
                lock_run(connection, run_id)
            except NotFound:
                return False
            if not _stands(connection, run_id, generation, runs.c.ended_at <= ended_before):
                return False
            if _starts_over(connection, run_id) or _undoes_late(connection, run_id):
                return False
            gone = {"generation": generation, "gone_at": self._clock()}
            if not insert_absent(connection, workspaces_gone, {"run_id": run_id, **gone}):
                connection.execute(update(workspaces_gone).where(workspaces_gone.c.run_id == run_id).values(**gone))
            return True

    def gone(self, run_id: str) -> int:
        """The generation in which the run's files went last; 0: never."""
        with self._read() as connection:
            query = select(workspaces_gone.c.generation).where(workspaces_gone.c.run_id == run_id)
            return int(connection.execute(query).scalar() or 0)

    def keep(self, run_id: str, generation: int, found: Sequence[Artifact]) -> None:
        """Note what was kept of a generation of a run. What is noted already stays as it is."""
        with self._begin() as connection:
            about = {"run_id": run_id, "generation": generation, "kept_at": self._clock()}
            for one in found:
                insert_absent(connection, artifacts, {**about, **asdict(one)})

    def kept(self, run_id: str) -> list[Artifact]:
        """What was kept of the newest generation that left anything."""
        columns = [artifacts.c[name] for name in Artifact.__dataclass_fields__]
        mine = artifacts.c.run_id == run_id
        newest = select(artifacts.c.generation).where(mine).order_by(artifacts.c.generation.desc()).limit(1)
        query = select(*columns).where(mine, artifacts.c.generation == newest.scalar_subquery())
        with self._read() as connection:
            rows = connection.execute(query.order_by(artifacts.c.place, artifacts.c.path)).all()
        return [Artifact(*row) for row in rows]


def _stands(connection: Connection, run_id: str, generation: int, how: ColumnElement[bool]) -> bool:
    so = (runs.c.run_id == run_id, runs.c.generation == generation, how)
    return connection.execute(select(runs.c.run_id).where(*so)).first() is not None


def _starts_over(connection: Connection, run_id: str) -> bool:
    return connection.execute(select(decisions.c.id).where(decisions.c.run_id == run_id, GOES_ON)).first() is not None


def _undoes_late(connection: Connection, run_id: str) -> bool:
    owed = (effects.c.run_id == run_id, text(OWED_LATE))
    return connection.execute(select(effects.c.step_id).where(*owed)).first() is not None
