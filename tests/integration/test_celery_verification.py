"""Is the store the one the ledger remembers: after a restart, a loss, an exchange."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import submission
from orchestrator.errors import ConfigError, StoreAmnesia, StoreMoved
from orchestrator.recovery import verification
from orchestrator.settings import Settings
from orchestrator.store import open_store
from orchestrator.telemetry.logs import identity
from schemas.ids import RunRef
from tests.support.forgetting import restart
from tests.support.installation import Installation, installation
from tests.support.servers import Server


def submitted(ours: Installation, request_id: str) -> RunRef:
    read = submission.read({"planner": "p", "request_id": request_id}, ours.settings)
    with identity():
        answer = submission.submit(ours.app, ours.store, ours.ledger, ours.settings, read, "task")
    return RunRef(answer.run_id)


def fence(ours: Installation, ref: RunRef) -> int:
    state = ours.store.views.run(ref)
    assert state is not None
    return state.fence


@pytest.fixture
def server(new_server: Callable[[], Server]) -> Server:
    return new_server()


def test_setting_up_twice_changes_nothing(server: Server, tmp_path: Path) -> None:
    with installation(server.url, tmp_path) as ours:
        again = verification.upgrade(ours.ledger, ours.settings)
        assert (again.epoch, again.shards, again.adopted) == (ours.store.scripts.epoch, 0, 0)


def test_after_a_restart_nothing_goes_on_until_it_was_verified(server: Server, tmp_path: Path) -> None:
    with installation(server.url, tmp_path) as ours:
        ref = submitted(ours, "r")
        before = fence(ours, ref)
        restart(server.client, ours.store.keys)
        with pytest.raises(StoreMoved, match="verif"):
            ours.store.runs.claim_plan(ref, 1, "claim", "w")
        found = verification.verify(ours.ledger, ours.store, ours.settings)
        assert (found.runs, found.adopted, found.shards, found.fences) == (1, 0, ours.store.shards, 1)
        assert fence(ours, ref) >= before + 1_000_000
        assert verification.verify(ours.ledger, ours.store, ours.settings).shards == 0
        ours.store.runs.claim_plan(ref, 1, "claim", "w")


def test_a_run_that_had_a_plan_and_is_missing_stops_everything(server: Server, tmp_path: Path) -> None:
    with installation(server.url, tmp_path) as ours:
        ref = submitted(ours, "r")
        ours.ledger.store_plan(ref.run_id, 1, "a" * 64, "{}", "p")
        restart(server.client, ours.store.keys)
        server.client.delete(ours.store.keys.state(ref))
        with pytest.raises(StoreAmnesia, match="behind"):
            verification.verify(ours.ledger, ours.store, ours.settings)
        with pytest.raises(StoreMoved):
            ours.store.runs.claim_plan(ref, 1, "claim", "w")


def test_a_run_without_a_plan_is_created_again(server: Server, tmp_path: Path) -> None:
    with installation(server.url, tmp_path) as ours:
        ref = submitted(ours, "r")
        restart(server.client, ours.store.keys)
        server.client.delete(ours.store.keys.state(ref))
        assert verification.verify(ours.ledger, ours.store, ours.settings).adopted == 1
        assert ours.store.views.run(ref) is not None


def test_an_empty_server_is_no_replacement_while_runs_are_under_way(server: Server, tmp_path: Path) -> None:
    with installation(server.url, tmp_path) as ours:
        ref = submitted(ours, "r")
        ours.ledger.store_plan(ref.run_id, 1, "a" * 64, "{}", "p")
        server.client.flushall()
        with pytest.raises(StoreAmnesia, match="no memory"):
            verification.verify(ours.ledger, ours.store, ours.settings)
        done = verification.upgrade(ours.ledger, ours.settings)
        assert (done.lost, done.shards, done.adopted) == (1, ours.store.shards - 1, 0)
        assert ours.store.admin.shard(ours.store.keys.shard_of(ref.run_id)).epoch is None
        with pytest.raises(StoreAmnesia):
            ours.store.runs.claim_plan(ref, 1, "claim", "w")


def test_an_empty_server_is_set_up_when_nothing_was_under_way(server: Server, tmp_path: Path) -> None:
    with installation(server.url, tmp_path) as ours:
        ref = submitted(ours, "r")
        server.client.flushall()
        done = verification.upgrade(ours.ledger, ours.settings)
        assert (done.shards, done.adopted) == (ours.store.shards, 1)
        assert ours.store.views.run(ref) is not None


def test_two_installations_do_not_share_a_namespace(server: Server, tmp_path: Path) -> None:
    with installation(server.url, tmp_path / "one"), installation(server.url, tmp_path / "two") as other:
        with pytest.raises(ConfigError) as caught:
            verification.verify(other.ledger, open_store(Settings(redis_url=server.url), "other"), other.settings)
        assert caught.value.path == "MANDOR_NAMESPACE"
