"""Transactional effects in a database of the user's own: effect and proof are committed there, together, or neither."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect, select

from orchestrator.cli.command import run
from orchestrator.errors import ConfigError, EffectRefused, LedgerError, LedgerMissing, LedgerUnavailable
from orchestrator.ledger import (
    AlreadyLanded,
    Closed,
    EffectState,
    Fresh,
    Kind,
    Landed,
    Ledger,
    RowClosed,
    open_ledger,
    upgrade_effects,
)
from schemas.states import EffectClass
from tests.support.ledgers import Places, url_of
from tests.support.shop import open_shop, sales, sell_in
from workers.cli import mandor

TOKEN = "step:plan:0:hash"


@dataclass
class Shop:
    """The user's database, and the ledger of an installation that was told of it."""

    url: str
    ledger_url: str
    engine: Engine
    ledger: Ledger

    def sell(self, fence: int, kind: Kind = "do") -> Landed | AlreadyLanded | Closed:
        """What an action does; rolled back where the row refuses."""
        with suppress(Refused), self.engine.begin() as connection:
            sell_in(connection, "s", f"by {fence}")
            answer = self.ledger.transactional.land("r", "s", kind, fence, TOKEN, f"{fence}", connection)
            if not isinstance(answer, Landed):
                raise Refused
        return answer

    def sold(self) -> list[str]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(sales.c.what)).scalars())


class Refused(Exception):
    pass


@pytest.fixture
def shop(places: Places) -> Iterator[Shop]:
    url, ledger_url = places.unmade(), places.made()
    upgrade_effects(url)
    engine = open_shop(url)
    with closing(open_ledger(ledger_url, effects_urls=[url])) as ledger:
        yield Shop(url, ledger_url, engine, ledger)
    engine.dispose()


def test_effect_and_proof_are_committed_once(shop: Shop) -> None:
    assert shop.ledger.transactional.look("r", "s", "do", 1, TOKEN) == Fresh()
    assert shop.sell(1) == Landed()
    assert shop.sell(1) == shop.sell(2) == AlreadyLanded("1")
    assert shop.sold() == ["by 1"]
    assert shop.ledger.transactional.look("r", "s", "do", 2, TOKEN) == AlreadyLanded("1")


def test_an_error_takes_both_back(shop: Shop) -> None:
    with suppress(ZeroDivisionError), shop.engine.begin() as connection:
        sell_in(connection, "s", "never")
        assert shop.ledger.transactional.land("r", "s", "do", 1, TOKEN, "1", connection) == Landed()
        raise ZeroDivisionError
    assert shop.sold() == []
    assert shop.ledger.transactional.close("r", "s", "do", 1) == RowClosed(EffectState.NONE, None)


def test_a_claim_that_was_ended_sells_nothing(shop: Shop) -> None:
    shop.ledger.rows_of(EffectClass.TRANSACTIONAL).close("r", "s", "do", 1)
    assert shop.sell(1) == Closed(1)
    assert shop.sold() == []
    assert shop.sell(2) == Landed()


def test_whoever_closes_finds_what_happened_there(shop: Shop) -> None:
    """A supervisor, in another process, that knows no action."""
    assert shop.sell(3) == Landed()
    with closing(open_ledger(shop.ledger_url, effects_urls=[shop.url])) as supervisor:
        rows = supervisor.rows_of(EffectClass.TRANSACTIONAL)
        assert rows.close("r", "s", "do", 3) == RowClosed(EffectState.LANDED, "3")
        assert (supervisor.transactional.landed("r"), supervisor.effects.landed("r")) == ({"s": TOKEN}, {})
    assert shop.ledger.effects.close("r", "s", "do", 3).state is EffectState.NONE  # the ledger alone knows nothing


def test_a_person_can_have_it_sold_once_more(shop: Shop) -> None:
    """The run was started over with a new key for this step."""
    assert shop.sell(1) == Landed()
    shop.ledger.transactional.set_aside("r", ["s"], ["s"], 2)
    assert shop.sell(1) == shop.sell(2) == Closed(2)
    assert shop.sell(3) == Landed()
    shop.ledger.transactional.set_aside("r", ["s"], ["s"], 2)  # the same, asked again
    assert shop.sell(4) == AlreadyLanded("3")
    assert shop.sold() == ["by 1", "by 3"]


def test_undoing_has_a_row_of_its_own(shop: Shop) -> None:
    assert shop.sell(1) == Landed()
    assert shop.sell(2, kind="undo") == Landed()


def test_effects_in_the_ledger_go_on_as_before(shop: Shop) -> None:
    with shop.ledger.begin() as connection:
        assert shop.ledger.transactional.land("r", "t", "do", 1, TOKEN, "1", connection) == Landed()
    assert shop.ledger.transactional.look("r", "t", "do", 2, TOKEN) == AlreadyLanded("1")
    assert shop.ledger.transactional.close("r", "t", "do", 1) == RowClosed(EffectState.LANDED, "1")


def test_another_token_is_refused_there_too(shop: Shop) -> None:
    assert shop.sell(1) == Landed()
    with shop.engine.begin() as connection, pytest.raises(EffectRefused, match="another token"):
        shop.ledger.transactional.land("r", "s", "do", 2, "step:other", "2", connection)


def test_a_database_that_nobody_would_look_into_is_refused(shop: Shop) -> None:
    told_of_nothing = open_ledger(shop.ledger_url)
    with shop.engine.begin() as connection, pytest.raises(LedgerError, match="no process would look") as refused:
        told_of_nothing.transactional.land("r", "s", "do", 1, TOKEN, "1", connection)
    assert "MANDOR_EFFECTS_URLS" in (refused.value.hint or "")


def test_a_database_without_our_tables_is_named_with_the_mend(shop: Shop, tmp_path: Path) -> None:
    other = create_engine(url_of(tmp_path / "other.db"))
    with other.begin() as connection, pytest.raises(LedgerMissing, match="no table") as missing:
        shop.ledger.transactional.land("r", "s", "do", 1, TOKEN, "1", connection)
    assert "mandor ledger upgrade --effects" in (missing.value.hint or "")
    other.dispose()


def test_a_connection_that_commits_by_itself_is_refused(shop: Shop) -> None:
    alone = shop.engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as connection, pytest.raises(LedgerError, match="commits each statement by itself"):
        shop.ledger.transactional.land("r", "s", "do", 1, TOKEN, "1", connection)


def test_what_is_no_connection_of_sqlalchemy_is_refused(shop: Shop) -> None:
    with pytest.raises(LedgerError, match="into a object") as refused:
        shop.ledger.transactional.land("r", "s", "do", 1, TOKEN, "1", object())
    assert "session.connection()" in (refused.value.hint or "")


def test_a_database_that_cannot_be_asked_leaves_the_question_open(shop: Shop, tmp_path: Path) -> None:
    gone = url_of(tmp_path / "unmounted" / "shop.db")
    with closing(open_ledger(shop.ledger_url, effects_urls=[gone])) as ledger:
        with pytest.raises(LedgerUnavailable):
            ledger.transactional.close("r", "s", "do", 1)
        with pytest.raises(LedgerUnavailable):
            ledger.transactional.look("r", "s", "do", 2, TOKEN)
        assert ledger.rows_of(EffectClass.ONCE).close("r", "s", "do", 1).state is EffectState.NONE


def test_a_bad_url_names_its_setting() -> None:
    with pytest.raises(ConfigError) as refused:
        open_ledger("sqlite:////tmp/ledger.db", effects_urls=["mysql://host/db"])
    assert refused.value.path == "MANDOR_EFFECTS_URLS"


def test_the_command_makes_the_tables_beside_whatever_is_there(
    places: Places, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = places.unmade()
    upgrade_effects(url)
    engine = open_shop(url)
    for _ in range(2):
        assert run(mandor, ["ledger", "upgrade", "--effects", url]) == 0
    assert capsys.readouterr().out == 2 * (
        "the database is ready for effects; name it in MANDOR_EFFECTS_URLS, for every process\n"
    )
    assert set(inspect(engine).get_table_names()) == {"mandor_effects", "mandor_effects_place", "sales"}
    engine.dispose()
