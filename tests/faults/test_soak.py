"""Many runs, each with a step that is undone and one that fails: what is left of them, in server and processes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from orchestrator import dispatch
from tests.support.processes import rss_kb
from tests.support.servers import is_permanent
from tests.support.system import System, plan_text, step
from tests.support.waiting import eventually
from workers.faults.ground import group_of

WARM_UP, RUNS = 200, 600
# Of one process. Each of the two children fails some three hundred times with a megabyte in hand, which would be three
# times as much; what the allocator and the libraries' caches take is over by then, or nearly.
GROWTH_KB = 100_000
STEPS = (step("test.order", "a", value="x"), step("test.fat", "b", value="x"))
CELERYS_OWN = (b"_kombu.binding", b"unacked", b"mandor.")


@pytest.mark.soak
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_hundreds_of_failing_runs_leave_no_keys_and_no_memory(new_system: Callable[..., System]) -> None:
    system = new_system(actions="tests.support.business,tests.support.fat", finished_ttl_s=5)
    system.start_control()
    system.start_steps(concurrency=2)
    work(system, WARM_UP)
    before = memory_kb(system)
    work(system, RUNS - WARM_UP)
    after = memory_kb(system)
    assert {pid: after[pid] - kb for pid, kb in before.items() if after[pid] - kb > GROWTH_KB} == {}
    redis: Any = system.installed.app.backend.client
    eventually(lambda: not list(redis.scan_iter(match="{mandor:*}:state:*", count=1000)), what="no key of any run")
    left = [key for key in redis.scan_iter(count=1000) if redis.ttl(key) == -1]
    assert [key for key in left if not (is_permanent(key.decode()) or key.startswith(CELERYS_OWN))] == []
    # beat goes on: now and then one of its messages is being worked on
    eventually(lambda: redis.hlen("unacked") == redis.zcard("unacked_index") == 0, what="no message in hand")


def work(system: System, runs: int) -> None:
    """So many runs from their submission to their end in the ledger."""
    ledger = system.installed.ledger
    accepted = len(ledger.listed(2 * RUNS))
    for _ in range(runs):
        fields = {"plan": plan_text(*STEPS), "context": {}}
        dispatch.send_submission(system.installed.app, fields, str(uuid4())).forget()
    eventually(lambda: over(system, accepted + runs), timeout_s=500, what="the end of all runs")
    assert {run.status for run in ledger.listed(runs)} == {"compensated"}


def over(system: System, runs: int) -> bool:
    """Whether so many runs were accepted and have ended. Asked slowly, for it is no small question."""
    time.sleep(0.5)
    ledger = system.installed.ledger
    return not ledger.open_runs(None, 1, system.installed.settings.namespace) and len(ledger.listed(2 * RUNS)) == runs


def memory_kb(system: System) -> dict[int, int]:
    """The resident memory of every process that belongs to the installation."""
    groups = {system.processes.child(name).pid for name in system.processes.running()}
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid: rss_kb(pid) for pid in pids if group_of(pid) in groups}
