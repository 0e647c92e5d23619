"""Reaching the database: which URLs, which files, and what is said when it is not as it should be."""

import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.dialects import postgresql

from orchestrator.errors import ConfigError, LedgerError, LedgerMissing, LedgerUnavailable
from orchestrator.ledger import ANY_RUN, Ledger, open_ledger, reads
from orchestrator.ledger.engine import Database, insert_absent
from orchestrator.ledger.tables import REVISION, effects, epochs, runs
from tests.support.ledgers import accepted, fresh_ledger, template, url_of


def upgraded(path: Path) -> Ledger:
    ledger = open_ledger(url_of(path))
    ledger.upgrade()
    return ledger


def rewrite(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "absolute path"),
        ("sqlite:///ledger.db", "absolute path"),
        ("sqlite:///:memory:", "absolute path"),
        ("postgresql://localhost", "the name of a database"),
        ("mysql://localhost/ledger", "names mysql; a ledger is kept in SQLite or PostgreSQL"),
        ("/var/lib/ledger.db", "is not a database URL"),
        ("postgresql://host:port/db", "is not a database URL"),
    ],
)
def test_a_url_that_no_ledger_can_have_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        open_ledger(url)
    assert refused.value.path == "MANDOR_LEDGER_URL"


def test_nothing_is_opened_before_the_first_use(tmp_path: Path) -> None:
    open_ledger(url_of(tmp_path / "ledger.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_and_its_folder_belong_to_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "50% of it" / "ledger.db"
    ledger = upgraded(path)
    accepted(ledger, "order-1")
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
        "ledger.db": 0o600,
        "ledger.db-wal": 0o600,
        "ledger.db-shm": 0o600,
    }


def test_the_modes_of_what_was_there_are_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    upgraded(tmp_path / "ledger.db")
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_every_connection_is_durable_and_checks_references(tmp_path: Path) -> None:
    with fresh_ledger(tmp_path).begin() as connection:
        pragmas = {name: connection.execute(text(f"PRAGMA {name}")).scalar() for name in PRAGMAS}
    assert pragmas == PRAGMAS


PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 50}


def test_a_missing_folder_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="is not there") as away:
        open_ledger(url_of(tmp_path / "unmounted" / "ledger.db")).check_schema()
    assert "mandor ledger upgrade" in (away.value.hint or "")


def test_a_missing_file_is_missing_and_stays_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerMissing, match="no ledger at") as missing:
        open_ledger(url_of(tmp_path / "ledger.db")).run("r")
    assert "mandor ledger upgrade" in (missing.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_database_is_missing(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    with pytest.raises(LedgerMissing, match="holds no ledger") as missing:
        open_ledger(url_of(tmp_path / "ledger.db")).check_schema()
    assert "mandor ledger upgrade" in (missing.value.hint or "")


@pytest.mark.parametrize(
    ("revision", "words", "hint"),
    [
        ("0000", f"needs {REVISION}", "mandor ledger upgrade"),
        ("9999", f"newer than {REVISION}", "the release that upgraded it"),
    ],
)
def test_another_revision_is_named_with_the_way_out(tmp_path: Path, revision: str, words: str, hint: str) -> None:
    ledger = fresh_ledger(tmp_path)
    rewrite(tmp_path / "ledger.db", f"UPDATE mandor_ledger_version SET version_num = '{revision}'")
    with pytest.raises(LedgerMissing, match=words) as missing, ledger.begin():
        pass
    assert hint in (missing.value.hint or "")


def test_a_revision_that_changes_under_a_running_process_is_noticed(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    ledger.check_schema()
    rewrite(tmp_path / "ledger.db", "UPDATE mandor_ledger_version SET version_num = '9999'")
    with pytest.raises(LedgerMissing):
        ledger.run("r")


def test_an_upgrade_leaves_a_newer_ledger_alone(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    rewrite(tmp_path / "ledger.db", "UPDATE mandor_ledger_version SET version_num = '9999'")
    with pytest.raises(LedgerMissing, match="newer than"):
        ledger.upgrade()


def test_the_lack_of_one_table_is_named(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    rewrite(tmp_path / "ledger.db", "DROP TABLE effects")
    with pytest.raises(LedgerMissing, match="no such table: effects"):
        ledger.effects.close("r", "s", "do", 1)


def test_what_is_no_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text(
        "a shopping list, by no means a database, and long enough to have a header" * 20
    )
    with pytest.raises(LedgerUnavailable, match="not a database"):
        open_ledger(url_of(tmp_path / "ledger.db")).check_schema()


@pytest.mark.parametrize(
    "make", [lambda path: path.mkdir(), lambda path: path.symlink_to(path.parent / "gone" / "far")]
)
def test_a_path_that_cannot_be_a_file_is_unavailable(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "ledger.db")
    with pytest.raises(LedgerUnavailable, match="cannot create"):
        open_ledger(url_of(tmp_path / "ledger.db")).upgrade()


def test_a_folder_that_is_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(LedgerUnavailable, match="cannot create"):
        open_ledger(url_of(tmp_path / "home" / "ledger.db")).upgrade()


def test_a_transaction_that_raises_leaves_nothing(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    epoch = {"namespace": "n", "epoch": "e", "shards": 1, "created_at": 1}
    with suppress(ZeroDivisionError), ledger.begin() as connection:
        insert_absent(connection, epochs, epoch)
        raise ZeroDivisionError
    assert ledger.epoch("n") is None


def test_a_reader_sees_one_state_and_hinders_no_writer(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    database = Database(url_of(tmp_path / "ledger.db"))
    with database.reading() as connection:
        assert reads.listed_runs(connection, 9, None, ANY_RUN) == []
        accepted(ledger, "order-1")
        assert reads.listed_runs(connection, 9, None, ANY_RUN) == []
    assert len(ledger.listed(9)) == 1


def test_a_second_write_transaction_of_a_thread_is_refused_at_once(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    with ledger.begin(), pytest.raises(LedgerError, match="already in a write transaction"):
        accepted(ledger, "order-1")
    accepted(ledger, "order-1")


def test_threads_take_turns(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    threads = [threading.Thread(target=accepted, args=(ledger, f"order-{number}")) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.listed(20)) == 12


def test_a_lock_that_is_never_given_up_is_unavailable_within_the_patience(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path, patience_s=0.2)
    holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="stayed locked"):
        accepted(ledger, "order-1")
    assert ledger.listed(1) == []
    holder.execute("ROLLBACK")
    holder.close()
    accepted(ledger, "order-1")


def test_who_waits_in_vain_keeps_the_others_from_it_for_a_while(tmp_path: Path) -> None:
    """Only for so many times as long; and nobody who was refused puts it off."""
    fresh_ledger(tmp_path)
    with closing(open_ledger(url_of(tmp_path / "ledger.db"), patience_s=0.3, respite=2)) as ledger:
        holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="stayed locked"):
            accepted(ledger, "order-1")
        holder.execute("ROLLBACK")
        holder.close()
        found_out, refusals = time.monotonic(), list[str]()
        while refusal := refusal_of(ledger):
            refusals.append(refusal)
            time.sleep(0.05)
        assert len(refusals) > 1
        assert all("a moment ago" in one for one in refusals)
        assert 0.5 < time.monotonic() - found_out < 3


def refusal_of(ledger: Ledger) -> str:
    try:
        accepted(ledger, "order-1")
    except LedgerUnavailable as away:
        return str(away)
    return ""


def test_a_ledger_that_is_away_at_once_is_asked_again_at_once(tmp_path: Path) -> None:
    fresh_ledger(tmp_path)
    with closing(open_ledger(url_of(tmp_path / "ledger.db"), respite=2)) as ledger:
        tmp_path.rename(tmp_path.with_suffix(".away"))
        with pytest.raises(LedgerUnavailable):
            accepted(ledger, "order-1")
        tmp_path.with_suffix(".away").rename(tmp_path)
        time.sleep(0.1)
        accepted(ledger, "order-1")


def test_a_file_that_was_replaced_is_opened_anew(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    accepted(ledger, "before-the-restore")
    shutil.copyfile(template(), tmp_path / "restored.db")
    (tmp_path / "ledger.db-wal").unlink()
    (tmp_path / "ledger.db-shm").unlink()
    (tmp_path / "restored.db").rename(tmp_path / "ledger.db")
    assert ledger.listed(9) == []
    accepted(ledger, "after-the-restore")
    assert len(open_ledger(url_of(tmp_path / "ledger.db")).listed(9)) == 1


def test_a_file_that_is_gone_is_missing(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    ledger.check_schema()
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(LedgerMissing):
        accepted(ledger, "order-1")


def test_close_leaves_one_file_and_a_usable_ledger(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    accepted(ledger, "order-1")
    ledger.close()
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.db"]
    assert len(ledger.listed(9)) == 1


def test_upgrading_twice_changes_nothing(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    accepted(ledger, "order-1")
    ledger.upgrade()
    assert len(ledger.listed(9)) == 1


def test_upgrading_leaves_logging_alone(tmp_path: Path) -> None:
    before = (logging.root.handlers[:], logging.root.level, logging.getLogger("somebody").disabled)
    upgraded(tmp_path / "ledger.db")
    assert (logging.root.handlers[:], logging.root.level, logging.getLogger("somebody").disabled) == before


@pytest.fixture
def read_only() -> Iterator[Ledger]:
    """A ledger that this process may read and not write; root, who may do anything, is nobody meanwhile."""
    folder, us = Path(tempfile.mkdtemp()), os.geteuid()
    ledger = fresh_ledger(folder)
    accepted(ledger, "order-1")
    ledger.close()
    (folder / "ledger.db").chmod(0o444)
    folder.chmod(0o555)
    if us == 0:
        os.seteuid(65534)
    yield ledger
    os.seteuid(us)
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_ledger_that_may_not_be_written_is_unavailable(read_only: Ledger) -> None:
    with pytest.raises(LedgerUnavailable, match=r"unable to open|readonly"):
        accepted(read_only, "order-2")


def test_pages_and_locks_are_said_in_sql_that_other_databases_know() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    page = reads.older_than(reads.runs_with_plans(), runs.c.accepted_at, runs.c.run_id, "r")
    assert "(runs.accepted_at, runs.run_id) < (SELECT" in str(page.compile(dialect=dialect))
    assert str(select(effects).with_for_update().compile(dialect=dialect)).endswith("FOR UPDATE")
