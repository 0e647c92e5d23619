"""Where each value of a policy comes from: the last layer that changed it. Pure.

    default      the built-in policy                  file, principal    MANDOR_POLICY_FILE
    environment  a setting                            request            the submission
    action       what an action declares of itself

A layer that repeats what held before it is not told as its source.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from orchestrator.admission.catalogue import ActionSpec, policy_refusal
from orchestrator.policies import Stage
from orchestrator.settings import Settings, env_name
from schemas.policy import NO_LIMITS, Policy, SomeLimits

Source = Literal["default", "environment", "action", "file", "principal", "request"]
Views = Sequence[tuple[Source, Mapping[str, Any]]]
_SOURCES: Final[Mapping[str, Source]] = {
    "settings": "environment",
    "file": "file",
    "principal": "principal",
    "request": "request",
}


@dataclass(frozen=True, slots=True)
class Term:
    """A field of a policy. value: what holds, as JSON; at: which setting, file or place said so, where one did."""

    field: str
    value: Any
    source: Source
    at: str | None


@dataclass(frozen=True, slots=True)
class ActionTerms:
    """What holds for one action. refused: why no plan may name it; approval: whether its steps wait for a person."""

    action: str
    refused: str | None
    approval: bool
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name in a policy that no registered action has. field: where it stands; meant: what it may stand for."""

    field: str
    name: str
    meant: str | None


def run_terms(settings: Settings, resolved: Sequence[Stage]) -> tuple[Term, ...]:
    """What holds for a run, and for every action that nobody says more of."""
    views: Views = [("default", Policy().effective()), *((_SOURCES[s.layer], s.policy.effective()) for s in resolved)]
    return tuple(_terms(settings, views, None))


def action_terms(settings: Settings, resolved: Sequence[Stage], spec: ActionSpec) -> ActionTerms:
    """What holds for an action's steps."""
    first, *later = resolved
    views: Views = [
        ("default", _of_action(Policy(), spec.name)),
        ("environment", _of_action(first.policy, spec.name)),
        ("action", _of_action(first.policy, spec.name, spec.limits)),
        *((_SOURCES[stage.layer], _of_action(stage.policy, spec.name, spec.limits)) for stage in later),
    ]
    policy = resolved[-1].policy
    terms = tuple(_terms(settings, views, spec.origin))
    return ActionTerms(spec.name, policy_refusal(spec, policy), spec.name in policy.approvals, terms)


def unknown_actions(policy: Policy, known: Iterable[str]) -> Iterator[Unknown]:
    """A name that is misspelt limits nothing, and nobody would see it."""
    names = sorted(known)
    for field, said in _named_actions(policy).items():
        for name in sorted(said - set(names)):
            close = difflib.get_close_matches(name, names, n=1)
            yield Unknown(field, name, close[0] if close else None)


def _named_actions(policy: Policy) -> dict[str, frozenset[str]]:
    return {
        "actions": policy.actions or frozenset(),
        "approvals": policy.approvals,
        "per_action": frozenset((*policy.per_action, *policy.ceiling_per_action)),
        "quotas": frozenset(policy.quotas),
    }


# ---- layers as flat tables, and what changed from one to the next


def _of_action(policy: Policy, action: str, declared: SomeLimits = NO_LIMITS) -> dict[str, Any]:
    return {**dict(policy.limits_for(action, declared).named()), **dict(policy.quota_for(action).named())}


def _terms(settings: Settings, views: Views, origin: str | None) -> Iterator[Term]:
    for field, value in views[-1][1].items():
        source = _source_of(settings, field, views)
        shown = sorted(value) if isinstance(value, frozenset) else value
        yield Term(field, shown, source, _place(settings, field, source, origin))


def _source_of(settings: Settings, field: str, views: Views) -> Source:
    changed = [source for (_, before), (source, view) in pairwise(views) if view[field] != before[field]]
    if changed:
        return changed[-1]
    return "environment" if _setting(field) in settings.model_fields_set else "default"


def _place(settings: Settings, field: str, source: Source, origin: str | None) -> str | None:
    if source == "environment":
        return env_name(_setting(field))
    if source in ("file", "principal"):
        return str(settings.policy_file)
    return origin if source == "action" else None


def _setting(field: str) -> str:
    """The settings' field behind a policy's; behind an action's quota of steps, that of the run's."""
    return "max_steps" if field == "steps" else field.removeprefix("limits.")
