"""The main scenarios once more, with PostgreSQL as the ledger: each is told where it is at home."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults import test_decisions, test_undo, test_workers_lost
from tests.support.ledgers import databases
from tests.support.postgres import Postgres
from tests.support.servers import running_server
from tests.support.system import System, result_of, running_system, step

pytestmark = pytest.mark.full

SCENARIOS: tuple[Callable[[System], None], ...] = (
    test_workers_lost.test_a_killed_worker_with_ten_running_steps,
    test_workers_lost.test_a_killed_child_is_noticed_by_its_parent,
    test_workers_lost.test_a_frozen_worker_that_wakes_up_commits_nothing,
    test_workers_lost.test_the_same_message_fifty_times,
    test_decisions.test_cancel_stops_what_runs_and_starts_nothing_more,
    test_decisions.test_pause_and_resume_under_load,
    test_decisions.test_an_approval_outlives_the_chords_keys,
    test_decisions.test_a_failed_run_is_started_over,
    test_decisions.test_many_runs_by_a_filter,
    test_decisions.test_a_decision_whose_process_died_is_finished_by_the_supervisor,
    test_undo.test_what_a_failed_run_did_is_undone_backwards,
    test_undo.test_a_worker_killed_in_the_middle_of_an_undo,
    test_undo.test_an_undo_that_is_given_up_is_a_letter_and_the_others_go_on,
    test_undo.test_a_once_step_whose_child_died_before_its_effect_is_run_again,
    test_undo.test_a_once_step_whose_worker_died_after_its_effect_is_completed,
    test_undo.test_a_record_that_somebody_else_has_changed_is_left_to_a_person,
    test_undo.test_files_and_records_of_a_failed_run_are_put_back,
)


@pytest.fixture(scope="module")
def on_postgres(postgres: Postgres, server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Every role but step workers, with nothing in SQLite."""
    folder = tmp_path_factory.mktemp("on-postgres")
    with databases(postgres) as made, running_server(folder / "server", server_kind) as server:
        with running_system(server.url, folder, ledger_url=made.made()) as system:
            system.start_control()
            yield system
        system.installed.ledger.close()
    assert not [path for path in folder.rglob("*.db") if path.parent.parent.name != "metrics"]


@pytest.fixture
def system(on_postgres: System) -> Iterator[System]:
    on_postgres.processes.forget_lines()
    with on_postgres.installed.in_force():
        yield on_postgres
        on_postgres.end_steps()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.removeprefix("test_"))
def test_on_postgres(scenario: Callable[[System], None], system: System) -> None:
    scenario(system)


def test_a_zombies_transaction_is_refused(system: System, tmp_path: Path) -> None:
    test_undo.test_a_zombies_transaction_is_refused(system, tmp_path)


def test_a_run_with_effects_of_every_class(system: System) -> None:
    system.start_steps(concurrency=2)
    box = str(uuid4())
    run_id = system.submit(
        step("test.echo", "pure", value="v"),
        step("create_file", "idempotent", path="a.txt", content="x"),
        step("mutate_record", "transactional", entity_id=box, changes={"lid": "open"}),
        step("test.order", "keyed", value=result_of("pure")),
        step("test.send", "once", value=result_of("keyed")),
    )
    view = system.wait(run_id)
    assert view.status == "succeeded"
    assert [line["step_id"] for line in system.effects(run_id=run_id, what="noted")] == ["keyed", "once"]
    record = system.installed.ledger.record(box)
    assert record is not None
    assert record.data_text == '{"lid":"open"}'
    row = system.installed.ledger.run(run_id)
    assert row is not None
    assert (row.status, row.plan_hash) == ("succeeded", view.plan_hash)
