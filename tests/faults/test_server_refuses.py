"""A server that takes no writes for a while (demoted, or full), or says nothing. Nothing is lost by it."""

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from redis.exceptions import RedisError

from orchestrator import dispatch
from orchestrator.errors import StoreUnavailable
from tests.support.system import LEASE_S, System, plan_text, step
from tests.support.waiting import eventually

SILENT_S = 15.0
REFUSED_S = 10.0  # who submits hears within this time that nobody answers
NOWHERE = ("127.0.0.1", "1")
REFUSALS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "demoted": (("REPLICAOF", *NOWHERE), ("REPLICAOF", "NO", "ONE")),
    "full": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
}


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", REFUSALS)
def test_a_server_that_takes_no_writes_for_a_while(new_system: Callable[..., System], how: str) -> None:
    begin, end = REFUSALS[how]
    system = new_system()
    system.start_control()
    system.start_steps()
    running = system.processes.running()
    redis: Any = system.installed.app.backend.client
    run_id = system.submit(step("test.send", "a", value="x", hold_s=LEASE_S / 2), step("test.note", "b", value="y"))
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    redis.execute_command(*begin)
    try:
        refuse_to_submit(system)
        eventually(
            lambda: system.effects(run_id=run_id, what="noted"), what="the step's effect, which nobody can commit"
        )
    finally:
        redis.execute_command(*end)
    view = system.wait(run_id, timeout_s=60)
    assert (view.status, [one.attempt for one in view.steps], view.dead_letters) == ("succeeded", [1, 1], ())
    assert [line["value"] for line in system.effects(run_id=run_id, what="noted")] == ["x", "y"]
    assert system.wait(system.submit(step("test.note", value="z")), timeout_s=60).status == "succeeded"
    assert system.processes.running() == running


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_server_that_says_nothing_for_a_while(new_system: Callable[..., System]) -> None:
    """Connections stand and nothing comes: no call waits longer than its time limit, and everybody recovers alone."""
    system = new_system(store_timeout_s=1)
    system.start_control()
    system.start_steps()
    running = system.processes.running()
    redis: Any = system.installed.app.backend.client
    run_id = system.submit(step("test.send", "a", value="x", hold_s=LEASE_S / 2), step("test.note", "b", value="y"))
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    redis.execute_command("CLIENT", "PAUSE", round(SILENT_S * 1000), "ALL")
    asked_at = time.monotonic()
    refuse_to_submit(system)
    assert time.monotonic() - asked_at < REFUSED_S
    eventually(lambda: answers(redis), timeout_s=2 * SILENT_S, what="an answer of the server")
    view = system.wait(run_id, timeout_s=60)
    assert (view.status, [one.attempt for one in view.steps], view.dead_letters) == ("succeeded", [1, 1], ())
    assert [line["value"] for line in system.effects(run_id=run_id, what="noted")] == ["x", "y"]
    assert system.wait(system.submit(step("test.note", value="z")), timeout_s=60).status == "succeeded"
    assert system.processes.running() == running


def answers(redis: Any) -> bool:
    try:
        return bool(redis.ping())
    except RedisError:
        return False


def refuse_to_submit(system: System) -> None:
    """Who submits is told at once, and nothing was accepted."""
    app = system.installed.app
    before = system.installed.ledger.listed(10)
    with pytest.raises((StoreUnavailable, *dispatch.broker_errors(app))):
        dispatch.send_submission(app, {"plan": plan_text(step("test.note", value="x")), "context": {}}, str(uuid4()))
    assert system.installed.ledger.listed(10) == before
