"""Finished runs are shown whole long after the state store has let them go: what the commands print stays the same."""

import io
import json
from contextlib import redirect_stdout
from typing import Any

import pytest

from orchestrator.cli.command import run
from schemas.ids import RunRef
from tests.support.system import System, result_of, step
from tests.support.waiting import eventually
from workers.cli import mandor


def drop(system: System, run_id: str) -> None:
    """As when the time of a finished run in the store is over: every key that names it goes."""
    client = system.installed.app.backend.client
    while keys := list(client.scan_iter(f"*{run_id}*", count=10_000)):
        client.delete(*keys)
    assert system.installed.store.views.run(RunRef(run_id, "-")) is None


def told(system: System, run_id: str) -> bool:
    """Whether the ledger has heard the last of a run."""
    row, heard = system.installed.ledger.run(run_id), system.installed.ledger.history.run(run_id)
    return row is not None and heard is not None and row.ended_at is not None and heard.version == row.version


def printed(run_id: str) -> dict[str, Any]:
    return {
        "show": json.loads(output("run", "show", run_id)),
        "result": json.loads(output("run", "result", run_id)),
        "events": [json.loads(line) for line in output("run", "events", run_id).splitlines()],
    }


def output(*arguments: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert run(mandor, [*arguments, "--json"]) == 0, out.getvalue()
    return out.getvalue()


PLANS = {
    "succeeded": (step("test.note", "a", value="x"), step("test.echo", "b", value=result_of("a"))),
    "failed": (step("test.order", "a", value="x"), step("test.flaky", "b", failures=9, for_good=True)),
    "compensated": (step("test.note", "a", value="x"), step("test.flaky", "b", failures=9, for_good=True)),
}


@pytest.mark.parametrize("status", PLANS)
def test_a_run_that_the_store_let_go_is_shown_as_before(system: System, status: str) -> None:
    system.start_steps()
    policy = {"on_failure": "stop" if status == "failed" else "compensate"}
    run_id = system.submit(*PLANS[status], policy=policy)
    assert system.wait(run_id).status == status
    eventually(lambda: told(system, run_id), what="the ledger to be told of the end")
    before = printed(run_id)
    drop(system, run_id)
    after = printed(run_id)
    assert after == before
    assert [one["status"] for one in after["show"]["steps"]][:1] == ["completed" if status != "compensated" else status]
    assert before["events"]
