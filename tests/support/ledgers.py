"""Ledgers for tests, and what goes into them."""

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol

from orchestrator.ledger import Accepted, AcceptedRun, Ledger, LedgerRun, open_ledger
from orchestrator.ledger.tables import metadata
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.ids import run_id_for, session_key
from tests.support.postgres import TEMPLATE, Postgres

SHA = "a" * 64
NAMESPACE = "mandor"
DATABASES = ("sqlite", "postgresql")


class Places(Protocol):
    """Where the ledgers of one test lie, in one kind of database."""

    def made(self) -> str:
        """The URL of a new, empty ledger."""

    def unmade(self) -> str:
        """A URL where none is yet."""


class Files:
    """SQLite files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def made(self) -> str:
        """A copy of the template."""
        path = self._folder / f"{uuid.uuid4().hex[:8]}.db"
        shutil.copyfile(template(), path)
        return url_of(path)

    def unmade(self) -> str:
        """A file that is not there, nor its folder."""
        return url_of(self._folder / uuid.uuid4().hex[:8] / "ledger.db")


class Databases:
    """Databases of a PostgreSQL server. Ledgers are emptied and used again: making one takes longer than most tests."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._ledgers: list[str] = []
        self._others: list[str] = []

    def made(self) -> str:
        """An empty ledger."""
        idle = self._server.idle
        self._ledgers.append(idle.pop() if idle else self._server.new_database(TEMPLATE))
        return self._server.url(self._ledgers[-1])

    def unmade(self) -> str:
        """A database without a table."""
        self._others.append(self._server.new_database())
        return self._server.url(self._others[-1])

    def give_back(self) -> None:
        """Whoever is still connected is not, then."""
        for name in self._others:
            self._server.drop(name)
        for name in self._ledgers:
            self._server.empty(name, [table.name for table in metadata.sorted_tables])
            self._server.idle.append(name)


@contextmanager
def databases(server: Postgres) -> Iterator[Databases]:
    """Databases for the time of the block."""
    made = Databases(server)
    yield made
    made.give_back()


def url_of(path: Path) -> str:
    """The ledger URL of a file."""
    return f"sqlite:///{path}"


def fresh_ledger(folder: Path, patience_s: float = 30.0) -> Ledger:
    """An empty ledger in a folder; its file is a copy, because migrating takes longer than most tests."""
    path = folder / "ledger.db"
    shutil.copyfile(template(), path)
    return open_ledger(url_of(path), patience_s=patience_s)


@cache
def template() -> Path:
    """A ledger that was just made, at rest."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    path = Path(folder) / "ledger.db"
    made = open_ledger(url_of(path))
    made.upgrade()
    made.close()
    return path


def run_named(
    request_id: str,
    submission_hash: str = SHA,
    session_id: str | None = None,
    namespace: str = NAMESPACE,
    callback: str | None = None,
) -> AcceptedRun:
    """A run to be accepted."""
    return AcceptedRun(
        run_id=run_id_for("celery", session_id, request_id),
        session=session_key(session_id),
        session_id=session_id,
        request_id=request_id,
        principal="celery",
        submission_hash=submission_hash,
        submission_text='{"goal":"count the boxes"}',
        policy_text='{"max_steps":10}',
        policy_hash="b" * 64,
        context_hash="c" * 64,
        deadline_ms=3_600_000,
        planner="counting",
        namespace=namespace,
        callback=callback,
    )


def accepted(ledger: Ledger, request_id: str) -> LedgerRun:
    """A run the ledger has accepted."""
    answer = ledger.accept(run_named(request_id))
    assert isinstance(answer, Accepted)
    return answer.run


def letter_named(letter_id: str, created_at: int = 1, run_id: str | None = None) -> DeadLetter:
    """A letter about a plan."""
    return DeadLetter(
        id=letter_id,
        kind=DeadLetterKind.PLAN,
        run_id=run_id,
        step_id=None,
        reason="refused twice",
        created_at=created_at,
        content={"attempts": []},
    )
