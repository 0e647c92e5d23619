"""A policy as people are shown it."""

import json
from typing import Any

import pytest

from orchestrator.cli.policy import fields_of, phrase, print_policy
from schemas.policy import Policy, PolicyRequest, Quota, SomeLimits, meet, policy_hash, policy_text
from schemas.run import LimitsView, RunView
from schemas.states import RunStatus
from tests.support.following import RUN_ID

NARROW = PolicyRequest(
    actions=frozenset({"b.pay", "a.read"}),
    effects=frozenset(),
    deadline_s=90.5,
    limits=SomeLimits(attempts=2),
    quotas={"b.pay": Quota(steps=2)},
    require_compensation=True,
)


def document(policy: Policy) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(policy_text(policy))
    return found


def test_what_holds_is_shown_and_not_how_it_came_about() -> None:
    shown = fields_of(document(meet(Policy(), NARROW, "request")))
    assert (shown["actions"], shown["effects"], shown["deadline_s"]) == ("a.read, b.pay", "none", "90.5")
    assert (shown["limits.attempts"], shown["limits.timeout_s"], shown["quotas.b.pay.steps"]) == ("2", "60", "2")
    assert (shown["on_failure"], shown["on_doubt"], shown["require_compensation"]) == ("compensate", "end", "true")
    assert "ceiling" not in shown


def test_a_policy_of_another_release_is_shown_as_it_is() -> None:
    assert fields_of({"max_steps": 5, "of": {"another": "release"}}) == {
        "max_steps": "5",
        "of": '{"another":"release"}',
    }


@pytest.mark.parametrize(("value", "text"), [(2_592_000.0, "2592000"), (0.5, "0.5"), (None, "all"), ([], "none")])
def test_values_are_told_in_full(value: Any, text: str) -> None:
    assert phrase(value) == text


def test_a_run_is_shown_with_its_policy_and_the_limits_of_its_actions(capsys: pytest.CaptureFixture[str]) -> None:
    limits = {"pay": LimitsView(attempts=1, timeout_s=2.5, lease_s=15.0, backoff_s=1.0, backoff_max_s=60.0)}
    run = RunView(
        run_id=RUN_ID,
        session_id=None,
        request_id="r",
        status=RunStatus.RUNNING,
        reason=None,
        version=1,
        generation=1,
        plan_id=None,
        plan_hash=None,
        context_hash="0" * 64,
        policy_hash=policy_hash(Policy()),
        created_at=0,
        ended_at=None,
        steps=(),
        policy=document(Policy()),
        limits=limits,
    )
    print_policy(run)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["policy", run.policy_hash] in lines
    assert ["max_steps", "1000"] in lines
    assert lines[-2:] == [
        ["limits", "of", "attempts", "timeout_s", "lease_s", "backoff_s", "backoff_max_s"],
        ["pay", "1", "2.5", "15", "1", "60"],
    ]
