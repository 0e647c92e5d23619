"""The migrations make exactly the tables that the code is written against."""

import re
import sqlite3
from dataclasses import asdict
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import column as column_of
from sqlalchemy import create_engine, insert, table

from orchestrator.ledger import Ledger, LetterFilter, RunFilter, open_ledger
from orchestrator.ledger.engine import Database
from orchestrator.ledger.migrations import alembic_config
from orchestrator.ledger.tables import REVISION, VERSION_TABLE, dead_letters, epochs, metadata, plans, runs
from tests.support.ledgers import Places, fresh_ledger, run_named

NEWER = ("namespace", "callback")  # columns of runs


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


def test_migrations_and_tables_agree_on_every_kind_of_database(ledger: Ledger) -> None:
    with ledger.begin() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []


@pytest.mark.parametrize(("known", "whose"), [(("one",), "one"), (("one", "two"), ""), ((), "")])
def test_runs_of_before_are_of_the_only_installation(places: Places, known: tuple[str, ...], whose: str) -> None:
    url = places.unmade()
    old = Database(url)
    old.prepare()
    with old.writing(any_revision=True) as connection:
        command.upgrade(alembic_config(connection), "0002")
        values = asdict(run_named("r")) | {"status": "accepted", "accepted_at": 1, "generation": 1, "version": 0}
        connection.execute(insert(runs).values({key: values[key] for key in values if key not in NEWER}))
        for namespace in known:
            drawn = {"namespace": namespace, "epoch": "e", "shards": 16, "created_at": 1}
            connection.execute(insert(epochs).values(drawn))
    old.close()
    ledger = open_ledger(url)
    ledger.upgrade()
    migrated = ledger.run(run_named("r").run_id)
    assert migrated is not None
    assert migrated.namespace == whose
    ledger.close()


def test_runs_of_before_are_found_by_planner_and_action(places: Places) -> None:
    url = places.unmade()
    sent = {"r1": '{"goal":"g","planner":"orders.fulfil"}', "r2": '{"plan":"{}"}'}
    old = Database(url)
    old.prepare()
    with old.writing(any_revision=True) as connection:
        command.upgrade(alembic_config(connection), "0001")
        for name, submission_text in sent.items():
            values = asdict(run_named(name)) | {"submission_text": submission_text, "status": "accepted"}
            values |= {"accepted_at": 1, "generation": 1, "version": 0}
            later = ("planner", *NEWER)
            connection.execute(insert(runs).values({key: values[key] for key in values if key not in later}))
        plan = {"run_id": run_named("r2").run_id, "generation": 1, "plan_hash": "1" * 64, "created_at": 1}
        connection.execute(insert(plans).values(**plan, plan_text='{"steps":[{"action":"a.b"},{"action":"a.b"}]}'))
    old.close()
    ledger = open_ledger(url)
    ledger.upgrade()
    assert {run.request_id: run.planner for run in ledger.listed(9)} == {"r1": "orders.fulfil", "r2": None}
    assert [run.request_id for run in ledger.listed(9, None, RunFilter(action="a.b"))] == ["r2"]
    ledger.close()


@pytest.mark.parametrize(("known", "only"), [(("mandor",), True), (("mandor", "theirs"), False)])
def test_letters_of_before_are_grouped_and_found(places: Places, known: tuple[str, ...], only: bool) -> None:
    url = places.unmade()
    old = Database(url)
    old.prepare()
    with old.writing(any_revision=True) as connection:
        command.upgrade(alembic_config(connection), "0005")
        values = asdict(run_named("r", session_id="s")) | {"status": "accepted"}
        del values["callback"]
        connection.execute(insert(runs).values(**values, accepted_at=1, generation=1, version=0))
        later = ("fingerprint", "action", "planner", "session_id", "namespace")
        for namespace in known:
            connection.execute(insert(epochs).values(namespace=namespace, epoch="e", shards=16, created_at=1))
        for number in range(4):
            letter: dict[str, object] = {"id": f"l{number}", "dedup_hash": f"{number}", "kind": "step", "step_id": None}
            letter |= {"reason": f"order {number} is gone", "status": "open", "created_at": number}
            run_id = run_named("r", session_id="s").run_id if number < 3 else None
            letter |= {"run_id": run_id, "content_text": '{"action":"pay"}'}
            columns = [column for column in dead_letters.c if column.name not in later]
            connection.execute(insert(table("dead_letters", *(column_of(one.name) for one in columns))).values(letter))
    old.close()
    ledger = open_ledger(url)
    ledger.upgrade()
    (group,) = ledger.triage.groups(9)
    assert (group.count, group.newest.id) == (4, "l3")
    about = LetterFilter(action="pay", planner="counting", session_id="s")
    assert len(ledger.triage.listed(9, wanted=about)) == 3
    assert len(ledger.triage.listed(9, wanted=LetterFilter(namespace="mandor"))) == 4
    assert len(ledger.triage.listed(9, wanted=LetterFilter(namespace="theirs"))) == (0 if only else 1)
    ledger.close()
