"""`mandor actions …`: what a plan may name."""

import json
from typing import Any

import click

from orchestrator.admission import ActionSpec, Catalogue
from orchestrator.cli import output
from orchestrator.cli.command import Group
from orchestrator.cli.services import services
from orchestrator.errors import NotFound
from workers import registry


@click.group("actions", cls=Group)
def group() -> None:
    """See the registered actions and planners."""


@group.command("list")
def list_actions() -> None:
    """List the actions a plan may name, and the planners a submission may name.

    \b
    Examples:
      mandor actions list
      MANDOR_ACTIONS=myshop.actions mandor actions list
    """
    catalogue = _catalogue()
    specs = [catalogue.actions[name] for name in sorted(catalogue.actions)]
    planners = sorted(catalogue.planners)
    if output.as_json():
        output.print_json({"actions": [_entry(spec) for spec in specs], "planners": planners})
        return
    output.print_table(["action", "effect", "what it does"], [[spec.name, spec.effect, spec.summary] for spec in specs])
    if planners:
        click.echo()
        output.print_table(["planner"], [[name] for name in planners])


@group.command("schema")
@click.argument("name", metavar="[ACTION]", required=False)
def schema(name: str | None) -> None:
    """Print the JSON schema of a plan, or of one action's params. It is what a model is shown.

    \b
    Examples:
      mandor actions schema
      mandor actions schema create_file
    """
    catalogue = _catalogue()
    if name is None:
        _print(catalogue.json_schema())
        return
    if name not in catalogue.actions:
        raise NotFound(f"no action {name}", path="ACTION", hint="`mandor actions list` shows what there is")
    _print(catalogue.actions[name].params_model.model_json_schema())


def _catalogue() -> Catalogue:
    registry.load_actions(services().settings)
    return registry.catalogue()


def _entry(spec: ActionSpec) -> dict[str, Any]:
    limits = {name: getattr(spec, name) for name in ("attempts", "timeout_s", "lease_s", "backoff_s", "backoff_max_s")}
    return {
        "name": spec.name,
        "effect": spec.effect,
        "summary": spec.summary,
        **limits,
        "queue": spec.queue,
        "referable": sorted(spec.referable),
        "origin": spec.origin,
    }


def _print(value: dict[str, Any]) -> None:
    """The answer is JSON with and without --json; laid out, because it is for reading too."""
    click.echo(json.dumps(value, indent=2))
