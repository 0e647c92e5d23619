"""The JSON that `run show` and `run events` promise."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.base import to_ms, to_rfc3339
from schemas.ids import run_id_for
from schemas.run import ErrorView, EventView, RunView, StepView, SubmitAnswer
from schemas.states import RUN_TERMINAL, STEP_TERMINAL, RunStatus, StepStatus

RUN = run_id_for("celery", "s", "r")
HASH = "0" * 64


def step_view(**fields: Any) -> StepView:
    values: dict[str, Any] = {
        "id": "s0",
        "index": 0,
        "action": "noop",
        "status": "failed",
        "attempt": 3,
        "attempt_group": 0,
        "fence": 4,
        "step_token": "step:x",
        "policy_hash": HASH,
        "needs": [],
        "result": None,
        "error": ErrorView(kind="step_error", message="no", path=None),
        "dispatched_at": 1,
        "started_at": 2,
        "ended_at": 3,
    }
    return StepView(**(values | fields))


def run_view(**fields: Any) -> RunView:
    values: dict[str, Any] = {
        "run_id": RUN,
        "session_id": "s",
        "request_id": "r",
        "status": RunStatus.FAILED,
        "reason": "s0 failed",
        "version": 9,
        "generation": 1,
        "plan_id": None,
        "plan_hash": HASH,
        "context_hash": HASH,
        "policy_hash": HASH,
        "created_at": 0,
        "ended_at": None,
        "steps": [step_view()],
    }
    return RunView(**(values | fields))


def test_the_keys_of_a_run() -> None:
    shown = json.loads(run_view().model_dump_json())
    assert {
        "run_id",
        "session_id",
        "request_id",
        "status",
        "reason",
        "version",
        "plan_id",
        "plan_hash",
        "context_hash",
        "policy_hash",
        "created_at",
        "ended_at",
        "steps",
        "compensations",
        "dead_letters",
    } <= shown.keys()
    assert list(shown["steps"][0]) == [
        "id",
        "index",
        "action",
        "status",
        "attempt",
        "attempt_group",
        "fence",
        "step_token",
        "policy_hash",
        "needs",
        "result",
        "error",
        "dispatched_at",
        "started_at",
        "ended_at",
    ]
    assert shown["steps"][0]["error"] == {"kind": "step_error", "message": "no", "path": None}
    assert (shown["created_at"], shown["ended_at"]) == ("1970-01-01T00:00:00.000Z", None)


def test_views_read_back() -> None:
    view = run_view(steps=[step_view(result={"n": [1]}, status="STALE", error=None)])
    assert RunView.model_validate_json(view.model_dump_json()) == view


def test_the_keys_of_an_event() -> None:
    event = EventView(
        version=2, at=5, event="step.claimed", step_id="s0", attempt=1, fence=3, worker_id="h:1:2", policy_hash=HASH
    )
    assert list(json.loads(event.model_dump_json()))[:8] == [
        "version",
        "at",
        "event",
        "step_id",
        "attempt",
        "fence",
        "worker_id",
        "policy_hash",
    ]


def test_the_answer_to_a_submission() -> None:
    answer = SubmitAnswer(run_id=RUN, status=RunStatus.ACCEPTED, created=True)
    assert json.loads(answer.model_dump_json()) == {"run_id": RUN, "status": "accepted", "created": True}


@pytest.mark.parametrize("at_ms", [0, 1, 999, 1_700_000_000_250, 253_402_300_799_999])
def test_times_read_back_to_the_millisecond(at_ms: int) -> None:
    assert to_ms(to_rfc3339(at_ms)) == at_ms


@pytest.mark.parametrize("moment", ["2026-01-01T00:00:00", "yesterday", -1, 1.5, True, 253_402_300_800_000])
def test_times_without_a_zone_or_out_of_range_are_refused(moment: Any) -> None:
    with pytest.raises(ValidationError):
        run_view(created_at=moment)


def test_terminal_words() -> None:
    assert {status for status in RunStatus if status not in RUN_TERMINAL} == {
        "accepted",
        "planning",
        "running",
        "failing",
        "compensating",
    }
    assert {status for status in StepStatus if status not in STEP_TERMINAL} == {
        "pending",
        "waiting_approval",
        "ready",
        "dispatched",
        "running",
        "backoff",
        "compensating",
    }
