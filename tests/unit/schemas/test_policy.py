"""Policies narrow, never widen, and are named by their hash."""

import json
import os
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.policies import installation_policy
from orchestrator.settings import Settings
from schemas.narrowing import PolicyWidened
from schemas.patterns import leads_to, matches
from schemas.policy import Policy, PolicyRequest, Rung, SomeLimits, meet, policy_hash, policy_text


def asking(**fields: Any) -> PolicyRequest:
    return PolicyRequest.model_validate_json(json.dumps(fields))


def narrowed(*requests: dict[str, Any], base: Policy | None = None) -> Policy:
    policy = base or Policy()
    for request in requests:
        policy = meet(policy, asking(**request), "request")
    return policy


def test_asking_for_nothing_changes_nothing() -> None:
    assert narrowed({}) == Policy()
    assert policy_hash(narrowed({})) == policy_hash(Policy())


@pytest.mark.parametrize(
    "name",
    [
        *("max_steps", "max_parallel", "deadline_s", "stop_grace_s", "wait_s"),
        *("result_bytes", "inputs_bytes", "plan_bytes", "file_bytes", "workspace_bytes", "workspace_files"),
        *("record_bytes", "record_keys", "record_depth"),
        *("command_time_s", "command_cpu_s", "command_memory_bytes"),
        *("command_processes", "command_output_bytes", "command_file_bytes"),
        *("workspace_keep_s", "artifact_bytes"),
    ],
)
def test_limits_go_down_only(name: str) -> None:
    allowed = getattr(Policy(), name)
    assert getattr(narrowed({name: allowed}), name) == allowed
    assert getattr(narrowed({name: allowed - 1}), name) == allowed - 1
    with pytest.raises(PolicyWidened, match=rf"^{name}: the request asks for [\d.]+, allowed is [\d.]+$") as caught:
        narrowed({name: allowed - 2}, {name: allowed - 1})
    assert (caught.value.field, caught.value.base, caught.value.asked) == (name, allowed - 2, allowed - 1)


def test_a_sandbox_gets_stronger_only() -> None:
    assert narrowed({"min_rung": "bubblewrap"}).min_rung is Rung.BUBBLEWRAP
    assert narrowed({"min_rung": "bubblewrap"}, {}).min_rung is Rung.BUBBLEWRAP
    alone = Policy(min_rung=Rung.RLIMITS)
    assert narrowed({"min_rung": "namespaces"}, base=alone).min_rung is Rung.NAMESPACES
    with pytest.raises(PolicyWidened, match=r"^min_rung: the request asks for rlimits, allowed is namespaces$"):
        narrowed({"min_rung": "rlimits"})


def test_each_layer_may_name_more_files_to_keep_and_none_makes_the_room_for_them_larger() -> None:
    assert narrowed({"artifacts": ["a/*"]}, {"artifacts": ["b/**"]}).artifacts == frozenset({"a/*", "b/**"})
    assert narrowed({"artifact_bytes": 0}, {"artifacts": ["**"]}).artifact_bytes == 0


@pytest.mark.parametrize("pattern", ["", "/a", "a//b", "a/", "../a", "a/./b", "a/**/b", "a**", "a\u202eb", "a" * 257])
def test_a_pattern_is_a_plain_path(pattern: str) -> None:
    with pytest.raises(ValidationError):
        asking(artifacts=[pattern])


@pytest.mark.parametrize(
    ("pattern", "meant", "not_meant"),
    [
        ("*.txt", ["a.txt", ".txt"], ["a/b.txt", "a.txt/b", "a.TXT"]),
        ("out/*", ["out/a"], ["out", "out/a/b", "outer/a"]),
        ("out/**", ["out/a", "out/a/b"], ["out", "in/out/a"]),
        ("**", ["a", "a/b"], []),
        ("*/[ab].?", ["x/a.c", "y/b.d"], ["a.c", "x/c.c", "x/a.cc"]),
    ],
)
def test_a_star_stands_for_a_part_of_one_name(pattern: str, meant: list[str], not_meant: list[str]) -> None:
    assert [path for path in (*meant, *not_meant) if matches(pattern, path.split("/"))] == meant
    for path in meant:
        names = path.split("/")
        assert all(leads_to(pattern, names[:depth]) for depth in range(len(names)))
    assert not leads_to("out/*", ["in"])
    assert not leads_to("out/*", ["out", "deeper"])


def test_sets_become_smaller_only() -> None:
    assert narrowed({"actions": ["b", "a"]}).actions == frozenset({"a", "b"})
    assert narrowed({"actions": ["b", "a"]}, {"actions": ["b"]}).actions == frozenset({"b"})
    assert narrowed({"actions": ["a"]}, {}).actions == frozenset({"a"})
    with pytest.raises(PolicyWidened, match=r'^actions: the request asks for \["a","c"\], allowed is \["a","b"\]$'):
        narrowed({"actions": ["a", "b"]}, {"actions": ["c", "a"]})
    with pytest.raises(PolicyWidened, match="effects"):
        narrowed({"effects": ["pure"]}, {"effects": ["pure", "once"]})


@pytest.mark.parametrize(
    ("limit", "narrower", "wider"),
    [
        ("attempts", 2, 4),
        ("timeout_s", 59.5, 60.5),
        ("lease_s", 10, 20),
        ("backoff_s", 2, 0.5),
        ("backoff_max_s", 90, 30),
    ],
)
def test_action_limits_have_their_directions(limit: str, narrower: float, wider: float) -> None:
    for asked, path in (
        ({"limits": {limit: wider}}, f"limits.{limit}"),
        ({"per_action": {"pay": {limit: wider}}}, f"per_action.pay.{limit}"),
    ):
        with pytest.raises(PolicyWidened) as caught:
            narrowed(asked)
        assert caught.value.field == path
    assert getattr(narrowed({"limits": {limit: narrower}}).limits_for("pay"), limit) == narrower
    one = narrowed({"per_action": {"pay": {limit: narrower}}})
    assert getattr(one.limits_for("pay"), limit) == narrower
    assert one.limits_for("other") == Policy().limits


def test_what_an_action_declares_is_its_own_until_somebody_narrows_it() -> None:
    declared = SomeLimits(attempts=5, timeout_s=600)
    assert Policy().limits_for("pay", declared).timeout_s == 600
    installed = Policy(per_action={"pay": SomeLimits(timeout_s=90)})
    assert installed.limits_for("pay", declared).timeout_s == 90
    assert installed.limits_for("pay", declared).attempts == 5
    capped = narrowed({"limits": {"attempts": 1}, "per_action": {"pay": {"timeout_s": 30}}}, base=installed)
    limits = capped.limits_for("pay", declared)
    assert (limits.attempts, limits.timeout_s) == (1, 30)


def test_a_second_layer_starts_from_the_first_ones_ceiling() -> None:
    with pytest.raises(PolicyWidened, match=r"per_action\.pay\.attempts: the request asks for 3, allowed is 2"):
        narrowed({"per_action": {"pay": {"attempts": 2}}}, {"per_action": {"pay": {"attempts": 3}}})


def test_a_longer_first_wait_lengthens_the_longest() -> None:
    assert narrowed({"limits": {"backoff_s": 90}}).limits_for("pay").backoff_max_s == 90


def test_the_stored_text_is_the_policy() -> None:
    policy = narrowed({"actions": ["b", "a"], "limits": {"attempts": 1}, "per_action": {"a": {"lease_s": 5}}})
    again = Policy.model_validate_json(policy_text(policy))
    assert again == policy
    assert policy_hash(again) == policy_hash(policy)


def test_the_hash_does_not_depend_on_how_it_was_asked() -> None:
    assert policy_hash(narrowed({"actions": ["a", "b"]})) == policy_hash(narrowed({"actions": ["b", "a", "b"]}))
    assert policy_hash(narrowed({"deadline_s": 60})) == policy_hash(narrowed({"deadline_s": 60.0}))
    assert policy_hash(narrowed({"deadline_s": 60})) != policy_hash(narrowed({"deadline_s": 61}))


@pytest.mark.parametrize(
    "fields",
    [
        {"timeout": 5},
        {"deadline_s": None, "x": 1},
        {"deadline_s": 0},
        {"deadline_s": "60"},
        {"max_steps": 10_001},
        {"max_steps": 1.0},
        {"actions": "pay"},
        {"actions": ["Pay"]},
        {"effects": ["all"]},
        {"limits": {"attempts": 0}},
        {"limits": {"timeout_s": 1e9}},
        {"per_action": {"A": {}}},
        {"per_action": {"a": {"retries": 1}}},
        {"on_failure": "undo"},
        {"require_compensation": "yes"},
        {"on_doubt": "guess"},
        {"approvals": "pay"},
        {"protected_names": ".git"},
        {"protected_names": ["a/b"]},
        {"record_depth": 0},
        {"quotas": {"A": {}}},
        {"quotas": {"a": {"steps": 0}}},
        {"quotas": {"a": {"attempts": 1}}},
    ],
)
def test_requests_of_another_shape_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        asking(**fields)


def test_the_first_layer_that_says_what_becomes_of_a_failing_run_is_heard() -> None:
    assert (Policy().on_failure, Policy().failing) == (None, "compensate")
    assert narrowed({"on_failure": "stop"}).failing == "stop"
    assert narrowed({"on_failure": "stop"}, {"on_failure": "stop"}, {}).failing == "stop"
    for first, second in (("stop", "compensate"), ("compensate", "stop")):
        with pytest.raises(PolicyWidened, match=f"^on_failure: the request asks for {second}, allowed is {first}$"):
            narrowed({"on_failure": first}, {"on_failure": second})


def test_a_compensation_that_was_required_stays_so() -> None:
    assert not narrowed({"require_compensation": False}).require_compensation
    assert narrowed({"require_compensation": True}, {}, {"require_compensation": True}).require_compensation
    with pytest.raises(PolicyWidened, match=r"^require_compensation: the request asks for false, allowed is true$"):
        narrowed({"require_compensation": True}, {"require_compensation": False})


def test_every_layer_may_ask_for_a_persons_approval() -> None:
    assert narrowed({"approvals": ["b"]}, {"approvals": ["a"]}, {}).approvals == frozenset({"a", "b"})
    assert narrowed({"approvals": ["a"]}, {"approvals": []}).approvals == frozenset({"a"})


def test_every_layer_may_protect_names() -> None:
    assert narrowed({"protected_names": ["b"]}, {"protected_names": ["a"]}, {}).protected_names == {
        "a",
        "b",
        *Policy().protected_names,
    }
    assert narrowed({"protected_names": []}).protected_names == Policy().protected_names


def test_the_first_layer_that_says_what_becomes_of_a_doubt_is_heard() -> None:
    assert (Policy().on_doubt, Policy().doubting) == (None, "end")
    assert narrowed({"on_doubt": "wait"}, {}).doubting == "wait"
    for first, second in (("wait", "end"), ("end", "wait")):
        with pytest.raises(PolicyWidened, match=f"^on_doubt: the request asks for {second}, allowed is {first}$"):
            narrowed({"on_doubt": first}, {"on_doubt": second})


def test_quotas_of_an_action_go_down_and_stay_within_those_of_the_run() -> None:
    policy = narrowed({"max_steps": 9}, {"quotas": {"pay": {"steps": 5}}}, {"quotas": {"pay": {"result_bytes": 10}}})
    assert (policy.quota_for("pay").steps, policy.result_bytes_for("pay")) == (5, 10)
    assert (policy.quota_for("ship").steps, policy.result_bytes_for("ship")) == (9, policy.result_bytes)
    assert narrowed({"max_steps": 3}, base=policy).quota_for("pay").steps == 3
    for asked, allowed in (({"quotas": {"pay": {"steps": 6}}}, 5), ({"quotas": {"ship": {"steps": 10}}}, 9)):
        with pytest.raises(
            PolicyWidened, match=rf"^quotas\.\w+\.steps: the request asks for \d+, allowed is {allowed}$"
        ):
            narrowed(asked, base=policy)


def test_policies_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Policy().max_steps = 5  # type: ignore[misc]


def test_the_defaults_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MANDOR_")]:
        monkeypatch.delenv(name)
    assert installation_policy(Settings()) == Policy()
