"""`mandor dlq …`: what was given up on."""

import json
from typing import Any

import click

from orchestrator.cli import output
from orchestrator.cli.command import Group
from orchestrator.cli.services import services
from orchestrator.cli.waiting import waiting_for
from orchestrator.errors import NotFound
from orchestrator.telemetry.text import printable
from schemas.dead_letter import DeadLetter, DeadLetterKind


@click.group("dlq", cls=Group)
def group() -> None:
    """Read dead letters: what was given up on."""


@group.command("list")
@click.option("--kind", type=click.Choice([kind.value for kind in DeadLetterKind]), help="Only letters of this kind.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--before", metavar="ID", help="Older than this letter (the `next` of the page before).")
def list_letters(kind: str | None, limit: int, before: str | None) -> None:
    """List dead letters, newest first.

    \b
    Examples:
      mandor dlq list
      mandor dlq list --kind plan --json | jq -r '.dead_letters[].id'
    """
    wanted = DeadLetterKind(kind) if kind else None
    with waiting_for("asking the ledger"):
        letters = services().ledger.letters(limit + 1, before, wanted)
    page = letters[:limit]
    following = page[-1].id if len(letters) > limit else None
    if output.as_json():
        output.print_json({"dead_letters": [_entry(letter) for letter in page], "next": following})
    else:
        _print_page(page, following)


def _print_page(page: list[DeadLetter], following: str | None) -> None:
    if not page:
        output.note("no dead letters")
        return
    rows = [
        [
            letter.id,
            letter.kind,
            output.when(letter.created_at),
            letter.status,
            letter.run_id,
            letter.step_id,
            letter.reason,
        ]
        for letter in page
    ]
    output.print_table(["id", "kind", "created", "status", "run", "step", "reason"], rows)
    if following:
        output.note(f"more: mandor dlq list --before {following}")


@group.command("show")
@click.argument("letter_id", metavar="ID")
def show(letter_id: str) -> None:
    """Show a dead letter with all it holds: the raw answers and their errors, or the step's attempts.

    \b
    Examples:
      mandor dlq show ID
      mandor dlq show ID --json | jq -r '.attempts[0].raw'
    """
    with waiting_for("asking the ledger"):
        letter = services().ledger.letter(letter_id)
    if letter is None:
        raise NotFound(f"no dead letter {letter_id}", path="letter_id", hint="`mandor dlq list` shows what there is")
    if output.as_json():
        output.print_json({**_entry(letter), **letter.content, "attempts": letter.content.get("attempts", [])})
        return
    _print_letter(letter)
    for name, value in letter.content.items():
        _print_content(name, value)


def _print_letter(letter: DeadLetter) -> None:
    output.print_fields(
        {
            "id": letter.id,
            "kind": letter.kind,
            "status": letter.status,
            "created": output.when(letter.created_at),
            "run": letter.run_id,
            "step": letter.step_id,
            "reason": letter.reason,
        }
    )


def _entry(letter: DeadLetter) -> dict[str, Any]:
    return letter.model_dump(mode="json", exclude={"content"})


def _print_content(name: str, value: Any) -> None:
    """Text as it was written, line by line; anything else as JSON. All of it escaped; what is not known is left out."""
    if value is None:
        return
    if name == "attempts" and isinstance(value, list):
        for number, attempt in enumerate(value, 1):
            _print_attempt(number, attempt)
    else:
        click.echo()
        _print_named(name, value)


def _print_attempt(number: int, attempt: Any) -> None:
    click.echo(f"\nattempt {number}")
    fields = attempt if isinstance(attempt, dict) else {"attempt": attempt}
    for name, value in fields.items():
        if value is not None:
            _print_named(str(name), value, indent="  ")


def _print_named(name: str, value: Any, indent: str = "") -> None:
    lines = [printable(part) for part in _readable(value).splitlines()]
    if len(lines) == 1:
        click.echo(f"{indent}{printable(name)}: {lines[0]}")
        return
    click.echo(f"{indent}{printable(name)}:")
    for part in lines:
        click.echo(f"{indent}  {part}")


def _readable(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, dict) and "message" in one for one in value):
        return "\n".join(f"{one.get('path') or '(all of it)'}: {one['message']}" for one in value) + "\n"
    return json.dumps(value, ensure_ascii=False, indent=2)
