"""What actions do to the worker they run in: it is seen within its bound, and over when it is mended."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.dispatch import KILL_MARGIN_S
from orchestrator.local.address import free_port
from orchestrator.pulse import TICK_S
from tests.support.scraping import failing, scraped, turning, turns
from tests.support.servers import running_server
from tests.support.system import SHORT, System, running_system, step
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]
# the bounds of docs/health.md under these settings
EVERY_S = 2.0
WEDGED_S = 3.0
POOL_S = WEDGED_S + TICK_S
MOST_MIB, HOARD_MIB = 200, 250
LIMIT_S = 1.0  # of test.deadlock


@pytest.fixture(scope="module")
def system(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Its ledger lies in a folder that can be taken away."""
    folder = tmp_path_factory.mktemp("ailing")
    (folder / "ledger").mkdir()
    given = {"ledger_url": f"sqlite:///{folder / 'ledger' / 'ledger.db'}", "steps_port": str(free_port())}
    actions = "tests.support.business,tests.support.ailing"
    with (
        running_server(folder / "server", server_kind) as server,
        running_system(server.url, folder, actions=actions, health_every_s=EVERY_S, store_timeout_s=1, **given) as made,
        made.installed.in_force(),
    ):
        made.processes.worker("rest", queues="control,plan,supervise")
        made.processes.beat()
        start_steps(made)
        turns(url(made), "/health", set(), 10)
        yield made


def start_steps(system: System) -> None:
    options = ("--max-memory-per-child", str(MOST_MIB * 1024))
    env = {"MANDOR_WEDGED_S": str(WEDGED_S), "MANDOR_MEMORY_MIB": str(MOST_MIB)}
    system.processes.worker("steps", *options, queues="steps", concurrency=1, env=env)


def url(system: System) -> str:
    return f"http://127.0.0.1:{system.installed.settings.steps_port}"


def children(system: System) -> list[int]:
    """Of the step worker."""
    pid = system.processes.child("steps").pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def test_a_leaking_child_is_told_and_exchanged_when_its_step_has_ended(system: System, tmp_path: Path) -> None:
    (before,), gate = children(system), tmp_path / "gate"
    run_id = system.submit(step("test.hoard", mib=HOARD_MIB, file=str(gate)))
    try:
        turns(url(system), "/livez", {"memory"}, TICK_S)
        found = scraped(url(system))
        assert found['mandor_health{check="memory"}'] == 0
        assert found['mandor_worker_memory_bytes{process="largest"}'] > MOST_MIB * 2**20
        assert failing(url(system), "/readyz") == set()
    finally:
        gate.touch()
    assert system.wait(run_id).status == "succeeded"
    eventually(lambda: children(system) not in ([], [before]), what="another child")
    turns(url(system), "/livez", set(), TICK_S)
    assert scraped(url(system))['mandor_worker_memory_bytes{process="largest"}'] < MOST_MIB * 2**20
    assert system.wait(system.submit(step("test.echo", value="after"))).status == "succeeded"


def test_a_step_that_holds_the_interpreter_is_ended_before_it_counts_as_stuck(system: System, tmp_path: Path) -> None:
    """Its own threads cannot: the main process does."""
    before, started, seen = children(system), time.monotonic(), set[str]()
    run_id = system.submit(step("test.deadlock", "s", file=str(tmp_path / "none")))
    while system.view(run_id).ended_at is None:
        seen |= failing(url(system), "/livez")
        time.sleep(0.1)
    assert time.monotonic() - started < LIMIT_S + float(str(SHORT["stop_grace_s"])) + KILL_MARGIN_S + 20
    view = system.view(run_id)
    assert (view.status, [one.attempt for one in view.steps], seen) == ("succeeded", [2], set())
    assert children(system) != before


def test_a_child_that_was_left_deadlocked_is_told_when_work_waits_for_it(system: System, tmp_path: Path) -> None:
    mark = tmp_path / "seized"
    assert system.wait(system.submit(step("test.seize", file=str(mark)))).status == "succeeded"
    eventually(mark.exists)
    assert failing(url(system), "/livez") == set()  # it has nothing to do
    with turning(url(system), "/livez", {"pool"}, POOL_S):
        run_id = system.submit(step("test.echo", value="x"))
    system.processes.kill("steps")
    start_steps(system)
    turns(url(system), "/livez", set(), TICK_S)
    assert system.wait(run_id, timeout_s=60).status == "succeeded"


def test_the_ledger_goes_away_and_comes_back(system: System) -> None:
    folder = Path(system.installed.settings.ledger.removeprefix("sqlite:///")).parent
    away = folder.with_suffix(".away")
    try:
        with turning(url(system), "/readyz", {"ledger"}, EVERY_S):
            folder.rename(away)
        assert failing(url(system), "/livez") == set()
    finally:
        away.rename(folder)
    turns(url(system), "/readyz", set(), EVERY_S)
    assert system.wait(system.submit(step("test.echo", value="after")), timeout_s=60).status == "succeeded"
