"""`mandor actions …`: what a plan may name."""

import json
from collections.abc import Iterator
from typing import Any

import click

from orchestrator.admission import ActionSpec
from orchestrator.cli import output
from orchestrator.cli.command import NO, Group
from orchestrator.cli.services import services
from orchestrator.errors import MandorError
from orchestrator.settings import Settings
from workers import declarations, loading
from workers.loading import Source
from workers.registry import Planner, registry

ANY_CONTEXT: dict[str, Any] = {"type": "object"}


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
    loading.load_actions(services().settings)
    specs = _specs()
    if output.as_json():
        planners = [_planner_entry(planner) for planner in registry.planners()]
        output.print_json({"actions": [_entry(spec) for spec in specs], "planners": planners})
        return
    output.print_table(["action", "effect", "what it does"], [[spec.name, spec.effect, spec.summary] for spec in specs])
    click.echo()
    rows = [[planner.name, _wants(planner), planner.summary] for planner in registry.planners()]
    output.print_table(["planner", "context", "what it does"], rows)


@group.command("check")
def check() -> None:
    """Import everything that declares actions, and report every declaration that could not work, with its mend.

    Workers refuse to start with any of these faults; this finds them all at once, and needs no service.

    \b
    Examples:
      mandor actions check
      MANDOR_ACTIONS=myshop.actions,myshop.planners mandor actions check --json
    """
    sources, faults = _import_all(services().settings)
    if output.as_json():
        modules = [_source_entry(source) for source in sources]
        output.print_json({"modules": modules, "errors": [fault.as_json() for fault in faults]})
    else:
        _print_check(sources, faults)
    if faults:
        click.get_current_context().exit(NO)


@group.command("schema")
@click.argument("name", metavar="[ACTION]", required=False)
@click.option("--planner", metavar="NAME", help="What this planner wants as the context of a submission, instead.")
def schema(name: str | None, planner: str | None) -> None:
    """Print the JSON schema of a plan, or of one action's params. It is what a model is shown.

    \b
    Examples:
      mandor actions schema
      mandor actions schema create_file
      mandor actions schema --planner orders.fulfil
    """
    if name and planner:
        raise click.UsageError("give an action or --planner, not both")
    loading.load_actions(services().settings)
    click.echo(json.dumps(_schema(name, planner), indent=2))  # JSON also without --json, laid out: it is read by people


def _schema(name: str | None, planner: str | None) -> dict[str, Any]:
    if planner:
        model = registry.find_planner(planner).input_model
        return model.model_json_schema() if model else ANY_CONTEXT
    if name:
        return registry.find_action(name).spec.params_model.model_json_schema()
    return registry.catalogue().json_schema()


# ---- what is printed about it


def _specs() -> list[ActionSpec]:
    actions = registry.catalogue().actions
    return [actions[name] for name in sorted(actions)]


def _entry(spec: ActionSpec) -> dict[str, Any]:
    limits = {name: getattr(spec, name) for name in ("attempts", "timeout_s", "lease_s", "backoff_s", "backoff_max_s")}
    return {
        "name": spec.name,
        "effect": spec.effect,
        "summary": spec.summary,
        **limits,
        "queue": spec.queue,
        "compensation": spec.has_compensation,
        "probe": spec.has_probe,
        "referable": sorted(spec.referable),
        "origin": spec.origin,
    }


def _planner_entry(planner: Planner) -> dict[str, Any]:
    return {
        "name": planner.name,
        "summary": planner.summary,
        "context": _wants(planner),
        "repairs": planner.repairs,
        "origin": planner.origin,
    }


def _wants(planner: Planner) -> str | None:
    return planner.input_model.__name__ if planner.input_model else None


# ---- the check


def _import_all(settings: Settings) -> tuple[list[Source], list[MandorError]]:
    sources = loading.sources(settings)
    faults: list[MandorError] = []
    with declarations.collecting() as bad:
        for source in sources:
            try:
                loading.load(source)
            except MandorError as fault:
                faults.append(fault)
    return sources, [*faults, *bad]


def _source_entry(source: Source) -> dict[str, Any]:
    return {
        "module": source.module,
        "named_by": source.named_by,
        "actions": sum(_is_of(source, origin) for origin in _homes(actions=True)),
        "planners": sum(_is_of(source, origin) for origin in _homes(actions=False)),
    }


def _homes(*, actions: bool) -> Iterator[str]:
    """The modules in which the registered functions are."""
    declared = registry.actions() if actions else registry.planners()
    return (one.function.__module__ for one in declared)


def _is_of(source: Source, module: str) -> bool:
    return module == source.module or module.startswith(f"{source.module}.")


def _print_check(sources: list[Source], faults: list[MandorError]) -> None:
    entries = [_source_entry(source) for source in sources]
    rows = [[one["module"], one["named_by"], one["actions"], one["planners"]] for one in entries]
    output.print_table(["module", "named by", "actions", "planners"], rows)
    for fault in faults:
        output.note(f"error: {f'{fault.path}: ' if fault.path else ''}{fault.message}")
        output.note(f"  {fault.hint}")
    for one in entries:
        if not one["actions"] and not one["planners"] and not faults:
            output.note(f"note: {one['module']} declares nothing itself; name the modules that have the decorators")
