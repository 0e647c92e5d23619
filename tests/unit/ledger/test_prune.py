"""What is old goes, whole and in bounded batches; nothing else does."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sqlalchemy import func, insert, select

from orchestrator.cli.command import run
from orchestrator.ledger import (
    Accepted,
    AdmittedPlan,
    DeliveryState,
    Due,
    Ledger,
    Outcome,
    Pruned,
    open_ledger,
    upgrade_effects,
)
from orchestrator.ledger.files import Artifact
from orchestrator.ledger.history import Batch, Happened, RunReport, StepReport
from orchestrator.ledger.prune import OF_A_RUN
from orchestrator.ledger.tables import metadata, record_changes, records, runs
from orchestrator.settings import Settings
from orchestrator.supervisors import prune_ledger
from orchestrator.supervisors.passes import Counts
from orchestrator.supervisors.prune_ledger import DAY_MS
from schemas.callback import delivery_id
from schemas.states import EffectClass, RunStatus
from tests.support.ledgers import NAMESPACE, Places, accepted, letter_named, run_named
from tests.support.shop import engine_for
from workers.cli import mandor

TOKEN = "step:plan:0:hash"
BOX = "9c1f0a52-7d3e-4b88-a6f4-2e5d7c8b9a01"
PLAN = '{"steps":[{"action":"a.b"}]}'


def whole_run(ledger: Ledger, name: str, ended_at: int | None, version: int = 1) -> str:
    """A run that has left something in every table."""
    answer = ledger.accept(run_named(name, callback="https://example.com/"))
    assert isinstance(answer, Accepted)
    run_id = answer.run.run_id
    ledger.store_answer(run_id, 1, 0, "llm", '"raw"', "{}")
    ledger.store_plan(run_id, 1, "1" * 64, PLAN, None, AdmittedPlan("{}", 0))
    ledger.effects.open(run_id, "s0", "do", 1, TOKEN, EffectClass.ONCE)
    ledger.effects.leave(run_id, "s0", "do", 1)
    ledger.decision_done(ledger.decide(run_id, 1, "cancel", "ada", None), "too_late")
    change = {"run_id": run_id, "step_id": "s0", "entity_id": BOX, "version_before": version - 1}
    with ledger.begin() as connection:
        connection.execute(insert(record_changes).values(**change, version_after=version, created_at=1))
    drain(ledger, run_id)
    if ended_at is not None:
        ledger.end_run(run_id, 1, RunStatus.FAILED, None, 9, ended_at, {"odd"})
        told(ledger, run_id)
        assert ledger.files.let_go(run_id, 1, ended_at)
        ledger.files.keep(run_id, 1, [Artifact("a.txt", "host:/kept", 1, "a" * 64)])
    return run_id


def told(ledger: Ledger, run_id: str) -> None:
    """Whoever wants to know how it ended does."""
    claim = ledger.deliveries.claim(Due(delivery_id(run_id, 1), 0), 1000)
    assert claim is not None
    assert ledger.deliveries.note(claim, Outcome(DeliveryState.DELIVERED, 204))


def drain(ledger: Ledger, run_id: str) -> None:
    """What the state store said of the run is read."""
    before = ledger.history.cursors("demo").get(0, "0-0")
    happened = Happened(run_id, 1, 1, 1, "run.accepted", {})
    run, step = RunReport(run_id, 1, 1, "running", "{}"), StepReport(run_id, "s0", 1, "pending", "{}", None, None)
    following = f"{int(before.partition('-')[0]) + 1}-0"
    assert ledger.history.take(Batch("demo", 0, before, following, [happened], [run], [step]))


@pytest.fixture
def kept(ledger: Ledger) -> Iterator[Ledger]:
    with ledger.begin() as connection:
        connection.execute(insert(records).values(entity_id=BOX, version=9, data_text="{}", updated_at=1))
    yield ledger
    ledger.close()


def left(ledger: Ledger, run_id: str) -> dict[str, int]:
    """Rows of a run, by table."""
    with ledger.begin() as connection:
        tables = [table for table in metadata.sorted_tables if "run_id" in table.c]
        counts = {
            table.name: connection.execute(
                select(func.count()).select_from(table).where(table.c.run_id == run_id)
            ).scalar_one()
            for table in tables
        }
    return {name: count for name, count in counts.items() if count}


def test_an_old_run_goes_with_all_that_is_its_own(kept: Ledger) -> None:
    old, young = whole_run(kept, "old", 99), whole_run(kept, "young", 100, version=2)
    of_all = {table.name for table in OF_A_RUN} | {runs.name}
    assert set(left(kept, old)) == of_all, "a table with runs in it that this test leaves empty"
    assert kept.prune(100, 0, 10) == Pruned(1, 0)
    assert left(kept, old) == {}
    assert set(left(kept, young)) == of_all
    assert kept.record(BOX) is not None
    again = kept.accept(run_named("old"))
    assert isinstance(again, Accepted)
    assert again.created


def test_what_has_no_end_is_never_old(kept: Ledger) -> None:
    whole_run(kept, "open", None)
    assert kept.prune(10**15, 10**15, 10) == Pruned(0, 0)


def test_batches_are_bounded_and_the_oldest_go_first(ledger: Ledger) -> None:
    ids = [accepted(ledger, f"r{number}").run_id for number in range(5)]
    for number, run_id in enumerate(ids):
        ledger.end_run(run_id, 1, RunStatus.SUCCEEDED, None, 9, number)
    assert ledger.prune(4, 0, 3) == Pruned(3, 0)
    assert {run.run_id for run in ledger.listed(9)} == set(ids[3:])
    assert ledger.prune(4, 0, 3) == Pruned(1, 0)
    assert ledger.prune(4, 0, 3) == Pruned(0, 0)


def test_letters_have_an_age_of_their_own(kept: Ledger) -> None:
    run_id = whole_run(kept, "old", 1)
    for number in range(4):
        kept.write_letter(letter_named(f"l{number}", created_at=number, run_id=run_id), f"{number}", NAMESPACE)
    assert kept.prune(10, 3, 2) == Pruned(1, 2)
    assert [letter.id for letter in kept.letters(9, run_id=run_id)] == ["l3", "l2"]
    assert kept.prune(10, 3, 2) == Pruned(0, 1)


def test_a_run_that_was_started_over_stays(kept: Ledger) -> None:
    run_id = whole_run(kept, "old", 1)
    kept.reopen_run(run_id, 2, RunStatus.RUNNING)
    assert kept.prune(10, 0, 10) == Pruned(0, 0)
    assert left(kept, run_id)["runs"] == 1


def test_effects_elsewhere_go_too(places: Places) -> None:
    shop = places.unmade()
    upgrade_effects(shop)
    with closing(open_ledger(places.made(), effects_urls=[shop])) as ledger:
        ids = [accepted(ledger, name).run_id for name in ("old", "open")]
        for run_id in ids:
            with engine_for(shop).begin() as connection:
                ledger.transactional.land(run_id, "s", "do", 1, TOKEN, "1", connection)
        ledger.end_run(ids[0], 1, RunStatus.SUCCEEDED, None, 9, 1)
        assert ledger.prune(10, 0, 10) == Pruned(1, 0)
        found = [type(ledger.transactional.look(run_id, "s", "do", 2, TOKEN)).__name__ for run_id in ids]
    assert found == ["Fresh", "AlreadyLanded"]
    engine_for(shop).dispose()


def aged(ledger: Ledger, number: int, days: int) -> None:
    """A run that has ended, and a letter, so many days ago."""
    at = ledger.now_ms() - days * DAY_MS
    ledger.end_run(accepted(ledger, f"r{number}").run_id, 1, RunStatus.SUCCEEDED, None, 9, at)
    ledger.write_letter(letter_named(f"l{number}", created_at=at), f"{number}", NAMESPACE)


def test_a_pass_deletes_what_the_settings_call_old(ledger: Ledger) -> None:
    for number, days in enumerate((1, 89, 91, 400)):
        aged(ledger, number, days)
    assert prune_ledger.run_once(ledger, Settings()) == Counts(taken=4, moved=4)
    assert prune_ledger.run_once(ledger, Settings()) == Counts()
    assert [run.request_id for run in ledger.listed(9)] == ["r1", "r0"]
    assert [letter.id for letter in ledger.letters(9)] == ["l0", "l1"]


def test_a_pass_ends_before_all_is_deleted(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_ledger, "BATCH", 1)
    monkeypatch.setattr(prune_ledger, "ROUNDS", 3)
    for number in range(4):
        aged(ledger, number, 100)
    assert prune_ledger.run_once(ledger, Settings()).moved == 6
    assert prune_ledger.run_once(ledger, Settings()).moved == 2


def test_several_passes_at_once_delete_each_thing_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_ledger, "BATCH", 2)
    monkeypatch.setattr(prune_ledger, "ROUNDS", 50)
    for number in range(30):
        aged(ledger, number, 100)
    kept_run = accepted(ledger, "open").run_id
    with ThreadPoolExecutor(4) as pool:
        passes = [pool.submit(prune_ledger.run_once, ledger, Settings()) for _ in range(4)]
        assert sum(done.result().moved for done in passes) == 60
    assert [run.run_id for run in ledger.listed(99)] == [kept_run]


def test_the_command_deletes_what_the_settings_call_old(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_ledger(ledger_url)) as ledger:
        for number, days in enumerate((1, 20, 40)):
            aged(ledger, number, days)
        monkeypatch.setenv("MANDOR_LEDGER_URL", ledger_url)
        monkeypatch.setenv("MANDOR_LEDGER_RUNS_D", "30")
        monkeypatch.setenv("MANDOR_LEDGER_LETTERS_D", "10")
        assert run(mandor, ["ledger", "prune", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"runs": 1, "letters": 2}
        assert [run.request_id for run in ledger.listed(9)] == ["r1", "r0"]
        assert [letter.id for letter in ledger.letters(9)] == ["l0"]
