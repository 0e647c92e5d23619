"""The context that users test their actions with."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from orchestrator.errors import ConfigError
from workers.actions.files import CreateFile, create_file
from workers.outcomes import RunEnding
from workers.results import ResultRefused
from workers.testing import RecordingContext, context


class Params(BaseModel):
    pass


def test_an_action_runs_without_a_server(tmp_path: Path) -> None:
    ctx = context(workspace=tmp_path)
    assert create_file(CreateFile(path="a/b.txt", content="hello"), ctx).bytes == 5
    assert ctx.workspace.read("a/b.txt", max_bytes=9) == b"hello"


def test_it_hands_out_what_the_test_gave_it() -> None:
    ctx = context(step_id="pay", attempt=2, fencing_token=9, results={"check": {"ok": True}})
    assert (ctx.step_id, ctx.attempt, ctx.fencing_token) == ("pay", 2, 9)
    assert ctx.idempotency_key.endswith(":pay:0")
    assert ctx.result("check") == {"ok": True}
    with pytest.raises(KeyError):
        ctx.result("other")


def test_it_can_be_told_to_stop() -> None:
    ctx = context()
    ctx.check()
    ctx.stop = RunEnding("cancelled")
    with pytest.raises(RunEnding):
        ctx.check()


def test_it_remembers_effects_and_refuses_what_a_worker_would() -> None:
    ctx: RecordingContext = context()
    ctx.effect("connection", {"n": 1})
    assert ctx.effects == [("connection", {"n": 1})]
    with pytest.raises(ResultRefused):
        ctx.effect("connection", float("nan"))


@pytest.mark.parametrize("name", ["ledger", "workspace"])
def test_what_was_not_given_is_named(name: str) -> None:
    ctx = context()
    with pytest.raises(ConfigError, match=name):
        ctx.ledger() if name == "ledger" else ctx.workspace
