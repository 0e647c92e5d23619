"""Effect rows in databases of the users' own, where transactional actions have their effects.

The truth about such an effect lies beside it: in the table `mandor_effects` of that database, which MANDOR_EFFECTS_URLS
names and `mandor ledger upgrade --effects` makes. Nothing says beforehand where an action will put its row, so
whoever looks or closes does it in the ledger and in each of these databases; one that cannot be asked leaves the
question open, and it is asked again.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, delete, select
from sqlalchemy import exc as sql

from orchestrator.errors import LedgerError, LedgerMissing
from orchestrator.ledger.answers import AlreadyLanded, Closed, Fresh, Landed, RowClosed
from orchestrator.ledger.effect_row import Kind
from orchestrator.ledger.effects import EffectRows
from orchestrator.ledger.engine import Database, is_ours
from orchestrator.ledger.tables import EffectState, effects

LAYOUT: Final = 1  # of the two tables
UPGRADE: Final = "run `mandor ledger upgrade --effects URL`"
metadata = MetaData()
rows = effects.to_metadata(metadata, name="mandor_effects")
rows.indexes.clear()  # of what comes late: nothing does in a transaction; and their names may be the ledger's
place = Table(
    "mandor_effects_place",
    metadata,
    Column("id", String(32), primary_key=True),  # tells this database from any other
    Column("layout", Integer, nullable=False),
)


def check_layout(connection: Connection) -> None:
    """LedgerMissing unless the tables are there, and of this release's layout."""
    found = connection.execute(select(place.c.layout)).scalar()
    if found != LAYOUT:
        raise LedgerMissing(f"the effects' tables have layout {found}, this release needs {LAYOUT}", hint=UPGRADE)


class Elsewhere:
    """One such database."""

    def __init__(self, url: str, patience_s: float, clock: Callable[[], int], respite: float = 0.0) -> None:
        self._database = Database(url, patience_s, check=check_layout, setting="MANDOR_EFFECTS_URLS", respite=respite)
        self.effects = EffectRows(self._database.writing, self._database.reading, clock, rows)

    def upgrade(self) -> None:
        """Make the tables, beside whatever is there. Repeated it changes nothing."""
        self._database.prepare()
        with self._database.writing(alone=True, any_revision=True) as connection:
            metadata.create_all(connection)
            if connection.execute(select(place.c.id)).first() is None:
                connection.execute(place.insert().values(id=uuid.uuid4().hex, layout=LAYOUT))

    def check(self) -> None:
        """Return if the database can be reached and has our tables; else raise."""
        try:
            with self._database.reading():
                pass
        except LedgerMissing as missing:
            raise LedgerMissing(missing.message, path="MANDOR_EFFECTS_URLS", hint=UPGRADE) from None

    @cached_property
    def id(self) -> str:
        """The same for every way to reach this database."""
        with self._database.reading() as connection:
            return str(connection.execute(select(place.c.id)).scalar_one())

    def forget(self, run_ids: Sequence[str]) -> None:
        """Delete the effects of these runs."""
        with self._database.writing() as connection:
            connection.execute(delete(rows).where(rows.c.run_id.in_(run_ids)))

    def close(self) -> None:
        """Close idle connections."""
        self._database.close()


@dataclass(frozen=True, slots=True)
class TransactionalRows:
    """The effect rows of transactional steps: the ledger's own, and those elsewhere. Answers are EffectRows'."""

    own: EffectRows
    elsewhere: Sequence[Elsewhere]

    def look(self, run_id: str, step_id: str, kind: Kind, fence: int, token: str) -> Fresh | AlreadyLanded | Closed:
        """What `land` would meet now, wherever the row is."""
        answers = (each.look(run_id, step_id, kind, fence, token) for each in self._all())
        return next((answer for answer in answers if not isinstance(answer, Fresh)), Fresh())

    def close(self, run_id: str, step_id: str, kind: Kind, fence: int, void: bool = False) -> RowClosed:
        """End what a fence may do, everywhere; landed where it has landed anywhere."""
        found = [each.close(run_id, step_id, kind, fence, void) for each in self._all()]
        return next((row for row in found if row.state is EffectState.LANDED), found[0])

    def landed_elsewhere(self, run_id: str, step_id: str, fence: int, token: str) -> RowClosed | None:
        """End what a fence may do in every database but the ledger, and answer what has landed in one of them.

        EffectRefused: it belongs to another step token.
        """
        found = [each.effects.close(run_id, step_id, "do", fence, token=token) for each in self.elsewhere]
        return next((row for row in found if row.state is EffectState.LANDED), None)

    def set_aside(self, run_id: str, step_ids: Sequence[str], anew: Collection[str], fence: int) -> None:
        """As of one database, in each."""
        for rows_there in self._all():
            rows_there.set_aside(run_id, step_ids, anew, fence)

    def landed(self, run_id: str) -> dict[str, str]:
        """The tokens of a run's steps whose effects have landed anywhere, by step."""
        return {step_id: token for each in self._all() for step_id, token in each.landed(run_id).items()}

    def land(
        self, run_id: str, step_id: str, kind: Kind, fence: int, token: str, result_text: str, connection: Any
    ) -> Landed | AlreadyLanded | Closed:
        """Put the row into the transaction of a connection: the ledger's, or one to a database that is named.

        LedgerError: it leads elsewhere, or commits each statement by itself. LedgerMissing: no tables of ours there.
        """
        rows_there = self.own if is_ours(connection) else self._there(connection)
        return rows_there.land(run_id, step_id, kind, fence, token, result_text, connection=connection)

    def _all(self) -> Iterator[EffectRows]:
        yield self.own
        for each in self.elsewhere:
            yield each.effects

    def _there(self, connection: Any) -> EffectRows:
        if not isinstance(connection, Connection):
            hint = "pass an SQLAlchemy Connection; of a Session, `session.connection()`"
            raise LedgerError(f"the effect cannot be put into a {type(connection).__name__}", hint=hint)
        if _commits_by_itself(connection):
            message = "this connection commits each statement by itself, so effect and proof would be apart"
            raise LedgerError(message, hint="use a transaction")
        found = _id_on(connection)
        for each in self.elsewhere:
            if each.id == found:
                return each.effects
        message = "no process would look for the effect in this connection's database"
        raise LedgerError(message, hint="name it in MANDOR_EFFECTS_URLS, for every process")


def _commits_by_itself(connection: Connection) -> bool:
    raw: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite":
        return raw.isolation_level is None and not raw.in_transaction
    return bool(raw.autocommit)


def _id_on(connection: Connection) -> str | None:
    try:
        return connection.execute(select(place.c.id)).scalar()
    except sql.DBAPIError:
        message = "the connection's database has no table for effects of ours"
        raise LedgerMissing(message, hint=f"{UPGRADE} once, and name it in MANDOR_EFFECTS_URLS") from None
