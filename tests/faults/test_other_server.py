"""A store that is not the one we knew: a worker keeps its messages, stops nobody, and goes on when it was verified."""

from collections.abc import Callable
from uuid import uuid4

from orchestrator import dispatch
from orchestrator.recovery import verification
from tests.support.forgetting import restart
from tests.support.system import System, plan_text, step
from tests.support.waiting import eventually


def test_a_worker_waits_until_the_server_was_verified(new_system: Callable[..., System]) -> None:
    system = new_system()
    installed = system.installed
    restart(installed.app.backend.client, installed.store.keys)
    system.processes.worker("control", queues="control", concurrency=1)
    plan = plan_text(step("test.echo", "a", value="x"))
    answer = dispatch.send_submission(installed.app, {"plan": plan}, str(uuid4()))
    for _ in range(2):
        system.processes.wait_for_line('"store_moved"', name="control")
    verification.verify(installed.ledger, installed.store, installed.settings)
    told = dispatch.await_answer(answer, 30)
    assert told is not None
    eventually(lambda: system.view(str(told["run_id"])).status == "accepted")
    assert system.processes.running() == ["control"]
