"""Tasks of somebody's own Celery app are steps of a run, in real workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Server
from tests.support.system import System, running_system, step

pytestmark = [pytest.mark.full, pytest.mark.timeout(180)]


@pytest.fixture
def running(redis_server: Server, tmp_path: Path) -> Iterator[System]:
    with running_system(redis_server.url, tmp_path, actions="tests.support.other_tasks") as started:
        started.start_control()
        started.start_steps()
        yield started


def test_tasks_run_as_steps_of_a_run(running: System) -> None:
    """Its retries are attempts, its effect happens once; what would put another task in its place is refused, and the
    run undoes what it did."""
    good = running.submit(step("others.send", "send", order=7, busy=2))
    bad = running.submit(step("others.send", "send", order=8), step("others.hand_over", "hand", order=9))

    sent = running.wait(good)
    assert sent.status == "succeeded"
    assert sent.steps[0].attempt == 3
    assert sent.steps[0].result == {
        "number": "no. 7",
        "attempt": 3,
        "task_id": f"{good}.step.send",
        "key": f"idem:{good}:send:0",
    }

    refused = running.wait(bad)
    assert refused.status == "compensated"
    error = next(one.error for one in refused.steps if one.id == "hand")
    assert error is not None
    assert (error.kind, "cannot be replaced" in error.message) == ("not_in_a_step", True)
    assert sorted(running.effect_log.read_text().splitlines()) == sorted(
        [f"{good}.step.send sent 7", f"{bad}.step.send sent 8", f"{bad} withdrew 8 no. 8"]
    )
