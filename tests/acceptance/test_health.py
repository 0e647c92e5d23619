"""What is broken turns the right check red, within its bound, and green again when it is mended."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.healing.looker import SLOW_S
from orchestrator.healing.passes import LATE_LEAST_S
from orchestrator.ledger.tables import VERSION_TABLE
from orchestrator.pulse import TICK_S
from tests.support.scraping import failing, probed, scraped, turning, turns, url_of
from tests.support.servers import Server, frozen, running_server
from tests.support.system import SWEEP_S, System, running_system, step
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]
# the bounds of docs/health.md under these settings
EVERY_S = 2.0
HANGING_S = EVERY_S + SLOW_S
WEDGED_S = 3.0
POOL_S = WEDGED_S + TICK_S
PASSES_S = LATE_LEAST_S + EVERY_S


@pytest.fixture(scope="module")
def server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The state store."""
    with running_server(tmp_path_factory.mktemp("server"), server_kind) as made:
        yield made


@pytest.fixture(scope="module")
def broker(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("broker"), server_kind) as made:
        yield made


@pytest.fixture(scope="module")
def system(server: Server, broker: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("health")
    settings = {"health_every_s": EVERY_S, "store_timeout_s": 1, "lease_s": 30, "broker_url": broker.url}
    with running_system(server.url, folder, **settings) as made:  # type: ignore[arg-type]
        made.start_control()
        made.processes.worker("steps", queues="steps", concurrency=1, env={"MANDOR_WEDGED_S": str(WEDGED_S)})
        made.processes.python("exporter", "-m", "workers.cli", "exporter", ready="service.ready")
        with made.installed.in_force():
            eventually(lambda: all(probed(ask(made, role), "/health")[0] == 200 for role in ROLES), timeout_s=40)
            yield made


ROLES = ("steps", "control", "supervise", "exporter")


def ask(system: System, role: str) -> str:
    return url_of(system.installed.settings.home, role)


def health(system: System, *arguments: str) -> tuple[int, Any]:
    """`mandor health` as a probe runs it."""
    command = [sys.executable, "-m", "workers.cli", "health", *arguments, "--json"]
    done = subprocess.run(
        command, env=system.processes.env, cwd=system.processes.cwd, capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout)


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def test_a_child_that_takes_no_work_is_told_from_one_that_has_none(system: System) -> None:
    url = ask(system, "steps")
    (child,) = children_of(system.processes.child("steps").pid)
    os.kill(child, signal.SIGSTOP)
    try:
        time.sleep(2 * WEDGED_S)
        assert failing(url, "/livez") == set()  # it has nothing to do
        run_id = system.submit(step("test.echo", value="x"))
        eventually(lambda: [one.status for one in system.view(run_id).steps] == ["dispatched"], what="work that waits")
        turns(url, "/livez", {"pool"}, POOL_S)
        code, said = health(system, "--role", "steps", "--of", "live")
        assert (code, said["status"]) == (1, "failing")
        assert "while a child is idle" in said["failing"][0]["text"]
    finally:
        os.kill(child, signal.SIGCONT)
    turns(url, "/livez", set(), TICK_S)
    assert system.wait(run_id).status == "succeeded"
    assert health(system, "--role", "steps")[0] == 0


def test_a_long_step_and_a_backlog_behind_it_are_progress(system: System) -> None:
    url = ask(system, "steps")
    runs = [system.submit(step("test.note", value=str(i), hold_s=2 * WEDGED_S)) for i in range(2)]
    seen = set()
    while not all(system.view(run_id).status == "succeeded" for run_id in runs):
        seen |= failing(url, "/livez")
        time.sleep(0.2)
    assert seen == set()


def test_a_process_that_grows_too_large(system: System) -> None:
    # of another role: what was started last is where a role is asked
    system.processes.worker("large", queues="plan", concurrency=1, env={"MANDOR_MEMORY_MIB": "20"})
    line = json.loads(system.processes.wait_for_line("health.served", name="large"))
    assert failing(line["url"], "/livez") == {"memory"}
    assert failing(line["url"], "/readyz") == set()
    system.processes.kill("large")


def up(system: System) -> tuple[float, ...]:
    """Store, broker and ledger, as the exporter tells."""
    found = scraped(ask(system, "exporter"))
    return tuple(found[f"mandor_{name}_up"] for name in ("store", "broker", "ledger"))


def is_as_before(system: System) -> None:
    for role in ROLES:
        turns(ask(system, role), "/readyz", set(), HANGING_S)
    eventually(lambda: up(system) == (1, 1, 1), timeout_s=SLOW_S, what="what hung in the exporter is over")
    assert system.wait(system.submit(step("test.echo", value="after"))).status == "succeeded"


def test_the_broker_goes_away_and_comes_back(system: System, broker: Server) -> None:
    url = ask(system, "control")
    with ExitStack() as stack:
        with turning(url, "/readyz", {"broker"}, HANGING_S):
            stack.enter_context(frozen(broker))
        assert failing(url, "/livez") == set()
        assert up(system) == (1, 0, 1)
    is_as_before(system)


def test_the_store_goes_away_and_comes_back(system: System, server: Server) -> None:
    url = ask(system, "control")
    with ExitStack() as stack:
        with turning(url, "/readyz", {"store", "epoch"}, HANGING_S):
            stack.enter_context(frozen(server))
        assert failing(url, "/livez") == set()
        assert up(system) == (0, 1, 1)
        said = probed(url, "/readyz")[1]["failing"][0]
        assert said["since"].endswith("Z")
        assert said["mend"]
    is_as_before(system)


def test_the_ledger_is_not_ours_and_is_again(system: System) -> None:
    url, home = ask(system, "control"), system.installed.settings.home

    def set_revision(revision: str) -> None:
        with sqlite3.connect(home / "ledger.db", timeout=30) as connection:
            connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", [revision])
        connection.close()

    with sqlite3.connect(home / "ledger.db") as connection:
        (right,) = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    connection.close()
    try:
        with turning(url, "/readyz", {"ledger"}, EVERY_S):
            set_revision("0000")
        assert failing(url, "/livez") == set()
    finally:
        set_revision(right)
    turns(url, "/readyz", set(), EVERY_S)


def test_a_lost_epoch(server: Server, tmp_path: Path) -> None:
    """Seen by an exporter that is alone: whoever works with the store ends when it meets this, and nobody passes."""
    with running_system(server.url, tmp_path, namespace="alone", health_every_s=str(EVERY_S)) as system:
        system.processes.python("exporter", "-m", "workers.cli", "exporter", ready="service.ready")
        url, store = ask(system, "exporter"), system.installed.store
        turns(url, "/readyz", {"passes"}, EVERY_S)
        key = store.keys.shard_part(3, "epoch")
        value = store.scripts.ask("GET", key)
        with turning(url, "/readyz", {"passes", "epoch"}, EVERY_S):
            store.scripts.tell("DEL", key)
        assert scraped(url)['mandor_shards{state="lost"}'] == 1
        with turning(url, "/readyz", {"passes"}, EVERY_S):
            store.scripts.tell("SET", key, value)


def test_beat_stops_and_starts_again(system: System) -> None:
    url = ask(system, "supervise")
    assert failing(url, "/readyz") == set()
    with turning(url, "/readyz", {"passes"}, PASSES_S):
        system.processes.kill("beat")
    ages = {name: value for name, value in scraped(ask(system, "exporter")).items() if "pass_age" in name}
    assert min(ages.values()) > LATE_LEAST_S - 1
    system.processes.beat()
    turns(url, "/readyz", set(), SWEEP_S + EVERY_S)


def test_a_worker_says_what_it_waits_for_before_it_has_started(system: System) -> None:
    name = "early"  # of another role: what was started last is where a role is asked
    command = ("-m", "celery", "-A", "orchestrator.app", "worker", "-n", f"{name}@%h", "-Q", "plan", "-c", "1")
    nobody = "redis://127.0.0.1:1/0"
    away = {"REMAP_SIGTERM": "SIGQUIT", "MANDOR_REDIS_URL": nobody, "MANDOR_BROKER_URL": nobody}
    system.processes.python(name, *command, "--without-gossip", "--without-mingle", ready="health.served", env=away)
    url = json.loads(system.processes.wait_for_line("health.served", name=name))["url"]
    turns(url, "/readyz", {"started", "store", "epoch", "broker"}, SLOW_S)
    assert probed(url, "/livez")[0] == 200
    system.processes.kill(name)


def test_a_named_port_that_is_taken_is_said_and_the_worker_works(system: System) -> None:
    taken = ask(system, "control").rpartition(":")[2]
    system.processes.worker("second", queues="steps", concurrency=1, env={"MANDOR_STEPS_PORT": taken})
    line = json.loads(system.processes.wait_for_line("health.not_served", name="second"))
    assert taken in line["message"]
    assert "MANDOR_STEPS_PORT" in line["hint"]
    system.processes.wait_for_line("service.ready", name="second")
    system.processes.kill("second")
    code, said = health(system, "--role", "planner", "--url", "http://127.0.0.1:9")
    assert (code, said["error"]["kind"]) == (3, "no_answer")
