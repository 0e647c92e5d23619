"""Deliveries of steps whose code is a Celery task: what the store is told of its `retry`."""

from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, workbench
from workers.outcomes import ProviderError
from workers.reports import Done, GivenUp, Later

app = Celery("others", broker="memory://", set_as_current=False)


@app.task(bind=True, max_retries=1)
def slow(self: Any, fails: int, countdown: float) -> int:
    if self.request.retries < fails:
        raise self.retry(countdown=countdown, exc=OSError("busy"))
    return int(self.request.retries)


@app.task
def refused(wait: float) -> None:
    raise ProviderError("busy", retry_after_s=wait)


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    return workbench(redis_server.url, namespace, tmp_path)


def planned(bench: Workbench, task: Any, effect: str = "keyed", **params: Any) -> Run:
    bench.registry.action("others.act", effect=effect, backoff_s=2, backoff_max_s=2)(task)
    return bench.planned({"action": "others.act", "params": params})


def wait_ms(run: Run) -> int:
    """How long the next attempt is off."""
    return run.step().not_before - run.bench.clock.now


@pytest.mark.parametrize(("countdown", "least_ms", "most_ms"), [(900, 899_000, 900_000), (0, 0, 2_000)])
def test_a_retry_is_an_attempt_that_waits_for_as_long_as_it_says(
    bench: Workbench, countdown: float, least_ms: int, most_ms: int
) -> None:
    run = planned(bench, slow, fails=1, countdown=countdown)
    assert isinstance(run.deliver(), Later)
    step = run.step()
    assert (step.status, step.attempt, step.max_attempts) == ("backoff", 1, 2)
    assert run.error() == {"kind": "task_retry", "message": "OSError: busy", "path": None}
    assert least_ms <= wait_ms(run) <= most_ms
    run.wait_out_backoff()
    assert isinstance(run.deliver(), Done)
    assert (run.step().attempt, run.result()) == (2, 1)


def test_a_task_fails_for_good_when_its_retries_are_used_up(bench: Workbench) -> None:
    run = planned(bench, slow, fails=2, countdown=1)
    run.deliver()
    run.wait_out_backoff()
    assert isinstance(run.deliver(), GivenUp)
    assert run.error()["kind"] == "max_retries"


def test_what_happens_once_is_not_tried_again_because_its_task_asks_for_it(bench: Workbench) -> None:
    run = planned(bench, slow, effect="once", fails=1, countdown=1)
    assert isinstance(run.deliver(), GivenUp)
    assert run.step().status == "in_doubt"


def test_a_service_is_left_alone_for_as_long_as_it_said(bench: Workbench) -> None:
    run = planned(bench, refused, wait=900)
    run.deliver()
    assert 899_000 <= wait_ms(run) <= 900_000
