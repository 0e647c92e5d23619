"""Policies, whatever their layers say: each narrows, and nobody ever gets more than the layers before allowed."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.narrowing import (
    FIELDS,
    LIMITS,
    QUOTAS,
    PolicyWidened,
    all_of,
    common,
    either,
    first,
    least,
    most,
    stronger,
)
from schemas.policy import (
    NO_LIMITS,
    Policy,
    PolicyRequest,
    Rung,
    SomeLimits,
    meet,
    policy_hash,
    policy_text,
)

NAMES = ("pay", "ship", "look")
numbers = st.integers(1, 5).map(float)
sets = st.frozensets(st.sampled_from(NAMES))
words = st.none() | st.sampled_from(["stop", "compensate"])
VALUES: dict[Callable[..., Any], st.SearchStrategy[Any]] = {
    least: numbers,
    most: numbers,
    common: st.none() | sets,
    all_of: sets,
    either: st.booleans(),
    first: words,
    stronger: st.sampled_from(Rung),
}
MEETS = st.sampled_from(list(VALUES))
three = MEETS.flatmap(lambda one: st.tuples(st.just(one), *[VALUES[one]] * 3))


def is_no_wider(meet_: Callable[..., Any], met: Any, than: Any) -> bool:
    """Whether what was met leaves no room that `than` did not leave."""
    if meet_ in (least, most):
        return bool(met <= than if meet_ is least else met >= than)
    if meet_ is common:
        return than is None or (met is not None and met <= than)
    if meet_ is all_of:
        return bool(met >= than)
    if meet_ is stronger:
        return bool(met.is_at_least(than))
    return met is than or (met == than) or (not than)


@given(three)
def test_a_meet_is_never_wider_and_has_the_laws_it_is_said_to_have(
    case: tuple[Callable[..., Any], Any, Any, Any],
) -> None:
    one, a, b, c = case
    assert is_no_wider(one, one(a, b), a)
    assert one(a, a) == a
    assert one(one(a, b), c) == one(a, one(b, c))
    assert one(one(a, b), b) == one(a, b)
    if one is not first:
        assert is_no_wider(one, one(a, b), b)
        assert one(a, b) == one(b, a)


def test_every_field_that_a_layer_may_name_has_its_meet() -> None:
    named = set(PolicyRequest.model_fields)
    assert named == {*FIELDS, "limits", "per_action", "quotas"}
    assert set(SomeLimits.model_fields) == set(LIMITS)
    assert {*FIELDS.values(), *LIMITS.values(), *QUOTAS.values()} == set(VALUES)


# ---- whole policies: small numbers, so that layers often meet at their limits

limits = st.fixed_dictionaries(
    {},
    optional={
        "attempts": st.integers(1, 5),
        "backoff_s": st.sampled_from([0.5, 1.0, 2.0, 5.0]),
        "backoff_max_s": st.sampled_from([30.0, 60.0, 90.0]),
        "timeout_s": st.sampled_from([10.0, 60.0, 600.0]),
        "lease_s": st.sampled_from([5.0, 15.0, 30.0]),
    },
)
quotas = st.fixed_dictionaries({}, optional={"steps": st.integers(1, 4), "result_bytes": st.integers(1, 4)})
requests = st.fixed_dictionaries(
    {},
    optional={
        "actions": sets.map(sorted),
        "effects": st.frozensets(st.sampled_from(["pure", "once"])).map(sorted),
        "max_steps": st.integers(1, 4),
        "deadline_s": st.integers(1, 4),
        "result_bytes": st.integers(1, 4),
        "on_failure": st.sampled_from(["stop", "compensate"]),
        "on_doubt": st.sampled_from(["end", "wait"]),
        "require_compensation": st.booleans(),
        "approvals": sets.map(sorted),
        "protected_names": sets.map(sorted),
        "workspace_files": st.integers(1, 4),
        "limits": limits,
        "per_action": st.dictionaries(st.sampled_from(NAMES), limits),
        "quotas": st.dictionaries(st.sampled_from(NAMES), quotas),
    },
)
installed = st.fixed_dictionaries({}, optional={"per_action": st.dictionaries(st.sampled_from(NAMES), limits)})


def request_of(fields: dict[str, Any]) -> PolicyRequest:
    return PolicyRequest.model_validate_json(json.dumps(fields))


def heard(base: Policy, *layers: dict[str, Any]) -> Policy | None:
    """The policy after these layers; None where one of them asked for too much."""
    try:
        for fields in layers:
            base = meet(base, request_of(fields), "layer")
    except PolicyWidened:
        return None
    return base


def holds(policy: Policy, declared: SomeLimits) -> dict[str, tuple[Callable[..., Any], Any]]:
    """All that binds a run, with the direction of each."""
    found = {name: (how, getattr(policy, name)) for name, how in FIELDS.items()}
    for action in NAMES:
        bounds, quota = policy.limits_for(action, declared), policy.quota_for(action)
        found |= {f"{action}.{name}": (how, getattr(bounds, name)) for name, how in LIMITS.items()}
        found |= {f"{action}.quota.{name}": (how, getattr(quota, name)) for name, how in QUOTAS.items()}
        found[f"{action}.result"] = (least, policy.result_bytes_for(action))
    return found


def wider(policy: Policy, than: Policy, declared: SomeLimits) -> list[str]:
    """What the one leaves more room for than the other."""
    before = holds(than, declared)
    return [
        name for name, (how, value) in holds(policy, declared).items() if not is_no_wider(how, value, before[name][1])
    ]


@given(installed, st.lists(requests, max_size=3), limits)
def test_no_layer_ever_widens_whatever_an_action_declares(
    operator: dict[str, Any], layers: list[dict[str, Any]], declared: dict[str, Any]
) -> None:
    policy, said = Policy.model_validate_json(json.dumps(operator)), SomeLimits(**declared)
    for fields in layers:
        later = heard(policy, fields)
        if later is None:
            return
        assert wider(later, policy, said) == []
        assert heard(later, fields) == later
        policy = later


@given(installed, requests, requests)
def test_two_layers_that_are_both_heard_may_come_in_either_order(
    operator: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    base = Policy.model_validate_json(json.dumps(operator))
    there, back = heard(base, one, other), heard(base, other, one)
    if there is not None and back is not None:
        assert holds(there, NO_LIMITS) == holds(back, NO_LIMITS)


@given(installed, requests, limits)
def test_what_a_layer_asked_for_and_got_is_what_holds(
    operator: dict[str, Any], fields: dict[str, Any], declared: dict[str, Any]
) -> None:
    """Nothing that is asked for is cut behind the asker's back: it holds, or is refused."""
    policy = heard(Policy.model_validate_json(json.dumps(operator)), fields)
    if policy is None:
        return
    for action, asked in request_of(fields).per_action.items():
        bounds = policy.limits_for(action)
        assert {name: getattr(bounds, name) for name, _ in asked.named()} == dict(asked.named())
    for action, quota in request_of(fields).quotas.items():
        bound = policy.quota_for(action)
        assert {name: getattr(bound, name) for name, _ in quota.named()} == dict(quota.named())


@given(installed, requests)
def test_a_policy_is_read_back_as_itself(operator: dict[str, Any], fields: dict[str, Any]) -> None:
    policy = heard(Policy.model_validate_json(json.dumps(operator)), fields)
    if policy is not None:
        again = Policy.model_validate_json(policy_text(policy))
        assert (again, policy_hash(again)) == (policy, policy_hash(policy))


@pytest.mark.parametrize("earlier", [{"limits": {"attempts": 1}}, {"per_action": {"pay": {"attempts": 1}}}])
def test_what_a_layer_said_of_all_binds_what_a_later_one_asks_for_one(earlier: dict[str, Any]) -> None:
    with pytest.raises(PolicyWidened, match=r"^per_action\.pay\.attempts: the request asks for 2, allowed is 1$"):
        meet(
            meet(Policy(), request_of(earlier), "file"), request_of({"per_action": {"pay": {"attempts": 2}}}), "request"
        )
