"""A policy, as people are told of it: by the names that a policy file has for its fields."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from orchestrator.cli import output
from schemas.canonical import canonical_text
from schemas.policy import Policy
from schemas.run import LimitsView, RunView

if TYPE_CHECKING:
    from orchestrator.provenance import Term


def phrase(value: Any) -> str:
    """One value. Null stands for no restriction."""
    if value is None:
        return "all"
    if isinstance(value, list | frozenset):
        return ", ".join(sorted(value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def print_terms(terms: "Iterable[Term]") -> None:
    """Each field with its value and where that comes from."""
    rows = [[term.field, phrase(term.value), term.source, term.at] for term in terms]
    output.print_table(["field", "value", "source", "where"], rows)


def print_policy(run: RunView) -> None:
    """The policy that a run was accepted with, and what it means for the actions of its plan."""
    click.echo()
    output.print_fields({"policy": run.policy_hash, **fields_of(run.policy)})
    if run.limits:
        click.echo()
        rows = [[action, *(phrase(value) for _, value in limits)] for action, limits in run.limits.items()]
        output.print_table(["limits of", *LimitsView.model_fields], rows)


def fields_of(document: Mapping[str, Any]) -> dict[str, str]:
    """What holds for the run. A policy that another release wrote, and this one cannot read, is told as it is."""
    try:
        policy = Policy.model_validate_json(canonical_text(dict(document)))
    except ValidationError:
        return {name: canonical_text(value) for name, value in document.items()}
    quotas = {
        f"quotas.{action}.{name}": str(value) for action, one in policy.quotas.items() for name, value in one.named()
    }
    return {**{name: phrase(value) for name, value in policy.effective().items()}, **quotas}
