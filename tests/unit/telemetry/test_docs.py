"""The pages name what the code has."""

from collections.abc import Iterator

import click

from orchestrator.telemetry import aftermath, decided, events, logs, planned, recovered, signals
from tests.support.environment import ROOT
from workers.cli import mandor

LOGS = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(group: click.Group, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


def test_every_event_is_explained() -> None:
    modules = (events, decided, aftermath, planned, recovered, signals)
    kinds = [kind for module in modules for kind in vars(module).values()]
    facts = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, events.Occurrence)]
    names = {kind.event for kind in facts if kind is not events.Occurrence}
    assert {name for name in names if f"`{name}`" not in LOGS} == set()


def test_the_example_line_has_every_identity_field() -> None:
    assert {name for name in logs.IDENTITY if f'"{name}"' not in LOGS} == set()


def test_every_command_is_listed() -> None:
    assert {name for name in commands(mandor, "mandor") if name not in CLI} == set()
