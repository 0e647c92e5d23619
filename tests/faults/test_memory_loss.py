"""The state store forgets while real workers work: every run ends, nothing is done twice or left behind, and the report
says what was done."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from orchestrator.ledger.losses import Loss
from orchestrator.local import EmbeddedServer
from tests.support.invariants import assert_holds
from tests.support.proxy import Proxy
from tests.support.servers import ended_with_us, keys_of, server_binary
from tests.support.system import LEASE_S, System, running_system, step
from tests.support.waiting import eventually

GRACE_S = 1.0
# two leases of silence, the grace, what is between two looks; then a few seconds of work under load
BUILT_S = 2 * LEASE_S + GRACE_S + 30
CLASSES = {"pure": "test.echo", "idempotent": "test.note", "keyed": "test.order", "once": "test.post"}
ACTIONS = (*CLASSES.values(), "test.book")


@dataclass
class Forgetful:
    """A system, and the server that will forget."""

    system: System
    server: EmbeddedServer
    folder: Path
    known: set[int] = field(default_factory=set)

    @property
    def client(self) -> Redis:
        return Redis.from_url(self.server.url)

    def submit_all(self, count: int) -> list[str]:
        return [self.system.submit(*mixed(i), context={"n": i}) for i in range(count)]

    def wait_for_lines(self, count: int) -> None:
        eventually(lambda: len(self.system.effects()) >= count, timeout_s=60, what=f"{count} lines of effects")

    def assert_all_end(self, run_ids: list[str], timeout_s: float, causes: set[str]) -> None:
        """Each run ends, and holds what is promised; so does the report."""
        views = [self.system.wait(run_id, timeout_s=timeout_s) for run_id in run_ids]
        eventually(self.drained, what="the last transitions in the ledger")
        for view in views:
            assert_holds(self.system, view)
        self.assert_told(run_ids, causes)

    def assert_told(self, run_ids: list[str], causes: set[str]) -> None:
        """The report names the causes, and counts each run that was built again, as its own history does."""
        eventually(lambda: all(loss.done_at for loss in self.fresh_losses()), what="the end of every loss")
        losses, history = self.fresh_losses(), self.system.installed.ledger.history
        assert {loss.cause for loss in losses} <= causes, losses
        assert losses, "nobody has noticed"
        reports = [json.loads(loss.report_text or "") for loss in losses]
        built = [one for run_id in run_ids for one in history.events(run_id) if one.event == "run.restored"]
        assert sum(report["restored"] for report in reports) >= len(built)
        assert bool(built) == any(report["restored"] for report in reports)
        assert not any(report["refused"] for report in reports)

    def fresh_losses(self) -> list[Loss]:
        """Those that were found since the test began."""
        losses = self.system.installed.ledger.losses.all(self.system.installed.settings.namespace, 1000)
        return [loss for loss in losses if loss.found_at not in self.known]

    def drained(self) -> bool:
        store = self.system.installed.store
        return not any(store.stream.length(shard) for shard in range(store.shards))


def mixed(number: int) -> list[dict[str, Any]]:
    """A run of all effect classes, in a row or wide; every fourth fails at its end."""
    needs: dict[str, Any] = {"needs": []} if number % 2 else {}
    made = [step(action, f"s{i}", value=str(number), **needs) for i, action in enumerate(ACTIONS)]
    bad = step("test.flaky", "bad", [f"s{i}" for i in range(len(ACTIONS))], failures=0, for_good=True)
    return [*made, bad] if number % 4 == 3 else made


@contextmanager
def forgetful(folder: Path, server_kind: str, through: Callable[[str], str] = str) -> Iterator[Forgetful]:
    with EmbeddedServer(folder / "server", binary=server_binary(server_kind)) as server:
        assert server.pid is not None
        with ended_with_us(server.pid), running_system(through(server.url), folder, audit_s=1) as made:
            made.start_control()
            yield Forgetful(made, server, folder)


@pytest.fixture(scope="module")
def shared(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forgetful]:
    """Every role but step workers, and a server that is flushed by several tests."""
    with forgetful(tmp_path_factory.mktemp("forgetful"), server_kind) as made:
        yield made


@pytest.fixture
def world(shared: Forgetful) -> Iterator[Forgetful]:
    shared.system.processes.forget_lines()
    shared.known = set()
    shared.known = {loss.found_at for loss in shared.fresh_losses()}
    with shared.system.installed.in_force():
        yield shared
        shared.system.end_steps()


@pytest.fixture
def own(server_kind: str, tmp_path: Path) -> Iterator[Forgetful]:
    """A system of the test's own."""
    with forgetful(tmp_path, server_kind) as made, made.system.installed.in_force():
        yield made


def held_once(world: Forgetful, gate: Path, count: int) -> list[str]:
    """Runs of one `once` step each, all of which have opened, and wait for the gate before they act."""
    run_ids = [world.system.submit(step("test.send", "s", value="x", gate=str(gate))) for _ in range(count)]
    eventually(
        lambda: all(world.system.effects(run_id=run_id, what="began") for run_id in run_ids),
        timeout_s=60,
        what="the beginning of each",
    )
    return run_ids


def assert_landed(world: Forgetful, run_ids: list[str]) -> None:
    """Each acted once, was completed by its row, and was not undone."""
    for run_id in run_ids:
        view = world.system.view(run_id)
        assert (view.status, view.steps[0].attempt) == ("succeeded", 1)
        assert [line["what"] for line in world.system.effects(run_id=run_id)] == ["began", "noted"]


def test_everything_is_forgotten_under_load(world: Forgetful, tmp_path: Path) -> None:
    """Among it three `once` steps between open and land."""
    world.system.start_steps(concurrency=6)
    held = held_once(world, tmp_path / "gate", 3)
    before = len(world.system.effects())
    run_ids = world.submit_all(8)
    world.wait_for_lines(before + random.randint(5, 40))
    world.client.flushall()
    (tmp_path / "gate").touch()
    world.assert_all_end([*run_ids, *held], BUILT_S, {"amnesia"})
    assert_landed(world, held)


@pytest.mark.full
def test_ten_once_steps_between_open_and_land_are_completed(world: Forgetful, tmp_path: Path) -> None:
    world.system.start_steps(concurrency=10)
    run_ids = held_once(world, tmp_path / "gate", 10)
    world.client.flushall()
    (tmp_path / "gate").touch()
    world.assert_all_end(run_ids, BUILT_S, {"amnesia"})
    assert_landed(world, run_ids)


@pytest.mark.full
def test_due_sets_and_states_that_vanish_are_there_again(world: Forgetful) -> None:
    """Without step workers, so that nothing but the audit finds the runs again."""
    system, client = world.system, world.client
    run_ids = [system.submit(*mixed(i)) for i in range(3)]
    eventually(lambda: all(system.view(run_id).status == "running" for run_id in run_ids))
    eventually(lambda: all(system.installed.ledger.history.steps(run_id) for run_id in run_ids))
    namespace = system.installed.settings.namespace
    client.delete(*(name for name in keys_of(client, namespace) if ":due:" in name))
    client.delete(*(name for name in keys_of(client, namespace) if run_ids[0] in name))
    client.delete("mandor.steps")
    system.start_steps(concurrency=2)
    world.assert_all_end(run_ids, 2 * BUILT_S, {"runs"})


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("runs", [200, 20, 40])
def test_many_runs_are_forgotten(world: Forgetful, runs: int) -> None:
    world.system.start_steps(concurrency=4)
    before = len(world.system.effects())
    run_ids = world.submit_all(runs)
    world.wait_for_lines(before + random.randint(20, 3 * runs))
    world.client.flushall()
    world.assert_all_end(run_ids, 240, {"amnesia"})


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_server_without_a_file_is_killed(own: Forgetful) -> None:
    own.client.config_set("appendonly", "no")
    own.system.start_steps(concurrency=3)
    run_ids = own.submit_all(20)
    own.wait_for_lines(random.randint(20, 80))
    kill(own)
    shutil.rmtree(own.folder / "server" / "appendonlydir")  # which is there since before the setting
    own.server.start()
    own.assert_all_end(run_ids, 3 * BUILT_S, {"amnesia"})


@pytest.mark.full
@pytest.mark.timeout(300)
def test_an_old_copy_is_put_in_its_place(own: Forgetful) -> None:
    own.system.start_steps(concurrency=3)
    run_ids = own.submit_all(10)
    own.wait_for_lines(20)
    own.client.execute_command("WAITAOF", 1, 0, 5000)  # type: ignore[no-untyped-call]
    shutil.copytree(own.folder / "server" / "appendonlydir", own.folder / "copy")
    run_ids += own.submit_all(10)
    own.wait_for_lines(50)
    kill(own)
    shutil.rmtree(own.folder / "server" / "appendonlydir")
    shutil.copytree(own.folder / "copy", own.folder / "server" / "appendonlydir")
    own.server.start()
    own.assert_all_end(run_ids, 3 * BUILT_S, {"behind", "moved"})


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_lagging_replica_is_promoted(server_kind: str, tmp_path: Path) -> None:
    """It has the epoch, and grants that others have, too, if nobody judges it."""
    proxies: list[Proxy] = []

    def through(url: str) -> str:
        proxies.append(stack.enter_context(Proxy(url)))
        return proxies[0].url

    with (
        ExitStack() as stack,  # the proxy goes last
        EmbeddedServer(tmp_path / "replica", binary=server_binary(server_kind)) as replica,
        ended_with_us(replica.pid or 0),
        forgetful(tmp_path, server_kind, through) as own,
        own.system.installed.in_force(),
    ):
        follower = replicating(replica, own.server)
        own.system.start_steps(concurrency=3)
        run_ids = own.submit_all(20)
        own.wait_for_lines(random.randint(10, 40))
        follower.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
        own.wait_for_lines(len(own.system.effects()) + random.randint(1, 40))
        proxies[0].turn_to(replica.url)
        kill(own)
        own.assert_all_end(run_ids, 3 * BUILT_S, {"behind", "moved"})


def replicating(replica: EmbeddedServer, master: EmbeddedServer) -> Redis:
    """The replica, once it has all of its master. It takes the same password, so that clients need not know."""
    follower, leader = Redis.from_url(replica.url), Redis.from_url(master.url)
    given = leader.connection_pool.connection_kwargs
    follower.config_set("masterauth", given["password"])
    follower.execute_command("REPLICAOF", given["host"], given["port"])  # type: ignore[no-untyped-call]
    eventually(lambda: follower.info("replication")["master_link_status"] == "up", what="the first copy")
    follower.config_set("requirepass", given["password"])
    return follower


def kill(own: Forgetful) -> None:
    """SIGKILL to the server."""
    pid = own.server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not own.server.running(), what="the server's end")
