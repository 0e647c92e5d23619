"""Connections of one process to the ledger's database, and its transactions. What differs by kind of database is in
`sqlite` and `postgres`."""

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import sqlalchemy
from sqlalchemy import Connection, Engine, Table, make_url, select
from sqlalchemy import exc as sql
from sqlalchemy.dialects import sqlite

from orchestrator.errors import ConfigError, LedgerError, LedgerMissing, LedgerUnavailable
from orchestrator.ledger.backend import MODE, UPGRADE, Backend, Gone, Locked, Mode, bad_url
from orchestrator.ledger.respite import Respite
from orchestrator.ledger.tables import REVISION, VERSION_TABLE

T = TypeVar("T")
PAGE: Final = 500  # rows of one statement
PATIENCE_S = 30.0  # how long a transaction waits for others before the ledger counts as away
VERSION = sqlalchemy.table(VERSION_TABLE, sqlalchemy.column("version_num", sqlalchemy.String))


class Database:
    """One database, reached by a pool of connections that belongs to the process that uses it.

    url: `sqlite:////absolute/path` (three slashes, then the path), or `postgresql://user:password@host/database`.
    patience_s: the longest wait for others. respite: how many times as long as a wait in vain to begin a transaction
    nobody else waits (of this process). check: sees in each transaction that the schema is the one we need.
    setting: names the URL where it is refused.
    """

    def __init__(
        self,
        url: str,
        patience_s: float = PATIENCE_S,
        check: Callable[[Connection], None] | None = None,
        setting: str = "MANDOR_LEDGER_URL",
        respite: float = 0.0,
    ) -> None:
        self._backend = backend_of(url, setting)
        self._patience_s = patience_s
        self._respite = Respite(respite)
        self._check = check or check_revision
        self._local = threading.local()
        self._lock = threading.Lock()
        self._made: Engine | None = None
        _databases.add(self)

    def prepare(self) -> None:
        """Make what must be there before anybody can connect: a file. A PostgreSQL database is there already."""
        self._backend.prepare()

    @contextmanager
    def writing(self, *, alone: bool = False, any_revision: bool = False) -> Iterator[Connection]:
        """A transaction that may write; committed at the end, rolled back by an exception.

        alone: no other such transaction runs meanwhile, so that what it reads stays true until it commits. Without it
        that holds for the rows it locked.
        LedgerUnavailable: others held what is needed for longer than the patience, or the database cannot be reached.
        LedgerMissing: the schema is not at our revision (not asked with any_revision).
        """
        if getattr(self._local, "writing", False):
            message = "this thread is already in a write transaction of the ledger and would wait for itself"
            raise LedgerError(message, hint="use the connection you have")
        self._local.writing = True
        try:
            with self._transaction("alone" if alone else "writing", any_revision) as connection:
                yield connection
        finally:
            self._local.writing = False

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database and keeps nobody waiting. Errors as of `writing`."""
        with self._transaction("reading", any_revision=False) as connection:
            yield connection

    @contextmanager
    def _transaction(self, mode: Mode, any_revision: bool) -> Iterator[Connection]:
        with self._respite.after_waits():
            connection = self._begin_patiently(mode, any_revision)
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()

    def _begin_patiently(self, mode: Mode, any_revision: bool) -> Connection:
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self._begin_on_a_live_connection(mode, any_revision)
            except Locked:
                if time.monotonic() >= until:
                    raise
            time.sleep(random.uniform(0.001, 0.02))

    def _begin_on_a_live_connection(self, mode: Mode, any_revision: bool) -> Connection:
        """A server that was restarted has left dead connections in the pool, all of which go with the first."""
        try:
            return self._begin(mode, any_revision)
        except Gone:
            return self._begin(mode, any_revision)

    def _begin(self, mode: Mode, any_revision: bool) -> Connection:
        try:
            connection = self._engine().connect().execution_options(**self._backend.options(mode))
        except sql.TimeoutError as error:
            raise LedgerUnavailable(f"no connection became free: {error}", hint="use fewer threads") from error
        try:
            connection.begin()
            self._backend.enter(connection, mode)
            if not any_revision:
                self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _engine(self) -> Engine:
        with self._lock:
            self._backend.refuse_spoiled()
            if self._made is None:
                self._made = self._backend.make_engine(self._patience_s)
                weakref.finalize(self, self._made.dispose)
            return self._made

    def close(self) -> None:
        """Close the idle connections. The next transaction opens another."""
        if self._made is not None:
            self._made.dispose()

    def before_fork(self) -> None:
        """Close idle connections: a child must not believe that they, or what they have locked, are its own.

        With a connection in use it is of no avail: ours go on, and the backend sees to the child.
        """
        pool: Any = self._made.pool if self._made else None
        if pool is not None and pool.checkedout() == 0:
            self.close()

    def after_fork(self) -> None:
        """In the child: start without a pool."""
        made, self._made = self._made, None
        self._lock, self._local = threading.Lock(), threading.local()
        self._backend.after_fork()
        if made is not None:
            made.dispose(close=False)


_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _before_fork() -> None:
    for database in list(_databases):
        database.before_fork()


def _after_fork() -> None:
    for database in list(_databases):
        database.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def backend_of(url: str, setting: str) -> Backend:
    """The kind of database that a URL names. ConfigError, about the setting, if no ledger can be kept there."""
    try:
        return _backend_of(url)
    except ConfigError as refused:
        raise ConfigError(refused.message, path=setting, hint=refused.hint) from None


def _backend_of(url: str) -> Backend:
    try:
        parsed = make_url(url)
    except (sql.ArgumentError, ValueError):
        raise bad_url("is not a database URL") from None
    kind = parsed.drivername.partition("+")[0]
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        from orchestrator.ledger.sqlite import SqliteFile  # a process meets one kind, and pays for one

        return SqliteFile(parsed)
    if kind in ("postgres", "postgresql"):
        from orchestrator.ledger.postgres import PostgresDatabase

        return PostgresDatabase(parsed)
    raise bad_url(f"names {parsed.drivername}; a ledger is kept in SQLite or PostgreSQL")


def check_revision(connection: Connection) -> None:
    """LedgerMissing unless the schema is at the revision this release is written for."""
    found = connection.execute(select(VERSION)).scalar()
    refuse_newer(found)
    if found != REVISION:
        raise LedgerMissing(f"the ledger is at revision {found}, this release needs {REVISION}", hint=UPGRADE)


def refuse_newer(found: str | None) -> None:
    """LedgerMissing for a schema that only a later release understands."""
    if found is not None and found > REVISION:
        message = f"the ledger is at revision {found}, newer than {REVISION}, which this release knows"
        raise LedgerMissing(message, hint="run the release that upgraded it")


def in_pages(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many rows as one statement takes, time and again."""
    return (rows[start : start + PAGE] for start in range(0, len(rows), PAGE))


def insert_absent(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless one of its unique keys is taken; tells whether it was inserted."""
    insert = dialect_insert(connection)(table).values(**values).on_conflict_do_nothing()
    return connection.execute(insert, execution_options={"preserve_rowcount": True}).rowcount == 1


def dialect_insert(connection: Connection) -> Any:
    """The INSERT of the connection's kind of database, which can pass over a conflict."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert

        return insert
    return sqlite.insert


def is_ours(connection: Any) -> bool:
    """Whether the ledger opened this connection."""
    return isinstance(connection, Connection) and MODE in connection.get_execution_options()
