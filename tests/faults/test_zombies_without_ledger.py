"""Frozen past the lease, and woken while the ledger is away: what it then does is refused, or found and undone."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from signal import SIGINT

import pytest

from tests.support.accounts import ACTION_OF, ONE_TRY, assert_every_effect_is_accounted_for
from tests.support.postgres import running_postgres
from tests.support.system import LEASE_S, SWEEP_S, System, step
from tests.support.waiting import eventually

AWAY_S = 2.0  # after every zombie has acted: what it would report finds nobody
RECOVERY_S = 2 * (LEASE_S + 2 * SWEEP_S)


@contextmanager
def locked(system: System) -> Iterator[None]:
    """Somebody else writes to the ledger, and takes his time."""
    path = system.installed.settings.ledger.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.rollback()


def test_zombies_that_wake_while_the_ledger_is_locked(system: System, tmp_path: Path) -> None:
    zombies_wake_while_it_is_away(system, tmp_path / "gate", locked)


@pytest.mark.full
def test_zombies_that_wake_while_the_ledger_is_unreachable(new_system: Callable[..., System], tmp_path: Path) -> None:
    with running_postgres() as server:

        @contextmanager
        def stopped(_: System) -> Iterator[None]:
            server.stop(SIGINT)
            yield
            server.start()

        system = new_system(ledger_url=server.url(server.new_database()))
        system.start_control()
        zombies_wake_while_it_is_away(system, tmp_path / "gate", stopped)
        system.installed.ledger.close()


def zombies_wake_while_it_is_away(
    system: System, gate: Path, away: Callable[[System], AbstractContextManager[None]]
) -> None:
    """One zombie of each class, with one attempt each, whose runs are over when they wake."""
    system.start_steps("first", concurrency=len(ACTION_OF))
    runs = {
        effect: system.submit(step(action, "s", value="x", gate=str(gate), deaf=True), policy=ONE_TRY)
        for effect, action in ACTION_OF.items()
    }
    for run_id in runs.values():
        eventually(lambda run_id=run_id: system.effects(run_id=run_id, what="began"))  # type: ignore[misc]
    system.processes.freeze("first")
    system.start_steps("second", concurrency=2)
    ended = {effect: system.wait(run_id, timeout_s=RECOVERY_S + 10) for effect, run_id in runs.items()}
    assert {effect: view.status for effect, view in ended.items()} == {
        effect: "failed" if effect == "transactional" else "compensated" for effect in runs
    }
    with away(system):
        gate.touch()
        system.processes.thaw("first")
        acted = [run_id for effect, run_id in runs.items() if effect != "transactional"]
        for run_id in acted:
            eventually(lambda run_id=run_id: system.effects(run_id=run_id, what="noted"))  # type: ignore[misc]
        time.sleep(AWAY_S)
        assert not [line for line in system.effects(what="undone") if line["run_id"] in acted]
    for run_id in acted:
        eventually(lambda run_id=run_id: system.effects(run_id=run_id, what="undone"), what="a late effect undone")  # type: ignore[misc]
    for effect, run_id in runs.items():
        view = system.view(run_id)
        assert_every_effect_is_accounted_for(system, view)
        assert (view.status, view.version) == (ended[effect].status, ended[effect].version)
    assert not system.effects(run_id=runs["transactional"], what="noted")
