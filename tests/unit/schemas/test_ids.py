"""Names are made of checked parts only."""

import uuid
from typing import Any

import pytest

from schemas.ids import (
    InvalidId,
    RunRef,
    group_id,
    idempotency_key,
    is_run_id,
    plan_task_id,
    run_id_for,
    session_key,
    settle_task_id,
    step_task_id,
    step_token,
)
from tests.support.plans import PLAN_ID

RUN = run_id_for("celery", None, "request-1")


def test_a_run_id_is_a_uuid_of_version_8() -> None:
    for number in range(200):
        parsed = uuid.UUID(run_id_for("celery", "s", f"r{number}"))
        assert parsed.version == 8
        assert parsed.variant == uuid.RFC_4122


def test_a_run_is_named_by_principal_session_and_request() -> None:
    names = {
        run_id_for("celery", None, "a"),
        run_id_for("celery", "null", "a"),
        run_id_for("key_1", None, "a"),
        run_id_for("celery", "a", "celery"),
        run_id_for("celery", '","', "a"),
    }
    assert len(names) == 5
    assert run_id_for("celery", None, "request-1") == RUN


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        (("", None, "r"), "principal"),
        (("p", "", "r"), "session_id"),
        (("p", None, ""), "request_id"),
        (("p", None, None), "request_id"),
        (("p", 7, "r"), "session_id"),
        (("p", None, "\ud800"), "request_id"),
    ],
)
def test_a_run_id_needs_texts(parts: tuple[Any, Any, Any], field: str) -> None:
    with pytest.raises(InvalidId) as caught:
        run_id_for(*parts)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "text",
    [RUN.upper(), RUN + "\n", RUN[:-1], RUN.replace("-8", "-4", 1), "", None, 7, f"{{{RUN}}}", RUN.replace("-", "")],
)
def test_a_run_id_has_one_spelling(text: object) -> None:
    assert is_run_id(RUN)
    assert not is_run_id(text)


def test_session_keys_are_of_one_shape() -> None:
    assert session_key(None) == "-"
    assert {len(session_key(text)) for text in ("-", "x", "a:b|c", "\u0000", "é" * 1000)} == {16}


def test_a_ref_holds_valid_parts_only() -> None:
    assert RunRef(RUN, session_key("s")) == RunRef(RUN, session_key("s"))
    assert RunRef(RUN).session == "-"
    for run_id, session in ((RUN.upper(), "-"), (RUN, "x"), (RUN, "-\n"), (RUN, session_key("s").upper())):
        with pytest.raises(InvalidId):
            RunRef(run_id, session)


def test_the_shapes_of_names() -> None:
    assert plan_task_id(RUN) == f"{RUN}.plan"
    assert step_task_id(RUN, "charge-1") == f"{RUN}.step.charge-1"
    assert settle_task_id(RUN) == f"{RUN}.settle"
    assert group_id(RUN, 2) == f"{RUN}.g2"
    assert idempotency_key(RUN, "s0") == f"idem:{RUN}:s0:0"
    assert idempotency_key(RUN, "s0", 3) == f"idem:{RUN}:s0:3"


@pytest.mark.parametrize("step_id", ["", "A", "a:b", "a.b", "-a", "a" * 65, "s0\n", "é", "a b", None, 0])
def test_no_crafted_step_id_gets_into_a_name(step_id: Any) -> None:
    for name in (step_task_id, idempotency_key):
        with pytest.raises(InvalidId) as caught:
            name(RUN, step_id)
        assert caught.value.field == "step_id"


@pytest.mark.parametrize("count", [-1, True, "0", 1.0, None])
def test_counts_are_integers(count: Any) -> None:
    with pytest.raises(InvalidId):
        idempotency_key(RUN, "s", count)
    with pytest.raises(InvalidId):
        step_token(PLAN_ID, count, "a", {})
    with pytest.raises(InvalidId):
        group_id(RUN, 0)


def test_a_token_follows_what_the_step_does() -> None:
    token = step_token(PLAN_ID, 0, "pay", {"a": 1, "b": [1.0]})
    assert token == step_token(PLAN_ID.upper(), 0, "pay", {"b": [1], "a": 1.0})
    others = [
        step_token(PLAN_ID, 1, "pay", {"a": 1, "b": [1]}),
        step_token(PLAN_ID, 0, "pays", {"a": 1, "b": [1]}),
        step_token(PLAN_ID, 0, "pay", {"a": 1, "b": []}),
    ]
    assert token not in others
    assert step_token(PLAN_ID, 0, "pay", {"n": 2**70}) != step_token(PLAN_ID, 0, "pay", {"n": 2**70 + 1})


@pytest.mark.parametrize(
    ("plan", "action"), [("x", "pay"), (PLAN_ID + ":0", "pay"), (PLAN_ID, "Pay"), (PLAN_ID, "a:b"), (PLAN_ID, "")]
)
def test_a_token_refuses_what_would_blur_it(plan: str, action: str) -> None:
    with pytest.raises(InvalidId):
        step_token(plan, 0, action, {})
