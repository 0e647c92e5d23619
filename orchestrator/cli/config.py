"""`mandor config`: which settings are in force, where each comes from, and what is wrong with them."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from orchestrator import policies, startup
from orchestrator import settings as configuration
from orchestrator.cli import output
from orchestrator.cli.command import NO, USAGE, Group
from orchestrator.cli.reach import check_url
from orchestrator.cli.services import similar, warn_of_unknown_names
from orchestrator.errors import ConfigError
from orchestrator.home import SERVER_CONFIG, server_folder
from orchestrator.settings import Settings, env_name
from orchestrator.telemetry.text import HIDDEN, is_secret_name, without_secrets
from schemas.policy import ActionLimits, Policy

# fields whose empty value means another field's
EFFECTIVE: Final = {"broker_url": "broker", "result_url": "results", "ledger_url": "ledger"}
URLS: Final = ("redis_url", "broker_url", "result_url")


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

    It comes from the environment, from a file (the policy file, where that narrows a limit; the home folder's own
    server), or is the default.

    \b
    Examples:
      mandor config show
      mandor config show --json | jq '.settings[] | select(.source == "environment")'
    """
    values, problems = _read()
    rows = [row.as_json() for row in _rows(values)]
    if output.as_json() and problems:
        output.print_json({"error": problems[0].as_json()})
    elif output.as_json():
        output.print_json(
            {"settings": rows, "unknown": [_unknown_json(name) for name in configuration.unknown_names()]}
        )
    else:
        _print_rows(rows)
        warn_of_unknown_names()
        _print_problems(problems)
    if problems:
        click.get_current_context().exit(USAGE)


@group.command("check")
def check() -> None:
    """Look for what is wrong with the settings, without asking any service. Exit 1 if something is.

    Names that no setting has, values that are none, settings that do not fit each other, a policy file that cannot be
    used, URLs that lead nowhere, variables of Celery that would be obeyed instead. Shows what is not the default, too.

    \b
    Examples:
      mandor config check
      mandor config check --json | jq -r '.problems[] | "\\(.path): \\(.message)"'
    """
    values, problems = _read()
    found = [*_unknown(), *problems, *(_findings(values) if values else ())]
    rows = [row.as_json() for row in _rows(values) if row.source != "default"]
    if output.as_json():
        output.print_json({"problems": [problem.as_json() for problem in found], "settings": rows})
    else:
        _print_rows(rows)
        _print_problems(found)
        _print_verdict(len(found), len(rows))
    if found:
        click.get_current_context().exit(NO)


# ---- what is wrong


def _read() -> tuple[Settings | None, list[ConfigError]]:
    found = configuration.read_or_problems()
    return (found, []) if isinstance(found, Settings) else (None, found)


def _unknown() -> Iterator[ConfigError]:
    for name in configuration.unknown_names():
        close = similar(name)
        hint = f"did you mean {close}?" if close else "unset it; `mandor config show` lists every name"
        yield ConfigError("no setting has this name", path=name, hint=hint)


def _unknown_json(name: str) -> dict[str, str | None]:
    close = similar(name)
    return {"name": name, "hint": f"did you mean {close}?" if close else None}


def _findings(given: Settings) -> Iterator[ConfigError]:
    """What is wrong with settings that can be read, each where it would stop a process only later."""
    from orchestrator import flower
    from orchestrator.ledger import open_ledger

    checks: tuple[Callable[[], Any], ...] = (
        lambda: policies.installation_policy(given),
        lambda: open_ledger(given.ledger),
        lambda: open_ledger(given.ledger, effects_urls=given.effects_urls.split()),
        lambda: startup.check_services(given),
        lambda: startup.check_overrides(given, os.environ),
        *(partial(check_url, getattr(given, field), env_name(field)) for field in URLS if getattr(given, field)),
        lambda: flower.check(given),
    )
    told: set[str | None] = set()
    for one in checks:
        problem = _problem(one)
        if problem and problem.path not in told:
            told.add(problem.path)
            yield problem


def _problem(check_one: Callable[[], Any]) -> ConfigError | None:
    try:
        check_one()
    except ConfigError as problem:
        return problem
    return None


# ---- what is in force


@dataclass(frozen=True, slots=True)
class Row:
    """A setting. source: environment, file or default; file: which one."""

    name: str
    value: Any
    source: str
    file: Path | None
    description: str | None

    def as_json(self) -> dict[str, Any]:
        """As it may be shown."""
        return {
            "name": self.name,
            "value": _shown(self.name, self.value),
            "source": self.source,
            "file": str(self.file) if self.file else None,
            "description": self.description,
        }


def _rows(values: Settings | None) -> Iterator[Row]:
    policy = _policy(values)
    for field, info in Settings.model_fields.items():
        name = env_name(field)
        value, source, file = _origin(field, values, policy)
        yield Row(name, value, source, file, info.description)


def _origin(field: str, values: Settings | None, policy: Policy | None) -> tuple[Any, str, Path | None]:
    given = next((raw for key, raw in os.environ.items() if key.upper() == env_name(field)), None)
    if values is None:
        return (given, "environment", None) if given is not None else (_default(field), "default", None)
    value = getattr(values, EFFECTIVE.get(field, field))
    narrowed = None if policy is None else _of_policy(policy, field)
    if narrowed not in (None, value):
        return narrowed, "file", values.policy_file
    if given is not None:
        return value, "environment", None
    if field in values.model_fields_set:
        return value, "file", server_folder(values.home) / SERVER_CONFIG
    return value, "default", None


def _default(field: str) -> Any:
    return Settings.model_fields[field].default


def _policy(values: Settings | None) -> Policy | None:
    """The installation's policy, where a file narrows it. One that cannot be read is what `check` is for."""
    if values is None or values.policy_file is None:
        return None
    try:
        return policies.installation_policy(values)
    except ConfigError:
        return None


def _of_policy(policy: Policy, field: str) -> Any:
    return getattr(policy.ceiling if field in ActionLimits.model_fields else policy, field, None)


# ---- how it is shown


def _shown(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return HIDDEN if is_secret_name(name) and value else without_secrets(str(value))


def _print_rows(rows: list[dict[str, Any]]) -> None:
    cells = [[row["name"], _text(row["value"]), row["file"] or row["source"], row["description"]] for row in rows]
    if rows:
        output.print_table(["setting", "value", "source", "what it is"], cells)


def _print_problems(problems: list[ConfigError]) -> None:
    for problem in problems:
        mend = f"\n  {problem.hint}" if problem.hint else ""
        where = f"{problem.path}: " if problem.path and not problem.message.startswith(problem.path) else ""
        for line in f"error: {where}{problem.message}{mend}".splitlines():
            output.note(line)


def _print_verdict(problems: int, given: int) -> None:
    if not problems:
        rest = f"{len(Settings.model_fields) - given} settings have their default"
        click.echo(f"nothing is wrong with the settings; {rest}")


def _text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)
