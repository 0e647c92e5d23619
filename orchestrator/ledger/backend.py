"""What differs from one kind of database to the next, as the rest of the ledger asks for it."""

from typing import Any, Final, Literal, Protocol

from sqlalchemy import Connection, Engine

from orchestrator.errors import ConfigError, LedgerUnavailable

MODE: Final = "ledger_mode"  # execution option of our connections: what their transaction is for
Mode = Literal["reading", "writing", "alone"]
UPGRADE: Final = "run `mandor ledger upgrade`"


class Locked(LedgerUnavailable):
    """The database is there, but others held what was wanted for longer than one wait."""


class Gone(LedgerUnavailable):
    """The connection had been lost since it was last used; another one may do."""


class Backend(Protocol):
    """One database of one kind. Nothing is opened before an engine connects.

    Modes: `reading` sees one state and keeps nobody waiting; `writing` may wait for rows that others hold; `alone`
    has no other such transaction beside it from its beginning, so that what it reads stays true until it commits.
    """

    def prepare(self) -> None:
        """Make what must be there before anybody can connect."""

    def refuse_spoiled(self) -> None:
        """LedgerUnavailable if this process must not use the database (any more)."""

    def make_engine(self, patience_s: float) -> Engine:
        """Connections of this process. Their errors are ours: LedgerMissing, LedgerUnavailable, Locked, Gone.

        patience_s: how long a wait for others lasts at most, inside the database.
        """

    def options(self, mode: Mode) -> dict[str, Any]:
        """Execution options of a connection whose next transaction has this mode."""

    def enter(self, connection: Connection, mode: Mode) -> None:
        """Called first thing in the transaction."""

    def after_fork(self) -> None:
        """Called in a forked child, which has no engine yet."""


def bad_url(why: str) -> ConfigError:
    """A URL that no ledger can have."""
    hint = "use sqlite:////absolute/path/ledger.db or postgresql://user@host/database"
    return ConfigError(why, hint=hint)
