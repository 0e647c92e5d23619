"""The state store forgets while real workers work: every run ends, and nothing is done twice or left behind."""

import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from orchestrator.local import EmbeddedServer
from tests.support.invariants import assert_holds
from tests.support.servers import ended_with_us, keys_of, server_binary
from tests.support.system import LEASE_S, System, running_system, step
from tests.support.waiting import eventually

GRACE_S = 1.0
# two leases of silence, the grace, what is between two looks; then a few seconds of work under load
BUILT_S = 2 * LEASE_S + GRACE_S + 30
ACTION_OF = {"pure": "test.echo", "idempotent": "test.note", "keyed": "test.order", "once": "test.post"}
WITH_EFFECT = (*list(ACTION_OF.values())[1:], "test.book")


@dataclass(frozen=True)
class Forgetful:
    """A system, and the server that will forget."""

    system: System
    server: EmbeddedServer
    folder: Path

    @property
    def client(self) -> Redis:
        return Redis.from_url(self.server.url)

    def submit_all(self, count: int) -> list[str]:
        return [self.system.submit(*mixed(i), context={"n": i}) for i in range(count)]

    def wait_for_lines(self, count: int) -> None:
        eventually(lambda: len(self.system.effects()) >= count, timeout_s=60, what=f"{count} lines of effects")

    def assert_all_end(self, run_ids: list[str], timeout_s: float) -> None:
        views = [self.system.wait(run_id, timeout_s=timeout_s) for run_id in run_ids]
        eventually(self.drained, what="the last transitions in the ledger")
        for view in views:
            assert_holds(self.system, view)

    def drained(self) -> bool:
        store = self.system.installed.store
        return not any(store.stream.length(shard) for shard in range(store.shards))

    def made_good(self) -> int:
        """Losses that were made good so far."""
        losses = self.system.installed.ledger.losses.all(self.system.installed.settings.namespace, 1000)
        return sum(loss.done_at is not None for loss in losses)


def mixed(number: int) -> list[dict[str, Any]]:
    """A run of all effect classes, in a row or wide; every fourth fails at its end."""
    needs: dict[str, Any] = {"needs": []} if number % 2 else {}
    actions = [*ACTION_OF.values(), "test.book"]
    made = [step(action, f"s{i}", value=str(number), **needs) for i, action in enumerate(actions)]
    bad = step("test.flaky", "bad", [f"s{i}" for i in range(len(actions))], failures=0, for_good=True)
    return [*made, bad] if number % 4 == 3 else made


def forgetful(folder: Path, server_kind: str, **settings: Any) -> Iterator[Forgetful]:
    with EmbeddedServer(folder / "server", binary=server_binary(server_kind)) as server:
        assert server.pid is not None
        with ended_with_us(server.pid), running_system(server.url, folder, audit_s=1, **settings) as made:
            made.start_control()
            yield Forgetful(made, server, folder)


@pytest.fixture(scope="module")
def shared(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forgetful]:
    """Every role but step workers, and a server that is flushed by several tests."""
    yield from forgetful(tmp_path_factory.mktemp("forgetful"), server_kind)


@pytest.fixture
def world(shared: Forgetful) -> Iterator[Forgetful]:
    shared.system.processes.forget_lines()
    with shared.system.installed.in_force():
        yield shared
        shared.system.end_steps()


@pytest.fixture
def own(server_kind: str, tmp_path: Path) -> Iterator[Forgetful]:
    """A system of the test's own."""
    for made in forgetful(tmp_path, server_kind):
        with made.system.installed.in_force():
            yield made


def test_everything_is_forgotten_under_load(world: Forgetful) -> None:
    world.system.start_steps(concurrency=3)
    before = len(world.system.effects())
    run_ids = world.submit_all(12)
    world.wait_for_lines(before + random.randint(5, 60))
    world.client.flushall()
    world.assert_all_end(run_ids, BUILT_S)


def test_once_steps_between_open_and_land_are_completed_and_not_undone(world: Forgetful, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    world.system.start_steps(concurrency=3)
    run_ids = [world.system.submit(step("test.send", "s", value="x", gate=str(gate))) for _ in range(3)]
    eventually(lambda: all(world.system.effects(run_id=run_id, what="began") for run_id in run_ids))
    good = world.made_good()
    world.client.flushall()
    gate.touch()
    eventually(lambda: world.made_good() > good, timeout_s=BUILT_S, what="the memory")
    for run_id in run_ids:
        view = world.system.wait(run_id, timeout_s=BUILT_S)
        assert (view.status, view.steps[0].attempt) == ("succeeded", 1)
        assert [line["what"] for line in world.system.effects(run_id=run_id)] == ["began", "noted"]


def test_due_sets_and_states_that_vanish_are_there_again(world: Forgetful) -> None:
    """Without step workers, so that nothing but the audit finds the runs again."""
    system, client = world.system, world.client
    run_ids = [system.submit(step("test.order", "s", value="x"), step("test.echo", "t", value="y")) for _ in range(3)]
    eventually(lambda: all(system.view(run_id).status == "running" for run_id in run_ids))
    eventually(lambda: all(world.system.installed.ledger.history.steps(run_id) for run_id in run_ids))
    namespace = system.installed.settings.namespace
    client.delete(*(name for name in keys_of(client, namespace) if ":due:" in name))
    client.delete(*(name for name in keys_of(client, namespace) if run_ids[0] in name))
    client.delete("mandor.steps")
    system.start_steps(concurrency=2)
    world.assert_all_end(run_ids, BUILT_S)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_server_without_a_file_is_killed(own: Forgetful) -> None:
    own.client.config_set("appendonly", "no")
    own.system.start_steps(concurrency=3)
    run_ids = own.submit_all(40)
    own.wait_for_lines(random.randint(20, 120))
    kill(own)
    own.server.start()
    own.assert_all_end(run_ids, 3 * BUILT_S)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_an_old_copy_is_put_in_its_place(own: Forgetful) -> None:
    own.system.start_steps(concurrency=3)
    run_ids = own.submit_all(20)
    own.wait_for_lines(30)
    own.client.execute_command("WAITAOF", 1, 0, 5000)  # type: ignore[no-untyped-call]
    shutil.copytree(own.folder / "server" / "appendonlydir", own.folder / "copy")
    run_ids += own.submit_all(20)
    own.wait_for_lines(90)
    kill(own)
    shutil.rmtree(own.folder / "server" / "appendonlydir")
    shutil.copytree(own.folder / "copy", own.folder / "server" / "appendonlydir")
    own.server.start()
    own.assert_all_end(run_ids, 3 * BUILT_S)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("time", range(5))
def test_two_hundred_runs_are_forgotten(own: Forgetful, time: int) -> None:
    own.system.start_steps(concurrency=4)
    run_ids = own.submit_all(200)
    own.wait_for_lines(random.randint(20, 1000))
    own.client.flushall()
    own.assert_all_end(run_ids, 10 * BUILT_S)


def kill(own: Forgetful) -> None:
    """SIGKILL to the server."""
    pid = own.server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not own.server.running(), what="the server's end")
