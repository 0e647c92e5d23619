"""`mandor config`: which settings are in force, and where each comes from."""

import os
from typing import Any

import click

from orchestrator import settings as configuration
from orchestrator.cli import output
from orchestrator.cli.command import USAGE, Group
from orchestrator.cli.services import guess
from orchestrator.errors import ConfigError
from orchestrator.settings import Settings, env_name
from orchestrator.telemetry.text import HIDDEN, is_secret_name, without_secrets

# fields whose empty value means another field's
EFFECTIVE = {"broker_url": "broker", "result_url": "results", "ledger_url": "ledger"}


@click.group("config", cls=Group, invoke_without_command=True)
@click.pass_context
def group(context: click.Context) -> None:
    """Show and check the settings in force.

    \b
    Examples:
      mandor config
      mandor config check
    """
    if context.invoked_subcommand is None:
        context.invoke(show)


@group.command("show")
def show() -> None:
    """Show every setting, its value, and where the value comes from. Secrets are hidden.

    \b
    Examples:
      mandor config show
      mandor config show --json | jq '.settings[] | select(.source == "environment")'
    """
    values, problem = _read()
    rows = [_row(field, values) for field in Settings.model_fields]
    unknown = [{"name": name, "hint": guess(name).removeprefix("; ") or None} for name in configuration.unknown_names()]
    if output.as_json():
        _print_json(rows, unknown, problem)
    else:
        _print_for_people(rows, unknown, problem)
    if problem:
        click.get_current_context().exit(USAGE)


def _read() -> tuple[Settings | None, ConfigError | None]:
    try:
        return configuration.read_settings(), None
    except ConfigError as wrong:
        return None, wrong


def _row(field: str, values: Settings | None) -> dict[str, Any]:
    name, info = env_name(field), Settings.model_fields[field]
    given = next((raw for key, raw in os.environ.items() if key.upper() == name), None)
    plain = info.default if given is None else given
    value = plain if values is None else getattr(values, EFFECTIVE.get(field, field))
    return {
        "name": name,
        "value": _shown(name, value),
        "source": _source(field, given, values),
        "description": info.description,
    }


def _source(field: str, given: str | None, values: Settings | None) -> str:
    """environment, home (the embedded server's address) or default."""
    if given is not None:
        return "environment"
    return "home" if values is not None and field in values.model_fields_set else "default"


def _shown(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return HIDDEN if is_secret_name(name) and value else without_secrets(str(value))


def _print_json(rows: list[dict[str, Any]], unknown: list[dict[str, Any]], problem: ConfigError | None) -> None:
    if problem:
        output.print_json({"error": problem.as_json()})
    else:
        output.print_json({"settings": rows, "unknown": unknown})


def _print_for_people(rows: list[dict[str, Any]], unknown: list[dict[str, Any]], problem: ConfigError | None) -> None:
    cells = [[row["name"], _text(row["value"]), row["source"], row["description"]] for row in rows]
    output.print_table(["setting", "value", "source", "what it is"], cells)
    for entry in unknown:
        output.note(f"warning: no setting is called {entry['name']}" + (f"; {entry['hint']}" if entry["hint"] else ""))
    if problem:
        output.note(f"error: {problem.path + ': ' if problem.path else ''}{problem.message}")


def _text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)
