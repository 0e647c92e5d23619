"""Messages carry names of one shape."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.ids import RunRef, run_id_for, session_key
from schemas.messages import LateMessage, PlanMessage, Receipt, ReceiptStatus, SettleMessage, StepMessage

RUN = run_id_for("celery", "s", "r")


def message(**fields: Any) -> str:
    return json.dumps({"run_id": RUN, "session": session_key("s"), "step_id": "s0", "generation": 1, **fields})


def test_a_message_names_where_the_state_lies() -> None:
    read = StepMessage.model_validate_json(message())
    assert read.ref == RunRef(RUN, session_key("s"))
    assert json.loads(read.model_dump_json()) == json.loads(message())


def test_what_came_late_is_named_by_its_fence() -> None:
    assert LateMessage.model_validate_json(message(fence=3)).fence == 3
    for wrong in ({}, {"fence": 0}, {"fence": "3"}):
        with pytest.raises(ValidationError):
            LateMessage.model_validate_json(message(**wrong))


def test_plan_and_settle_name_no_step() -> None:
    for model in (PlanMessage, SettleMessage):
        assert model(run_id=RUN, session="-", generation=2).ref == RunRef(RUN)
        with pytest.raises(ValidationError):
            model.model_validate_json(message())


@pytest.mark.parametrize(
    "wrong",
    [
        {"run_id": RUN.upper()},
        {"run_id": RUN + "\n"},
        {"session": "s"},
        {"step_id": "S"},
        {"generation": 0},
        {"generation": "1"},
        {"generation": True},
        {"params": {}},
    ],
)
def test_garbled_messages_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StepMessage.model_validate_json(message(**wrong))


def test_the_receipt_is_what_the_chord_gets() -> None:
    receipt = Receipt(step_id="s0", status=ReceiptStatus.CACHED, fence=7)
    assert receipt.model_dump(mode="json") == {"step_id": "s0", "status": "cached", "fence": 7}
    assert Receipt.model_validate_json(receipt.model_dump_json()) == receipt
