"""The state store stopped and started again under running steps: a restart is an outage, and no outage is a death."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.local import EmbeddedServer
from orchestrator.recovery import verification
from tests.support.servers import ended_with_us, server_binary
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually

AWAY_S = 20.0
STEPS = 10


@pytest.fixture
def server(server_kind: str, tmp_path: Path) -> Iterator[EmbeddedServer]:
    """As users have it: with its append-only file."""
    with EmbeddedServer(tmp_path / "server", binary=server_binary(server_kind)) as made:
        yield made


@pytest.fixture
def system(server: EmbeddedServer, tmp_path: Path) -> Iterator[System]:
    """With leases, sweeps and limits as they are by default."""
    with (
        running_system(server.url, tmp_path, lease_s=15, sweep_s=2, stop_grace_s=10) as made,
        made.installed.in_force(),
    ):
        made.start_control()
        yield made


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "hold_s",
    [pytest.param(30, id="back before they end"), pytest.param(10, id="away when they end", marks=pytest.mark.soak)],
)
def test_ten_running_once_steps_outlast_an_outage(server: EmbeddedServer, system: System, hold_s: int) -> None:
    system.start_steps(concurrency=STEPS)
    run_id = system.submit(*(step("test.send", f"s{i}", [], value=str(i), hold_s=hold_s) for i in range(STEPS)))
    eventually(lambda: len(system.effects(what="began")) == STEPS, timeout_s=60, what="all steps begun")
    restart(server, system)
    view = system.wait(run_id, timeout_s=120)
    assert (view.status, view.dead_letters) == ("succeeded", ())
    assert [(one.status, one.attempt) for one in view.steps] == [("completed", 1)] * STEPS
    assert sorted(line["value"] for line in system.effects(what="noted")) == [str(i) for i in range(STEPS)]
    assert len(system.effects(what="began")) == STEPS
    assert "beat" in system.processes.running()
    now = system.installed.store.now_ms()
    eventually(lambda: system.installed.store.views.last_passes()["leases"] > now, what="a pass: the same beat ticks")


def restart(server: EmbeddedServer, system: System) -> None:
    """Stop it, start it on its old port, and verify it, as `mandor up` does. Who met it unverified is started again."""
    server.stop()
    time.sleep(AWAY_S)
    server.start()
    assert server.pid is not None
    with ended_with_us(server.pid):
        installed = system.installed
        verification.verify(installed.ledger, installed.store, installed.settings)
    for role, queues in (("control", "control"), ("supervise", "supervise")):
        if role not in system.processes.running():
            system.processes.worker(role, queues=queues, concurrency=1)
