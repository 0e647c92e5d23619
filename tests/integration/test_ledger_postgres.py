"""What is PostgreSQL's own: reaching the server, losing it, waiting for others, and never telling the password."""

import importlib.util
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from sqlalchemy import text, update

from orchestrator.errors import ConfigError, LedgerMissing, LedgerUnavailable
from orchestrator.ledger import ANY_RUN, Fresh, Ledger, Pruned, letters, open_ledger, reads
from orchestrator.ledger.engine import Database
from orchestrator.ledger.tables import REVISION, VERSION_TABLE, runs
from schemas.dead_letter import DeadLetterStatus
from schemas.states import RunStatus
from tests.support.ledgers import NAMESPACE, accepted, databases, letter_named
from tests.support.postgres import PASSWORD, Postgres, binary, running_postgres
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

TOKEN = "step:plan:0:hash"


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    with databases(postgres) as made:
        yield made.made()


@pytest.fixture
def empty_url(postgres: Postgres) -> Iterator[str]:
    with databases(postgres) as made:
        yield made.unmade()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with closing(open_ledger(url)) as made:
        yield made


def said(error: BaseException) -> str:
    """All that a log would show of an error, its causes included."""
    return "".join(traceback.format_exception(error))


def test_without_a_server_the_tests_are_skipped_with_the_mend() -> None:
    with pytest.raises(pytest.skip.Exception, match="apt-get install -y postgresql"):
        binary("no-such-program")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg2"])
def test_every_spelling_of_the_scheme_means_the_one_driver(url: str, scheme: str) -> None:
    with closing(open_ledger(url.replace("postgresql", scheme, 1))) as ledger:
        ledger.check_schema()


def test_a_missing_driver_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(
        "orchestrator.ledger.postgres.find_spec", lambda name: None if name == "psycopg" else known(name)
    )
    with pytest.raises(ConfigError, match="psycopg") as missing:
        open_ledger("postgresql://host/mandor")
    assert missing.value.hint == "pip install 'mandor[postgres]'"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda url: re.sub(r":\d+/", ":1/", url), "failed"),
        (lambda url: url.replace(PASSWORD, PASSWORD + "!"), "password authentication failed"),
        (lambda url: url.rpartition("/")[0] + "/no-such-database", "does not exist"),
        (lambda url: url.replace("127.0.0.1", "no-such-host.invalid"), "failed"),
    ],
)
def test_whatever_cannot_be_reached_is_unavailable_and_tells_no_password(
    url: str, wrong: Callable[[str], str], words: str
) -> None:
    with pytest.raises(LedgerUnavailable, match=words) as away:
        open_ledger(wrong(url)).check_schema()
    assert away.value.hint
    assert PASSWORD not in said(away.value)


def test_a_database_without_tables_is_missing_until_it_is_upgraded(empty_url: str) -> None:
    ledger = open_ledger(empty_url)
    with pytest.raises(LedgerMissing, match="holds no ledger") as missing:
        ledger.check_schema()
    assert "mandor ledger upgrade" in (missing.value.hint or "")
    ledger.upgrade()
    ledger.check_schema()
    ledger.close()


def test_a_lost_table_and_another_revision_are_told_apart(empty_url: str) -> None:
    ledger = open_ledger(empty_url)
    ledger.upgrade()
    with ledger.begin() as connection:
        connection.execute(text("DROP TABLE effects"))
    with pytest.raises(LedgerMissing, match=r'relation "effects" does not exist'):
        ledger.effects.close("r", "s", "do", 1)
    with ledger.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(LedgerMissing, match=f"9999, newer than {REVISION}"):
        ledger.run("r")
    ledger.close()


def test_who_may_not_write_is_told_so(ledger: Ledger, url: str, postgres: Postgres) -> None:
    accepted(ledger, "order-1")
    database = url.rpartition("/")[2]
    postgres.execute("DROP ROLE IF EXISTS reader")
    postgres.execute(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
    postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", database=database)
    with closing(open_ledger(url.replace("mandor:", "reader:", 1))) as reader:
        assert len(reader.listed(9)) == 1
        with pytest.raises(LedgerUnavailable, match="permission denied"):
            accepted(reader, "order-2")
    postgres.execute("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM reader", database=database)


def test_a_server_that_takes_no_writes_is_unavailable(ledger: Ledger, url: str, postgres: Postgres) -> None:
    """A standby, after somebody pointed the URL at it."""
    database = url.rpartition("/")[2]
    postgres.execute("ALTER DATABASE {} SET default_transaction_read_only = on", database)
    with pytest.raises(LedgerUnavailable, match="read-only"):
        accepted(ledger, "order-1")
    postgres.execute("ALTER DATABASE {} RESET default_transaction_read_only", database)


def test_a_reader_sees_one_state_and_hinders_no_writer(ledger: Ledger, url: str) -> None:
    database = Database(url)
    with database.reading() as connection:
        assert reads.listed_runs(connection, 9, None, ANY_RUN) == []
        accepted(ledger, "order-1")
        assert reads.listed_runs(connection, 9, None, ANY_RUN) == []
    assert len(ledger.listed(9)) == 1
    database.close()


def test_a_row_that_is_held_is_waited_for_and_then_told_as_locked(ledger: Ledger, url: str) -> None:
    run_id = accepted(ledger, "order-1").run_id
    impatient = open_ledger(url, patience_s=0.3)
    with ledger.begin() as connection:
        connection.execute(update(runs).where(runs.c.run_id == run_id).values(reason="held"))
        began = time.monotonic()
        with pytest.raises(LedgerUnavailable, match="stayed locked"):
            impatient.end_run(run_id, 1, RunStatus.FAILED, None, 2, 1)
        assert time.monotonic() - began >= 0.3
        accepted(impatient, "order-2")  # nobody holds what this is about
    assert impatient.end_run(run_id, 1, RunStatus.FAILED, None, 2, 1)
    impatient.close()


def test_a_letter_stays_about_which_something_was_decided_while_its_deletion_waited(ledger: Ledger, url: str) -> None:
    ledger.write_letter(letter_named("a"), "a", NAMESPACE)
    about = {"letter_id": "a", "namespace": NAMESPACE, "kind": "replay", "details_text": "{}", "made_by": "ann"}
    deciding, pruning = Database(url), open_ledger(url)
    with ThreadPoolExecutor(1) as pool, closing(deciding), closing(pruning):
        with deciding.writing() as connection:
            made = letters.decide(connection, {**about, "reason": None, "created_at": 1}, DeadLetterStatus.REPLAYED)
            pruned = pool.submit(pruning.prune, 0, 5, 10)
            eventually(lambda: waiting_for_a_row(ledger))
        assert pruned.result(60) == Pruned(0, 0)
    assert ledger.triage.pending(9, NAMESPACE) == [made]
    assert ledger.letter("a") is not None


def waiting_for_a_row(ledger: Ledger) -> int:
    """How many sessions on this ledger wait for another's lock."""
    waits = "wait_event_type = 'Lock' AND datname = current_database()"
    with ledger.begin() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM pg_stat_activity WHERE {waits}")).scalar_one())


def test_a_transaction_of_ones_own_has_no_other_beside_it(ledger: Ledger, url: str) -> None:
    impatient = open_ledger(url, patience_s=0.3)
    with ledger.begin(), pytest.raises(LedgerUnavailable, match="stayed locked"), impatient.begin():
        raise AssertionError("both were let in")
    with impatient.begin():
        pass
    impatient.close()


def test_a_server_that_is_there_and_says_nothing_is_away_within_the_patience(url: str) -> None:
    """On a connection that was used before, as on a new one."""
    with Proxy(url) as proxy, closing(open_ledger(proxy.url, patience_s=0.5)) as ledger:
        accepted(ledger, "order-1")
        with proxy.silence():
            for _ in range(2):
                began = time.monotonic()
                with pytest.raises(LedgerUnavailable):
                    accepted(ledger, "order-2")
                assert time.monotonic() - began < 8
        accepted(ledger, "order-2")
        assert len(ledger.listed(9)) == 2


def test_a_deadlock_ends_with_one_of_the_two_let_through(ledger: Ledger, url: str) -> None:
    """Two who lock the same rows in opposite order, which none of ours does."""
    ids = [accepted(ledger, name).run_id for name in ("order-1", "order-2")]
    database, met, answers = Database(url), threading.Barrier(2), list[str]()

    def lock_both(first: str, second: str) -> None:
        with suppress(LedgerUnavailable), database.writing() as connection:
            connection.execute(update(runs).where(runs.c.run_id == first).values(reason=first))
            met.wait(20)
            connection.execute(update(runs).where(runs.c.run_id == second).values(reason=first))
            answers.append(first)

    threads = [threading.Thread(target=lock_both, args=pair) for pair in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 1
    assert {run.reason for run in ledger.listed(9)} == set(answers)
    database.close()


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgres]:
    """A server of this module alone, to be killed and started again."""
    with running_postgres() as server:
        server.execute("CREATE DATABASE mandor")
        made = open_ledger(server.url("mandor"))
        made.upgrade()
        made.close()
        yield server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_was_restarted_is_used_as_if_nothing_had_been(mortal: Postgres, how: signal.Signals) -> None:
    ledger = open_ledger(mortal.url("mandor"))
    before = accepted(ledger, f"before-{how}")
    in_threads(3, ledger.check_schema)  # several connections at rest, all of them dead soon
    mortal.stop(how)
    with pytest.raises(LedgerUnavailable) as away:
        accepted(ledger, f"meanwhile-{how}")
    assert PASSWORD not in said(away.value)
    mortal.start()
    in_threads(3, lambda: accepted(ledger, f"after-{how}-{threading.get_ident()}"))
    assert ledger.run(before.run_id) == before
    ledger.close()


def in_threads(count: int, what: Callable[[], object]) -> None:
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            what()
        except BaseException as error:  # noqa: BLE001  (told below)
            failed.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []


def land_and(ledger: Ledger, then: Callable[[], object]) -> None:
    with ledger.begin() as connection:
        ledger.effects.land("r", "s", "do", 1, TOKEN, "1", connection)
        then()


def test_a_server_that_dies_in_a_transaction_leaves_nothing_of_it(mortal: Postgres) -> None:
    ledger = open_ledger(mortal.url("mandor"))
    with pytest.raises(LedgerUnavailable):
        land_and(ledger, lambda: mortal.stop(signal.SIGQUIT))
    mortal.start()
    assert ledger.effects.look("r", "s", "do", 1, TOKEN) == Fresh()
    ledger.close()


def test_who_is_frozen_in_a_transaction_loses_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.ledger.postgres.IDLE_S", 1)
    frozen, other = open_ledger(url), open_ledger(url)
    with pytest.raises(LedgerUnavailable):  # the other waits until the server has ended this one's session
        land_and(frozen, lambda: other.effects.close("r", "s", "do", 1))
    assert other.effects.look("r", "s", "do", 2, TOKEN) == Fresh()
    frozen.close()
    other.close()


def test_sessions_say_who_they_are_and_have_their_limits(ledger: Ledger) -> None:
    with ledger.begin() as connection:
        shown = {name: connection.execute(text(f"SHOW {name}")).scalar() for name in LIMITS}
    assert shown == LIMITS


LIMITS = {
    "application_name": "mandor",
    "lock_timeout": "30s",
    "statement_timeout": "1min",
    "idle_in_transaction_session_timeout": "5min",
    "transaction_isolation": "read committed",
    "client_encoding": "UTF8",
}
