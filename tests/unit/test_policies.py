"""The policy of a run: settings, file, request, each narrower than the one before."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.errors import ConfigError, SubmissionRefused
from orchestrator.policies import heard, installation_policy, resolve, stages
from orchestrator.settings import Settings
from schemas.policy import PolicyRequest, SomeLimits


@pytest.fixture
def policy_file(tmp_path: Path) -> Any:
    def write(content: Any) -> Settings:
        path = tmp_path / "policy.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return Settings(policy_file=path, max_steps=500)

    return write


def test_without_a_file_the_settings_are_the_policy() -> None:
    policy = resolve(Settings(max_steps=7, attempts=5, deadline_s=100.0, result_bytes=10))
    assert (policy.max_steps, policy.deadline_s, policy.result_bytes) == (7, 100.0, 10)
    assert policy.limits.attempts == 5
    assert policy.actions is None


def test_the_file_narrows_and_fixes_single_actions(policy_file: Any) -> None:
    content = {
        "actions": ["create_file", "pay"],
        "max_steps": 100,
        "limits": {"timeout_s": 30},
        "per_action": {"pay": {"attempts": 9, "backoff_s": 0.5}},
    }
    policy = resolve(policy_file(content))
    assert policy.actions == frozenset({"create_file", "pay"})
    assert policy.max_steps == 100
    assert policy.limits_for("pay").attempts == 9
    assert policy.limits_for("pay", SomeLimits(timeout_s=50)).timeout_s == 30
    assert policy.limits_for("create_file").attempts == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"max_steps": 501}, "max_steps"),
        ({"limits": {"attempts": 4}}, "limits.attempts"),
        ({"max_step": 5}, "max_step"),
        ({"max_steps": "5"}, "max_steps"),
        ({"effects": ["magic"]}, "effects"),
        ({"limits": {"timeout_s": 30}, "per_action": {"pay": {"timeout_s": 90}}}, r"per_action\.pay\.timeout_s"),
        ({"max_steps": 5, "quotas": {"pay": {"steps": 6}}}, r"quotas\.pay\.steps"),
        ({"principals": {"celery": {"max_steps": 501}}}, r"principals\.celery\.max_steps"),
        ({"max_steps": 5, "principals": {"anna": {"max_steps": 6}}}, r"principals\.anna\.max_steps"),
        ({"principals": {"anna": {"principals": {}}}}, r"principals\.anna\.principals"),
        ({"principals": {"": {}}}, "principals"),
        ("{", "policy.json"),
        ('{"max_steps": 1, "max_steps": 2}', "max_steps"),
    ],
)
def test_a_file_that_cannot_be_is_named_with_its_fault(policy_file: Any, content: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        resolve(policy_file(content))
    assert caught.value.path == "MANDOR_POLICY_FILE"
    assert caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve(Settings(policy_file=tmp_path / "nowhere.json"))


def test_a_request_narrows() -> None:
    policy = resolve(Settings(), PolicyRequest(max_steps=5, limits=SomeLimits(attempts=1)), deadline_s=60.0)
    assert (policy.max_steps, policy.deadline_s) == (5, 60.0)
    assert policy.limits_for("any", SomeLimits(attempts=7)).attempts == 1


@pytest.mark.parametrize(
    ("request_", "deadline_s", "path"),
    [
        (PolicyRequest(max_steps=1001), None, "policy.max_steps"),
        (PolicyRequest(limits=SomeLimits(attempts=4)), None, "policy.limits.attempts"),
        (None, 3601.0, "deadline_s"),
        (PolicyRequest(deadline_s=10.0), 11.0, "deadline_s"),
    ],
)
def test_a_request_that_would_widen_is_refused(
    request_: PolicyRequest | None, deadline_s: float | None, path: str
) -> None:
    with pytest.raises(SubmissionRefused) as caught:
        resolve(Settings(), request_, deadline_s)
    assert caught.value.path == path
    assert caught.value.hint


def test_what_the_file_says_of_a_principal_narrows_that_ones_runs_only(policy_file: Any) -> None:
    settings = policy_file(
        {
            "max_steps": 100,
            "principals": {"celery": {"max_steps": 7, "approvals": ["pay"]}, "anna": {"limits": {"attempts": 1}}},
        }
    )
    assert (resolve(settings).max_steps, resolve(settings).approvals) == (7, frozenset({"pay"}))
    anna = resolve(settings, principal="anna")
    assert (anna.max_steps, anna.approvals, anna.limits_for("any").attempts) == (100, frozenset(), 1)
    assert resolve(settings, principal="bob") == installation_policy(settings)
    with pytest.raises(SubmissionRefused, match="asks for 8, allowed is 7"):
        resolve(settings, PolicyRequest(max_steps=8))
    assert resolve(settings, PolicyRequest(max_steps=8), principal="anna").max_steps == 8


def test_the_page_s_example_can_be_used(policy_file: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
    policy = resolve(policy_file(page.split("```json")[1].split("```")[0]))
    assert (policy.limits_for("payments.charge").attempts, policy.quota_for("payments.charge").steps) == (5, 2)
    assert policy.require_compensation


def test_the_layers_that_had_a_say_are_told(policy_file: Any) -> None:
    settings = policy_file({"max_steps": 100, "principals": {"celery": {"max_steps": 7}}})
    assert heard(stages(settings)) == ("settings", "file", "principal")
    assert heard(stages(settings, PolicyRequest(), 60.0, "anna")) == ("settings", "file", "request")
    assert heard(stages(Settings())) == ("settings",)


COUNTS = (
    *("plan_bytes", "result_bytes", "inputs_bytes", "file_bytes", "workspace_bytes", "workspace_files"),
    *("record_bytes", "record_keys", "record_depth"),
)


@pytest.mark.parametrize("name", COUNTS)
def test_a_setting_can_hold_no_more_than_a_policy(name: str) -> None:
    most: dict[str, Any] = {name: 2**31}
    assert getattr(resolve(Settings(**most)), name) == 2**31
    more: dict[str, Any] = {name: 2**31 + 1}
    with pytest.raises(ValidationError, match=name):
        Settings(**more)


@pytest.mark.parametrize(
    ("said", "names"), [("", set()), (".git", {".git"}), (".git,.ssh, a b", {".git", ".ssh", " a b"})]
)
def test_protected_names_are_the_operators_and_only_grow_from_there(said: str, names: set[str]) -> None:
    settings = Settings(protected_names=said)
    assert resolve(settings).protected_names == names
    asked = PolicyRequest(protected_names=frozenset({"x"}))
    assert resolve(settings, asked).protected_names == names | {"x"}
    assert resolve(settings, PolicyRequest(protected_names=frozenset())).protected_names == names


@pytest.mark.parametrize("said", ["a/b", ",", "a,", "a,,b", "x" * 256, "a\0"])
def test_what_is_no_name_of_a_file_protects_nothing_and_is_refused(said: str) -> None:
    with pytest.raises(ValidationError, match="protected_names"):
        Settings(protected_names=said)
