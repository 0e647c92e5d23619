"""The state store forgets while real workers work: every run ends, nothing is done twice or left behind, and the report
says what was done. No run can end before it was forgotten. Moments are drawn; the seed is printed."""

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from orchestrator.local import EmbeddedServer
from orchestrator.store.replies import DUTIES
from schemas.ids import RunRef, session_key
from tests.support.forgetful import GATE, LINES, Ends, Forgetful, forgetful, mixed, report
from tests.support.invariants import bound_at
from tests.support.proxy import Proxy
from tests.support.servers import ended_with_us, server_binary
from tests.support.system import LEASE_S, step
from tests.support.waiting import eventually

GRACE_S = 1.0
# two leases of silence, the grace, what is between two looks; then a few seconds of work under load
BUILT_S = 2 * LEASE_S + GRACE_S + 30
DEADLINE_S = 12
RUNS, FLUSHES = 200, 5
# each flush comes when so many more lines are there, so that after all of them there is work left to do
MOST_LINES = RUNS * LINES // (3 * FLUSHES)


@pytest.fixture
def drawn() -> random.Random:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201  # pytest shows it where a test fails
    return random.Random(seed)


@pytest.fixture(scope="module")
def shared(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forgetful]:
    """A system whose server is flushed by several tests."""
    with forgetful(tmp_path_factory.mktemp("forgetful"), server_kind) as made:
        yield made


@pytest.fixture
def world(shared: Forgetful) -> Iterator[Forgetful]:
    shared.system.processes.forget_lines()
    shared.known = set()
    shared.known = {loss.found_at for loss in shared.losses()}
    with shared.system.installed.in_force():
        yield shared
        shared.system.end_steps()


@pytest.fixture
def own(server_kind: str, tmp_path: Path) -> Iterator[Forgetful]:
    """A system of the test's own."""
    with forgetful(tmp_path, server_kind) as made, made.system.installed.in_force():
        yield made


# ---- everything


def held_once(world: Forgetful, gate: Path, count: int) -> Ends:
    """Runs of one `once` step each, all of which have opened, and wait for the gate before they act."""
    run_ids = [world.system.submit(step("test.send", "s", value="x", gate=str(gate))) for _ in range(count)]
    eventually(
        lambda: all(world.system.effects(run_id=run_id, what="began") for run_id in run_ids),
        timeout_s=60,
        what="the beginning of each",
    )
    return dict.fromkeys(run_ids, "succeeded")


def assert_landed(world: Forgetful, held: Ends) -> None:
    """Each acted once, was completed by its row, and was not undone."""
    for run_id in held:
        view = world.system.view(run_id)
        assert (view.status, view.steps[0].attempt) == ("succeeded", 1)
        assert [line["what"] for line in world.system.effects(run_id=run_id)] == ["began", "noted"]


def test_everything_is_forgotten_under_load(world: Forgetful, tmp_path: Path, drawn: random.Random) -> None:
    """Among it three `once` steps between open and land."""
    world.system.start_steps(concurrency=6, queues=f"steps,{GATE}")
    held = held_once(world, tmp_path / "gate", 3)
    before = len(world.system.effects())
    ends = world.submit_all(8) | held
    world.wait_for_lines(before + drawn.randint(5, 40))
    world.client.flushall()
    (tmp_path / "gate").touch()
    world.assert_all_end(ends, BUILT_S, {"amnesia"}, least=held)
    assert_landed(world, held)


@pytest.mark.full
def test_ten_once_steps_between_open_and_land_are_completed(world: Forgetful, tmp_path: Path) -> None:
    world.system.start_steps(concurrency=10)
    held = held_once(world, tmp_path / "gate", 10)
    world.client.flushall()
    (tmp_path / "gate").touch()
    world.assert_all_end(held, BUILT_S, {"amnesia"}, least=held)
    assert_landed(world, held)


@pytest.mark.soak
@pytest.mark.full
@pytest.mark.timeout(400)
def test_two_hundred_live_runs_are_forgotten_five_times(world: Forgetful, drawn: random.Random) -> None:
    """Each time all of them are unfinished, and built again; then they end."""
    ends = world.submit_all(RUNS)
    first = before = len(world.system.effects())
    world.system.start_steps(concurrency=2)
    for times in range(1, FLUSHES + 1):
        world.wait_for_lines(before + drawn.randint(20, MOST_LINES))
        before = len(world.system.effects())
        flush(world, ends, times)
    assert before - first < RUNS * LINES
    world.system.start_steps("more", concurrency=4)
    world.open_gate()
    world.assert_all_end(ends, 120, {"amnesia"}, least=ends)
    assert set(world.built(ends).values()) == {FLUSHES}


@pytest.mark.full
def test_runs_that_are_forgotten_around_their_deadline_end_by_the_time_that_is_said(
    world: Forgetful, drawn: random.Random
) -> None:
    """Nobody opens their gate. Nothing of them has a probe or is undone, so that bound is a few seconds behind the
    deadline, and as long as it took to build them again."""
    world.system.start_steps(concurrency=4)
    policy = {"on_failure": "stop", "deadline_s": DEADLINE_S}
    run_ids = world.system.submit_together([mixed(3 * i + 1, without="test.post") for i in range(12)], policy=policy)
    time.sleep(drawn.uniform(0, DEADLINE_S - 5))  # they were accepted one after the other
    ends = dict.fromkeys(world.live(), "failed")
    assert ends.keys() == set(run_ids)
    world.client.flushall()
    world.assert_all_end(ends, DEADLINE_S + BUILT_S, {"amnesia"}, least=ends)
    for view in map(world.system.view, run_ids):
        assert (view.reason, bound_at(world.system, view) is None) == ("deadline", False)
        assert (view.ended_at or 0) >= view.created_at + DEADLINE_S * 1000


def flush(world: Forgetful, ends: Ends, times: int) -> None:
    """Forget all that these runs are, for the so-manieth time; return when they have been built again."""
    shards, before = world.system.installed.store.shards, {loss.found_at for loss in world.losses()}
    world.client.flushall()
    assert world.live() == ends.keys()
    losses = world.made_good(times * shards)
    assert len(losses) == times * shards
    assert sum(report(loss)["restored"] for loss in losses if loss.found_at not in before) == len(ends)
    # heard of, for the next flush would take it along
    eventually(lambda: world.built(ends).total() == times * len(ends), what="each run's own word of it")


# ---- one thing


@pytest.mark.full
def test_due_sets_of_one_shard_vanish_under_load(world: Forgetful, drawn: random.Random) -> None:
    """And with them all messages, so that what was sent is only found again if it is put back where supervisors look.
    Nothing else is gone, so nothing is built again."""
    ends = world.submit_all(32)
    world.wait_for_planned(ends)
    world.system.start_steps(concurrency=4)
    keys = world.system.installed.store.keys
    shard = max(range(keys.shards), key=lambda shard: len(due_in(world, ends, shard)))
    here = due_in(world, ends, shard)
    world.wait_for_lines(len(world.system.effects()) + drawn.randint(1, 30))
    world.system.processes.forget_lines()
    world.client.delete(*(keys.due(shard, duty) for duty in DUTIES), "mandor.steps")
    assert here <= world.live()
    world.system.processes.wait_for_line(r'"run\.mended"')
    eventually(lambda: due_in(world, here, shard) == here, what="every run where supervisors look")
    world.open_gate()
    views = {run_id: world.system.wait(run_id, timeout_s=BUILT_S + 30) for run_id in ends}
    assert {run_id: view.status for run_id, view in views.items()} == ends
    assert not world.losses()
    assert not world.built(ends)


@pytest.mark.full
def test_keys_of_several_runs_vanish_under_load(world: Forgetful, drawn: random.Random) -> None:
    """Of some all that is kept of them, of some one key. They are built again, and no other run is."""
    ends = world.submit_all(40)
    world.wait_for_planned(ends)
    world.system.start_steps(concurrency=4)
    world.wait_for_lines(len(world.system.effects()) + drawn.randint(1, 60))
    lost = drawn.sample(sorted(ends), 6)
    world.client.delete(*(name for run_id in lost[:2] for name in kept_of(world, run_id)))
    for run_id, part in zip(lost[2:], ("", ":steps", ":plan", ":dependants"), strict=True):
        assert world.client.delete(state_of(world, run_id) + part) == 1
    assert set(lost) <= world.live()
    eventually(lambda: world.built(ends).keys() == set(lost), timeout_s=BUILT_S, what="those runs built again")
    world.open_gate()
    world.assert_all_end(ends, BUILT_S, {"runs"}, least=lost)
    assert world.built(ends) == dict.fromkeys(lost, 1)


def ref_of(run_id: str) -> RunRef:
    return RunRef(run_id, session_key(None))


def state_of(world: Forgetful, run_id: str) -> str:
    return world.system.installed.store.keys.state(ref_of(run_id))


def kept_of(world: Forgetful, run_id: str) -> list[str]:
    """All keys of a run."""
    state = state_of(world, run_id)
    return [state, *(name.decode() for name in world.client.scan_iter(match=f"{state}:*", count=1000))]


def due_in(world: Forgetful, run_ids: Ends | set[str], shard: int) -> set[str]:
    """Those of the shard's runs that a supervisor will look at."""
    store = world.system.installed.store
    return {run_id for run_id in run_ids if store.keys.shard_of(run_id) == shard and store.views.due(ref_of(run_id))}


# ---- another server, or another's data


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_server_without_a_file_is_killed(own: Forgetful, drawn: random.Random) -> None:
    own.client.config_set("appendonly", "no")
    own.system.start_steps(concurrency=3)
    ends = own.submit_all(20)
    own.wait_for_lines(drawn.randint(20, 80))
    kill(own)
    assert own.live() == ends.keys()
    shutil.rmtree(own.folder / "server" / "appendonlydir")  # which is there since before the setting
    own.server.start()
    own.open_gate()
    own.assert_all_end(ends, 3 * BUILT_S, {"amnesia"}, least=ends)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_an_old_copy_is_put_in_its_place(own: Forgetful) -> None:
    """In which half of the runs are not."""
    own.system.start_steps(concurrency=3)
    ends = own.submit_all(10)
    own.wait_for_lines(20)
    own.client.execute_command("WAITAOF", 1, 0, 5000)  # type: ignore[no-untyped-call]
    shutil.copytree(own.folder / "server" / "appendonlydir", own.folder / "copy")
    later = own.submit_all(10)
    own.wait_for_planned(later)
    own.wait_for_lines(50)
    kill(own)
    assert own.live() == ends.keys() | later.keys()
    shutil.rmtree(own.folder / "server" / "appendonlydir")
    shutil.copytree(own.folder / "copy", own.folder / "server" / "appendonlydir")
    own.server.start()
    own.open_gate()
    own.assert_all_end(ends | later, 3 * BUILT_S, {"behind", "moved"}, least=later)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_lagging_replica_is_promoted(server_kind: str, tmp_path: Path, drawn: random.Random) -> None:
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
        ends = own.submit_all(20)
        own.wait_for_planned(ends)
        own.system.start_steps(concurrency=3)
        own.wait_for_lines(drawn.randint(10, 40))
        follower.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
        most = versions(own, ends)  # that the replica can have
        ahead = eventually(lambda: heard_beyond(own, most), what="word of what it lacks")
        own.wait_for_lines(len(own.system.effects()) + drawn.randint(1, 20))
        proxies[0].turn_to(replica.url)
        kill(own)
        assert own.live() == ends.keys()
        own.open_gate()
        own.assert_all_end(ends, 3 * BUILT_S, {"behind", "moved"}, least=ahead)


def versions(own: Forgetful, ends: Ends) -> dict[str, int]:
    """The store's, of each run."""
    states = {run_id: own.system.installed.store.views.run(ref_of(run_id)) for run_id in ends}
    return {run_id: state.version for run_id, state in states.items() if state}


def heard_beyond(own: Forgetful, behind: dict[str, int]) -> set[str]:
    """Runs of which the ledger knows more than these versions."""
    heard = own.system.installed.ledger.history.standings(list(behind))
    return {run_id for run_id, version in behind.items() if heard.get(run_id, (0, 0))[1] > version}


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
