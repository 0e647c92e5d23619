"""What the ledger holds, as a value: read from its file, put back, and numbered; as `stored` does with the store.

Every method of the ledger is one transaction. A transactional action's own transaction is another: the row, and the
line in the users' own table that is their effect.
"""

import re
import sqlite3
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.ledger import Kind, Landed, Ledger
from tests.explorer.operations import Answer, Op
from tests.support.stores import START

A_WHILE_AGO, LONG_AGO = START - 20_000, START - 3_600_000
TIME = re.compile(r"^1[67]\d{11}$")
SALE = "the users' own table"

Rows = tuple[tuple[Any, ...], ...]


class RolledBack(Exception):
    """The users' transaction must not commit."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.answer = answer


@dataclass(frozen=True)
class Book:
    """Everything the ledger holds that can change."""

    number: int
    tables: dict[str, Rows]
    columns: dict[str, list[str]]
    run_id: str

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Those of the run that is explored."""
        found = [dict(zip(self.columns[table], row, strict=True)) for row in self.tables[table]]
        return [row for row in found if row.get("run_id", self.run_id) == self.run_id]

    @cached_property
    def effects(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["step_id"], row["kind"]): row for row in self.rows("effects")}

    @cached_property
    def run(self) -> dict[str, Any]:
        (row,) = self.rows("runs")
        return row

    @cached_property
    def undecided(self) -> bool:
        return any(row["outcome"] is None for row in self.rows("decisions"))

    @cached_property
    def owed(self) -> list[dict[str, Any]]:
        """What came late and nobody has undone."""
        rows = self.effects.values()
        return [row for row in rows if row["kind"] == "late" and row["state"] != "landed" and row["closed_to"] == 0]

    @cached_property
    def letters(self) -> list[tuple[str, str | None, str]]:
        return [(row["kind"], row["step_id"], row["reason"]) for row in self.rows("dead_letters")]

    def sales(self, step_id: str, what: str) -> int:
        return sum((row["step"], row["what"]) == (step_id, what) for row in self.rows("sales"))

    def closed_to(self, step_id: str, kind: str = "do") -> int:
        row = self.effects.get((step_id, kind))
        return int(row["closed_to"]) if row else 0


@dataclass
class Written:
    """The books met so far, and what each operation made of each."""

    ledger: Ledger
    path: Path
    run_id: str
    books: list[Book] = field(default_factory=list)
    made: dict[tuple[int, str], tuple[Answer, int]] = field(default_factory=dict)
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _there: dict[str, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._own = sqlite3.connect(self.path, isolation_level=None)
        self._own.execute("PRAGMA synchronous=OFF")
        self._own.execute("CREATE TABLE sales (run TEXT, step TEXT, what TEXT)")
        tables = self._own.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        named = {table: self._own.execute(f"SELECT * FROM {table} LIMIT 0").description for (table,) in tables}
        self._columns = {table: [column[0] for column in columns] for table, columns in named.items()}

    def begin(self) -> int:
        return self._read()

    def close(self) -> None:
        self._own.close()

    def do(self, number: int, op: Op) -> tuple[Answer, int, bool]:
        """One operation on one book: its answer, the book it leaves, and whether it was done for the first time."""
        if (number, op.key) in self.made:
            return (*self.made[number, op.key], False)
        self._put(self.books[number])
        answer = self._call(op)
        answer, after = self._named(answer, op), self._read()
        self.made[number, op.key] = answer, after
        return answer, after, True

    def age(self, number: int) -> int:
        """The book when what is owed has been left alone for long."""
        key = "age"
        if (number, key) not in self.made:
            rows = tuple(_aged(row, self._columns["effects"]) for row in self.books[number].tables["effects"])
            self.made[number, key] = Answer(), self._number({**self.books[number].tables, "effects": rows})
        return self.made[number, key][1]

    def _call(self, op: Op) -> Answer:
        if op.name == "transactional.land":
            return Answer(self._sell(*op.args))
        found: Any = self.ledger
        for part in op.name.split("."):
            found = getattr(found, part)
        return Answer(found(*op.args, **op.more))

    def _sell(self, run_id: str, step_id: str, kind: Kind, fence: int, token: str, text: str, _sale: str) -> Any:
        """The action's transaction: its effect and the row that proves it, or neither."""
        try:
            with self.ledger.begin() as connection:
                answer = self.ledger.transactional.land(run_id, step_id, kind, fence, token, text, connection)
                if not isinstance(answer, Landed):
                    raise RolledBack(answer)
                connection.exec_driver_sql("INSERT INTO sales VALUES (?, ?, ?)", (run_id, step_id, kind))
        except RolledBack as over:
            return over.answer
        return answer

    def _named(self, answer: Answer, op: Op) -> Answer:
        """Ids of decisions are drawn; here they are counted."""
        if op.name != "decide":
            return answer
        ids = [row[0] for row in self._own.execute("SELECT id FROM decisions ORDER BY created_at, id")]
        if answer.value.startswith("decision-"):
            return answer
        name = f"decision-{len(ids)}"
        self._own.execute("UPDATE decisions SET id = ? WHERE id = ?", (name, answer.value))
        return Answer(name)

    # ---- there and back

    def _put(self, book: Book) -> None:
        changed = [table for table in self._columns if self._there.get(table) != book.tables[table]]
        if not changed:
            return
        self._own.execute("BEGIN IMMEDIATE")
        for table in changed:
            places = ", ".join("?" * len(self._columns[table]))
            self._own.execute(f"DELETE FROM {table}")
            self._own.executemany(f"INSERT INTO {table} VALUES ({places})", book.tables[table])
        self._own.execute("COMMIT")
        self._there = dict(book.tables)

    def _read(self) -> int:
        found = {table: self._own.execute(f"SELECT * FROM {table}").fetchall() for table in self._columns}
        tables = {table: _plain(table, rows, self._columns[table]) for table, rows in found.items()}
        self._there = {table: rows for table, rows in tables.items() if sorted(found[table], key=str) == list(rows)}
        return self._number(tables)

    def _number(self, tables: dict[str, Rows]) -> int:
        key = tuple(tables.items())
        if key not in self._numbers:
            self._numbers[key] = len(self.books)
            self.books.append(Book(len(self.books), tables, self._columns, self.run_id))
        return self._numbers[key]


def _plain(table: str, rows: list[tuple[Any, ...]], columns: list[str]) -> Rows:
    return tuple(sorted((_row(table, row, columns) for row in rows), key=str))


def _row(table: str, row: tuple[Any, ...], columns: list[str]) -> tuple[Any, ...]:
    fields = {name: _value(value) for name, value in zip(columns, row, strict=True)}
    if table == "runs":
        fields["version"] = 0
    if table == "dead_letters":
        fields["id"] = fields["dedup_hash"]
    if table == "effects":  # what is owed is looked at again at once
        fields["updated_at"] = min(fields["updated_at"], A_WHILE_AGO)
    return tuple(fields.values())


def _value(value: Any) -> Any:
    is_time = isinstance(value, int) and TIME.match(str(value)) and value != LONG_AGO
    return START if is_time else value


def _aged(row: tuple[Any, ...], columns: list[str]) -> tuple[Any, ...]:
    fields = dict(zip(columns, row, strict=True))
    if fields["kind"] == "late":
        fields["updated_at"] = LONG_AGO
    return tuple(fields.values())
