"""The ledger in a PostgreSQL database, for installations of more than one host. Needs the extra `postgres`.

Writing transactions are READ COMMITTED: each of ours locks the row that it is about before it looks, so it waits its
turn and then sees what the one before it wrote; a stricter level would answer the same contests with errors that
somebody must repeat. What users write into `Ledger.begin` reads first and locks nothing, and is right on SQLite, where
such transactions follow one another. So here they do so too, by one advisory lock. Readers see one state.
"""

from importlib.util import find_spec
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy import exc as sql
from sqlalchemy.engine.interfaces import ExceptionContext

from orchestrator.errors import ConfigError, LedgerError, LedgerMissing, LedgerUnavailable
from orchestrator.ledger.backend import MODE, UPGRADE, Gone, Locked, Mode, bad_url

DRIVER: Final = "postgresql+psycopg"
ALONE: Final = 0x6D616E646F72  # the advisory lock's number in this database: "mandor"
READING: Final = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
WRITING: Final = {"isolation_level": "READ COMMITTED"}

CONNECT_S: Final = 10  # or the patience, if that is less; libpq takes less than 2 s for 2 s
STATEMENT_S: Final = 30  # what a statement may take beside its waits
IDLE_S: Final = 300  # a process that is frozen in a transaction keeps its locks for so long
# A host that vanished is noticed within about half a minute, while waiting for it as while saying something to it.
NETWORK: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}

WAITED: Final = frozenset({"55P03", "40P01", "40001"})  # lock timeout, deadlock, serialisation
EMPTY: Final = frozenset({"42P01", "3F000"})  # no such table, no such schema
# connection lost, out of resources, stopped by an operator, system, broken; read-only (a standby); not allowed
AWAY_CLASSES: Final = frozenset({"08", "53", "57", "58", "XX"})
AWAY: Final = frozenset({"25006", "25P03", "42501"})
UNREACHED: Final = (sql.OperationalError, sql.InterfaceError)  # where no server said why


class PostgresDatabase:
    """A backend over one database. ConfigError: the URL names none, or the driver is not installed."""

    def __init__(self, url: URL) -> None:
        if not url.database:
            raise bad_url("needs the name of a database")
        if find_spec("psycopg") is None:
            hint = "pip install 'mandor[postgres]'"
            raise ConfigError("PostgreSQL needs the driver psycopg", hint=hint)
        self._url = url.set(drivername=DRIVER)

    def prepare(self) -> None:
        """Nothing: the database is made by whoever runs the server."""

    def refuse_spoiled(self) -> None:
        """Never: a child of a process in a transaction has connections of its own."""

    def make_engine(self, patience_s: float) -> Engine:
        """Connections that give up waiting by themselves, also for a server that has vanished."""
        from orchestrator.ledger.silence import opener  # needs the driver

        engine = create_engine(self._url, hide_parameters=True, connect_args=connect_args(patience_s))
        event.listen(engine, "handle_error", explain)
        event.listen(engine, "do_connect", opener(patience_s, patience_s + STATEMENT_S))
        return engine

    def options(self, mode: Mode) -> dict[str, Any]:
        """The isolation of the mode."""
        return {MODE: mode, **(READING if mode == "reading" else WRITING)}

    def enter(self, connection: Connection, mode: Mode) -> None:
        """Wait for the others that want to be alone."""
        if mode == "alone":
            connection.execute(select(func.pg_advisory_xact_lock(ALONE)))

    def after_fork(self) -> None:
        """Nothing: the driver closes no connection that it inherited."""


def connect_args(patience_s: float) -> dict[str, Any]:
    """How to connect, with the limits of the session."""
    wait_ms = max(1, round(patience_s * 1000))
    limits = {
        "lock_timeout": wait_ms,
        "statement_timeout": wait_ms + STATEMENT_S * 1000,
        "idle_in_transaction_session_timeout": IDLE_S * 1000,
    }
    return {
        "application_name": "mandor",
        "client_encoding": "utf8",
        "connect_timeout": max(2, min(CONNECT_S, round(patience_s))),
        "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
        **NETWORK,
    }


def explain(context: ExceptionContext) -> BaseException | None:
    """What to raise instead where the database is unreachable, locked or empty; else the error without its details,
    which quote the values of the row that was refused."""
    error: Any = context.original_exception
    raised = context.sqlalchemy_exception
    if not isinstance(raised, sql.DBAPIError):
        return None
    words = error.diag.message_primary or str(error).strip()
    return known(error.sqlstate, words, type(raised), lost=context.is_disconnect) or bare(context, error, words)


def known(code: str | None, words: str, raised: type[Exception], *, lost: bool) -> LedgerError | None:
    """Our error for a state that the server, or the lack of one, reports."""
    if code in EMPTY:
        return LedgerMissing(f"the database holds no ledger, or not all of it: {words}", hint=UPGRADE)
    if code in WAITED:
        return Locked(f"the ledger stayed locked by other processes: {words}", hint="see which of them holds a lock")
    if lost:
        return Gone(f"the connection to the ledger was lost: {words}", hint="see the database server's log")
    if code in AWAY or (code or "")[:2] in AWAY_CLASSES or (code is None and issubclass(raised, UNREACHED)):
        hint = "check MANDOR_LEDGER_URL, the server and what the user may do there"
        return LedgerUnavailable(f"the ledger's database failed: {words}", hint=hint)
    return None


def bare(context: ExceptionContext, error: Exception, words: str) -> BaseException:
    """The error as SQLAlchemy tells it, of its first sentence alone."""
    error.args = (words,)
    return sql.DBAPIError.instance(context.statement, None, error, Exception, hide_parameters=True)
