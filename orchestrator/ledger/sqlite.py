"""The ledger in a SQLite file.

It is run in WAL mode with full synchronisation, and every writing transaction takes the write lock when it begins:
with the driver's own deferred transactions, two that read and then write the same row lose one of the writes.
"""

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy import exc as sql
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.pool import QueuePool

from orchestrator.errors import LedgerError, LedgerMissing, LedgerUnavailable
from orchestrator.home import make_private
from orchestrator.ledger.backend import MODE, UPGRADE, Locked, Mode, bad_url

ConnectListener = Callable[[Any, Any], None]
CheckoutListener = Callable[[Any, Any, Any], None]

# One wait inside SQLite; the patience has many. SQLite pauses longer before each further try, so latecomers win: with
# one long wait, one of eight busy processes stood for 10 s where short waits, begun anew, took 2 s.
BUSY_S: Final = 0.05
AWAY: Final = (sql.OperationalError, sql.InterfaceError, sql.InternalError)
LOCKED: Final = ("database is locked", "locking protocol")
BEGIN: Final[dict[str, str]] = {"reading": "BEGIN DEFERRED"}  # any other mode holds the one write lock

_spoiled: set[Path] = set()  # files whose locks this process believes it inherited
_creating = threading.Lock()  # closing any descriptor of a SQLite file drops the locks of the whole process


class SqliteFile:
    """A backend over one file. ConfigError: the URL names none, or one that other processes would not find."""

    def __init__(self, url: URL) -> None:
        if not Path(url.database or "").is_absolute():
            raise bad_url("needs an absolute path: every process must open the same file")
        self.path = Path(url.database or "")
        self._open: set[int] = set()  # ids of SQLite connections

    def prepare(self) -> None:
        """Create the file (0600) in its folder (0700) if they are not there; the folders of others keep their mode."""
        try:
            make_private(self.path.parent)
            with _creating:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            if not self.path.is_file():
                message = f"cannot create the ledger's file: {error}"
                raise LedgerUnavailable(message, hint="mend MANDOR_LEDGER_URL or the permissions") from error

    def refuse_spoiled(self) -> None:
        """LedgerUnavailable in a child whose parent was using the file: SQLite's locks belong to a process."""
        if self.path in _spoiled:
            message = "this process was forked while its parent had a connection to the ledger's file in use"
            raise LedgerUnavailable(message, hint="fork outside of ledger transactions, or spawn")

    def make_engine(self, patience_s: float) -> Engine:
        """Connections that are given up where the file is another one by now."""
        path, busy_s = self.path, min(BUSY_S, patience_s)
        engine = create_engine(
            "sqlite://", creator=lambda: connect(path, busy_s), poolclass=QueuePool, hide_parameters=True
        )
        event.listen(engine, "begin", begin)
        event.listen(engine, "connect", remember_file(path))
        event.listen(engine, "checkout", same_file(path))
        event.listen(engine, "handle_error", explain)
        count_open(engine, self._open)
        return engine

    def options(self, mode: Mode) -> dict[str, Any]:
        """Read by `begin`."""
        return {MODE: mode}

    def enter(self, _connection: Connection, _mode: Mode) -> None:
        """Nothing: the lock came with the beginning."""

    def after_fork(self) -> None:
        """A file with a connection in use after all is spoiled for this process."""
        if self._open:
            _spoiled.add(self.path)
        self._open.clear()


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
    """Start the transaction ourselves: with the write lock, unless the caller only reads."""
    mode = connection.get_execution_options().get(MODE)
    connection.exec_driver_sql(BEGIN.get(str(mode), "BEGIN IMMEDIATE"))


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
        return Locked("the ledger stayed locked by other processes", hint="see which of them holds a long transaction")
    raised = context.sqlalchemy_exception
    if isinstance(raised, AWAY) or type(raised) is sql.DatabaseError:
        hint = "check MANDOR_LEDGER_URL, the disk and its permissions"
        return LedgerUnavailable(f"the ledger's database failed: {words}", hint=hint)
    return None
