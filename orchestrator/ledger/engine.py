"""Connections of one process to the ledger's database; the only module that knows that it is SQLite.

It is run in WAL mode with full synchronisation, and every writing transaction takes the write lock when it begins:
with the driver's own deferred transactions, two that read and then write the same row lose one of the writes.
"""

import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import Connection, Engine, Table, create_engine, event, make_url, select
from sqlalchemy import exc as sql
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.pool import QueuePool

from orchestrator.errors import ConfigError, LedgerError, LedgerMissing, LedgerUnavailable
from orchestrator.ledger.tables import REVISION, VERSION_TABLE

MODE = "ledger_mode"  # execution option of a connection: how its transaction begins
Mode = Literal["IMMEDIATE", "DEFERRED"]
ConnectListener = Callable[[Any, Any], None]
CheckoutListener = Callable[[Any, Any, Any], None]

PATIENCE_S = 30.0  # how long a transaction waits for the write lock before the ledger counts as away
# One wait inside SQLite; the patience has many. SQLite pauses longer before each further try, so latecomers win: with
# one long wait, one of eight busy processes stood for 10 s where short waits, begun anew, took 2 s.
BUSY_S = 0.05
UPGRADE = "run `mandor ledger upgrade`"
AWAY = (sql.OperationalError, sql.InterfaceError, sql.InternalError)
LOCKED = ("database is locked", "locking protocol")
VERSION = sqlalchemy.table(VERSION_TABLE, sqlalchemy.column("version_num", sqlalchemy.String))


class _Locked(LedgerUnavailable):
    """The database is there, but others held it for longer than one wait."""


class Database:
    """One database, reached by a pool of connections that belongs to the process that uses it.

    url: `sqlite:////absolute/path` (three slashes, then the path).
    patience_s: the longest wait for the write lock.
    """

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        self.path = path_in(url)
        self._patience_s = patience_s
        self._local = threading.local()
        self._lock = threading.Lock()
        self._made: Engine | None = None
        self._open: set[int] = set()  # ids of SQLite connections
        _databases.add(self)

    def prepare(self) -> None:
        """Create the file (0600) in its folder (0700) if they are not there; the folders of others keep their mode."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _creating:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            if not self.path.is_file():
                message = f"cannot create the ledger's file: {error}"
                raise LedgerUnavailable(message, hint="mend MANDOR_LEDGER_URL or the permissions") from error

    @contextmanager
    def writing(self, *, any_revision: bool = False) -> Iterator[Connection]:
        """A transaction that holds the write lock from its beginning; committed at the end, rolled back
        by an exception.

        LedgerUnavailable: the lock was not to be had within the patience, or the database cannot be reached.
        LedgerMissing: the schema is not at our revision (not asked with any_revision).
        """
        if getattr(self._local, "writing", False):
            message = "this thread is already in a write transaction of the ledger and would wait for itself"
            raise LedgerError(message, hint="use the connection you have")
        self._local.writing = True
        try:
            with self._transaction("IMMEDIATE", any_revision) as connection:
                yield connection
        finally:
            self._local.writing = False

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database and keeps nobody waiting. Errors as of `writing`."""
        with self._transaction("DEFERRED", any_revision=False) as connection:
            yield connection

    @contextmanager
    def _transaction(self, mode: Mode, any_revision: bool) -> Iterator[Connection]:
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
                return self._begin(mode, any_revision)
            except _Locked:
                if time.monotonic() >= until:
                    raise
            time.sleep(random.uniform(0.001, 0.02))

    def _begin(self, mode: Mode, any_revision: bool) -> Connection:
        try:
            connection = self._engine().connect().execution_options(**{MODE: mode})
        except sql.TimeoutError as error:
            raise LedgerUnavailable(f"no connection became free: {error}", hint="use fewer threads") from error
        try:
            connection.begin()
            if not any_revision:
                check_revision(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _engine(self) -> Engine:
        with self._lock:
            if self.path in _spoiled:
                message = "this process was forked while its parent had a connection to the ledger's file in use"
                raise LedgerUnavailable(message, hint="fork outside of ledger transactions, or spawn")
            if self._made is None:
                self._made = self._make_engine()
            return self._made

    def _make_engine(self) -> Engine:
        path, busy_s = self.path, min(BUSY_S, self._patience_s)
        engine = create_engine(
            "sqlite://", creator=lambda: connect(path, busy_s), poolclass=QueuePool, hide_parameters=True
        )
        event.listen(engine, "begin", begin)
        event.listen(engine, "connect", remember_file(path))
        event.listen(engine, "checkout", same_file(path))
        event.listen(engine, "handle_error", explain)
        count_open(engine, self._open)
        weakref.finalize(self, engine.dispose)
        return engine

    def close(self) -> None:
        """Close the idle connections. The next transaction opens another."""
        if self._made is not None:
            self._made.dispose()

    def before_fork(self) -> None:
        """Close idle connections: SQLite's locks belong to a process, and a child must not believe that it has them.

        With a connection in use it is of no avail: the child is refused the ledger, and ours go on.
        """
        pool: Any = self._made.pool if self._made else None
        if pool is not None and pool.checkedout() == 0:
            self.close()

    def after_fork(self) -> None:
        """In the child: start without a pool; a file with a connection in use after all is spoiled for this process."""
        if self._open:
            _spoiled.add(self.path)
        made, self._made = self._made, None
        self._lock, self._local = threading.Lock(), threading.local()
        self._open.clear()
        if made is not None:
            made.dispose(close=False)


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_spoiled: set[Path] = set()  # files whose locks this process believes it inherited
_creating = threading.Lock()  # closing any descriptor of a SQLite file drops the locks of the whole process


def _before_fork() -> None:
    for database in list(_databases):
        database.before_fork()


def _after_fork() -> None:
    for database in list(_databases):
        database.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def path_in(url: str) -> Path:
    """The file that a URL names; ConfigError if no ledger can be kept there."""
    try:
        parsed = make_url(url)
    except (sql.ArgumentError, ValueError):
        raise _bad_url("is not a database URL") from None
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise _bad_url(f"names {parsed.drivername}; this release keeps its ledger in SQLite")
    if not Path(parsed.database or "").is_absolute():
        raise _bad_url("needs an absolute path: every process must open the same file")
    return Path(parsed.database or "")


def _bad_url(why: str) -> ConfigError:
    return ConfigError(why, path="MANDOR_LEDGER_URL", hint="use sqlite:////absolute/path/ledger.db")


def connect(path: Path, busy_s: float) -> sqlite3.Connection:
    """A connection in WAL mode. Never creates the file: an empty one would hide that the real one is not mounted."""
    if not path.parent.is_dir():
        raise LedgerUnavailable(f"the ledger's folder {path.parent} is not there", hint=f"mount it, or {UPGRADE}")
    if not path.exists():
        raise LedgerMissing(f"there is no ledger at {path}", hint=UPGRADE)
    target = f"file:{quote(str(path))}?mode=rw"
    connection = sqlite3.connect(target, uri=True, isolation_level=None, timeout=busy_s, check_same_thread=False)
    try:
        for pragma in ("foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


def begin(connection: Connection) -> None:
    """Start the transaction ourselves: IMMEDIATE unless the caller only reads."""
    mode = connection.get_execution_options().get(MODE, "IMMEDIATE")
    connection.exec_driver_sql(f"BEGIN {mode}")


def remember_file(path: Path) -> ConnectListener:
    """A note, with each new connection, of the file that it has open."""

    def remember(_connection: Any, record: Any) -> None:
        record.info["file"] = file_identity(path)

    return remember


def same_file(path: Path) -> CheckoutListener:
    """A check at checkout: a ledger restored under our feet is another file, and what goes to the old one is lost."""

    def check(_connection: sqlite3.Connection, record: Any, _proxy: Any) -> None:
        if record.info["file"] != file_identity(path):
            raise sql.DisconnectionError("the ledger's file was replaced")

    return check


def count_open(engine: Engine, ids: set[int]) -> None:
    """Keep the ids of an engine's connections, of those in use as of those at rest, in a set."""
    event.listen(engine, "connect", lambda connection, _record: ids.add(id(connection)))
    event.listen(engine, "close", lambda connection, _record: ids.discard(id(connection)))


def file_identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file, None if it is gone."""
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def explain(context: ExceptionContext) -> LedgerError | None:
    """What to raise instead where the database is unreachable, locked or empty; None lets the driver's error stand."""
    words = str(context.original_exception)
    if words.startswith("no such table"):
        return LedgerMissing(f"the database holds no ledger, or not all of it: {words}", hint=UPGRADE)
    if any(sign in words for sign in LOCKED):
        return _Locked("the ledger stayed locked by other processes", hint="see which of them holds a long transaction")
    raised = context.sqlalchemy_exception
    if isinstance(raised, AWAY) or type(raised) is sql.DatabaseError:
        hint = "check MANDOR_LEDGER_URL, the disk and its permissions"
        return LedgerUnavailable(f"the ledger's database failed: {words}", hint=hint)
    return None


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


def insert_absent(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless one of its unique keys is taken; tells whether it was inserted."""
    insert = sqlite.insert(table).values(**values).on_conflict_do_nothing()
    return connection.execute(insert, execution_options={"preserve_rowcount": True}).rowcount == 1


def refuse_foreign(connection: Connection) -> None:
    """LedgerError for a connection that was not opened by the ledger: its transaction is not the one that counts."""
    if MODE not in connection.get_execution_options():
        message = "this connection is not the ledger's, so effect and proof would not be committed together"
        raise LedgerError(message, hint="open the transaction with ctx.ledger().begin()")
