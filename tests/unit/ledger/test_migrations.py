"""The migrations make exactly the tables that the code is written against."""

import re
import sqlite3
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from orchestrator.ledger import Ledger
from orchestrator.ledger.migrations import alembic_config
from orchestrator.ledger.tables import REVISION, VERSION_TABLE, metadata
from tests.support.ledgers import fresh_ledger


def statements(path: Path) -> list[str]:
    """All that a SQLite file was built with, one spelling each."""
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> ?", [VERSION_TABLE])
    listed = sorted(tidy(sql) for (sql,) in found)
    connection.close()
    return listed


def tidy(statement: str) -> str:
    head, body, tail = re.fullmatch(r"([^(]*\()(.*)(\).*)", " ".join(statement.split()), re.DOTALL).groups()  # type: ignore[union-attr]
    return head + ", ".join(sorted(part.strip() for part in re.split(r",(?![^(]*\))", body))) + tail


def test_migrations_and_tables_agree(tmp_path: Path) -> None:
    fresh_ledger(tmp_path)
    plain = create_engine(f"sqlite:///{tmp_path / 'plain.db'}")
    metadata.create_all(plain)
    plain.dispose()
    assert statements(tmp_path / "ledger.db") == statements(tmp_path / "plain.db")


def test_alembic_finds_nothing_left_to_do(tmp_path: Path) -> None:
    with fresh_ledger(tmp_path).begin() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []


def test_the_revision_asked_for_is_the_newest_script(tmp_path: Path) -> None:
    ledger: Ledger = fresh_ledger(tmp_path)
    with ledger.begin() as connection:
        scripts = ScriptDirectory.from_config(alembic_config(connection))
    assert scripts.get_heads() == [REVISION]
