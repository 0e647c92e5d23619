"""What an operator may restrict on the server: who may touch which keys, and how many connections there are."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator import decisions
from orchestrator.decisions import Desk
from tests.support.servers import Server, running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually

# as docs/running.md has them
KEYS = (
    "{mandor:*}:*",
    "mandor.*",
    "_kombu.binding*",
    "*.celery.pidbox*",
    "unacked*",
    "celery-task-meta-*",
    "celery-taskset-meta-*",
)
FORBIDDEN = ("-@dangerous", "+info", "+client", "+config|get", "+role", "+keys")
A_WORKER, A_CHILD, A_BEAT = 9, 5, 3
WORKERS, CHILDREN = 5, 3 * 1 + 2 * 2  # of `started`
NEEDED = A_WORKER * WORKERS + A_CHILD * CHILDREN + A_BEAT
CALLERS = 8
PAGE = " ".join((Path(__file__).parents[2] / "docs" / "running.md").read_text().split())


@pytest.fixture
def server(server_kind: str, tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "server", server_kind) as made:
        yield made


def started(system: System) -> System:
    system.start_control()
    system.start_steps("steps-1")
    system.start_steps("steps-2")
    return system


def work(system: System) -> None:
    """One run of each kind of end."""
    runs = {
        "succeeded": system.submit(*(step("test.note", f"s{i}", [], value="x") for i in range(20))),
        "compensated": system.submit(step("test.order", value="x"), step("test.flaky", failures=0, for_good=True)),
        "cancelled": cancelled(system),
    }
    for status, run_id in runs.items():
        assert system.wait(run_id, timeout_s=60).status == status


def cancelled(system: System) -> str:
    policy = {"approvals": ["test.note"], "on_failure": "stop"}
    run_id = system.submit(step("test.note", value="x"), policy=policy)
    eventually(lambda: [one.status for one in system.view(run_id).steps] == ["waiting_approval"])
    decisions.cancel(Desk(system.installed.app, system.installed.store, system.installed.ledger), run_id, "ann")
    return run_id


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_user_with_our_keys_alone_is_refused_nothing(server: Server, tmp_path: Path) -> None:
    server.client.acl_setuser(
        "mandor", enabled=True, passwords=["+secret"], keys=list(KEYS), channels=["*"], commands=["+@all", *FORBIDDEN]
    )
    address = urlsplit(server.url)
    url = f"redis://mandor:secret@{address.hostname}:{address.port}/0"
    with running_system(url, tmp_path) as system, system.installed.in_force():
        work(started(system))
        server.client.client_kill_filter(_type="pubsub")
        work(system)
    assert server.client.acl_log() == []
    assert [key for key in KEYS if f"`{key}`" not in PAGE] == []


@pytest.mark.full
@pytest.mark.timeout(300)
def test_an_installation_keeps_to_the_connections_it_is_said_to_need(server: Server, tmp_path: Path) -> None:
    """Under a limit that leaves room for those, and for a few callers like this test, nobody is turned away."""
    before = server.client.info("stats")["rejected_connections"]
    server.client.config_set("maxclients", NEEDED + CALLERS)
    with running_system(server.url, tmp_path) as system, system.installed.in_force():
        work(started(system))
        work(system)
        there = len(server.client.client_list())
    assert there <= NEEDED + CALLERS
    assert there > NEEDED * 0.8  # or the page asks for more than is needed
    assert server.client.info("stats")["rejected_connections"] == before
    assert f"{A_WORKER} connections for each worker, {A_CHILD} for each of its children, {A_BEAT} for beat" in PAGE
