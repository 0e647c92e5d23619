"""`mandor config`, with the part that needs the registered actions: `mandor config policy`."""

from typing import Any

import click

from orchestrator import policies
from orchestrator.cli import inputs, output
from orchestrator.cli.config import group
from orchestrator.cli.policy import phrase, print_terms
from orchestrator.cli.services import services
from orchestrator.provenance import ActionTerms, Term, Unknown, action_terms, run_terms, unknown_actions
from orchestrator.settings import Settings
from schemas.policy import policy_hash
from workers import loading
from workers.registry import registry

__all__ = ["group"]


@group.command("policy")
@click.option("--policy", "policy_file", metavar="FILE|-", help="What a submission asks to be narrowed, as for a run.")
@click.option("--principal", metavar="NAME", default=policies.FROM_BROKER, show_default=True, help="Who submits it.")
def policy(policy_file: str | None, principal: str) -> None:
    """Show what a run may do, and where each value comes from: default, environment, action, file, principal, request.

    It is the policy of a run that is submitted now. What holds for a run that was accepted, `mandor run show` tells.
    Names in it that no action registered here has are reported. Exit 1 where a submission with it would be refused.

    \b
    Examples:
      mandor config policy
      mandor config policy --policy narrower.json
      mandor config policy --json | jq '.terms[] | select(.source != "default")'
    """
    tools = services()
    loading.load_actions(tools.settings)
    resolved = policies.stages(tools.settings, inputs.read_policy(policy_file), principal=principal)
    terms = run_terms(tools.settings, resolved)
    actions = _actions(tools.settings, resolved)
    unknown = list(unknown_actions(resolved[-1].policy, registry.catalogue().actions))
    if output.as_json():
        hashed = policy_hash(resolved[-1].policy)
        output.print_json(_as_json(principal, hashed, terms, actions, unknown))
        return
    print_terms(terms)
    click.echo()
    _print_actions(actions)
    _note_unknown(unknown)


def _actions(settings: Settings, resolved: tuple[policies.Stage, ...]) -> list[ActionTerms]:
    known = registry.catalogue().actions
    return [action_terms(settings, resolved, known[name]) for name in sorted(known)]


# ---- how it is told


def _as_json(
    principal: str, hashed: str, terms: tuple[Term, ...], actions: list[ActionTerms], unknown: list[Unknown]
) -> dict[str, Any]:
    return {
        "policy_hash": hashed,
        "principal": principal,
        "terms": [_term(term) for term in terms],
        "actions": list(map(_action, actions)),
        "unknown": [{"field": one.field, "name": one.name, "hint": _hint(one)} for one in unknown],
    }


def _action(one: ActionTerms) -> dict[str, Any]:
    terms = [_term(term) for term in one.terms]
    return {"action": one.action, "refused": one.refused, "approval": one.approval, "terms": terms}


def _term(term: Term) -> dict[str, Any]:
    return {"field": term.field, "value": term.value, "source": term.source, "at": term.at}


def _hint(one: Unknown) -> str | None:
    return f"did you mean {one.meant}?" if one.meant else None


def _print_actions(actions: list[ActionTerms]) -> None:
    headers = ["action", *(term.field for term in actions[0].terms), "may be planned"]
    output.print_table(headers, [[one.action, *map(_cell, one.terms), _may(one)] for one in actions])


def _cell(term: Term) -> str:
    """Where it differs from what is built in, with its source."""
    told = phrase(term.value)
    return told if term.source == "default" else f"{told} ({term.source})"


def _may(one: ActionTerms) -> str:
    if one.refused:
        return f"no: {one.refused}"
    return "yes, a person approves each" if one.approval else "yes"


def _note_unknown(unknown: list[Unknown]) -> None:
    for one in unknown:
        mend = f"; {_hint(one)}" if one.meant else ""
        output.note(f"{one.field} names {one.name}, and no action registered here is called so{mend}")
