"""How letters look, for people. Whatever a letter holds was written by others: all of it is escaped."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from orchestrator import outcomes
from orchestrator.cli import output
from orchestrator.ledger import LetterDecision, LetterGroup, ListedLetter
from orchestrator.telemetry.text import printable

LABELS: Final = ("id", "kind", "status", "fingerprint", "created_at", "run_id", "step_id", "reason")
SHOWN: Final = 20_000  # characters of one value: more is a file, and no page
KEPT: Final = ("way", "run_id", "principal", "generation")  # of how a letter is replayed; the rest is in the run


def print_groups(groups: Iterable[LetterGroup]) -> None:
    """A line for letters that say the same, with the newest of them."""
    rows = [
        [
            one.fingerprint,
            one.count,
            one.newest.kind,
            output.when(one.newest_at),
            one.newest.action or one.newest.planner,
            one.newest.reason,
            one.newest.id,
        ]
        for one in groups
    ]
    output.print_table(["fingerprint", "letters", "kind", "newest", "about", "reason", "id"], rows)


def print_letters(letters: Iterable[ListedLetter]) -> None:
    """A line a letter."""
    rows = [
        [one.id, one.kind, output.when(one.created_at), one.status, one.run_id, one.step_id, one.reason]
        for one in letters
    ]
    output.print_table(["id", "kind", "created", "status", "run", "step", "reason"], rows)


def print_letter(told: Mapping[str, Any]) -> None:
    """A letter with all it holds, and what was done about it."""
    shown = {name.removesuffix("_id") if name != "id" else name: told[name] for name in LABELS if name in told}
    output.print_fields({**shown, "created_at": output.when(told["created_at"])})
    for decision in told["decisions"]:
        _print_decision(decision, told)
    of_list = {*LABELS, "session_id", "decisions"}
    for name, value in told.items():
        if name not in of_list and value not in (None, []):
            _print_content(name, value)


def decision_json(decision: LetterDecision) -> dict[str, Any]:
    """What was decided about a letter, for programs."""
    details = json.loads(decision.details_text or "{}")
    return {
        "id": decision.id,
        "decision": decision.kind,
        "by": decision.made_by,
        "reason": decision.reason,
        "at": decision.created_at,
        "outcome": decision.outcome,
        "done_at": decision.done_at,
        "details": {name: details[name] for name in KEPT if name in details},
    }


def _print_decision(decision: Mapping[str, Any], letter: Mapping[str, Any]) -> None:
    stored = decision["outcome"]
    outcome = outcomes.of_letter(stored, letter["run_id"], letter["step_id"]) if stored else "not carried out yet"
    why = f" ({decision['reason']})" if decision["reason"] else ""
    said = f"{decision['decision']} by {decision['by']} at {output.when(decision['at'])}{why}: {outcome}"
    click.echo(printable(said))


def _print_content(name: str, value: Any) -> None:
    """Text as it was written, line by line; anything else as JSON. All of it escaped; what is not known is left out."""
    if name == "attempts" and _are_events(value):
        click.echo("\nattempts")
        _print_events(value)
    elif name == "attempts" and isinstance(value, list):
        for number, attempt in enumerate(value, 1):
            _print_attempt(number, attempt)
    else:
        click.echo()
        _print_named(name, value)


def _are_events(attempts: Any) -> bool:
    """Whether they are a step's: what happened to it, several events an attempt."""
    return isinstance(attempts, list) and all(isinstance(one, dict) and "event" in one for one in attempts)


def _print_events(events: Iterable[Mapping[str, Any]]) -> None:
    names = ("event", "attempt", "fence", "worker_id", "outcome")
    rows = [[output.when(one["at"]), *(one.get(name) for name in names)] for one in events]
    output.print_table(["at", "event", "attempt", "fence", "worker", "outcome"], rows)


def _print_attempt(number: int, attempt: Any) -> None:
    click.echo(f"\nattempt {number}")
    fields = attempt if isinstance(attempt, dict) else {"attempt": attempt}
    for name, value in fields.items():
        if value is not None:
            _print_named(str(name), value, indent="  ")


def _print_named(name: str, value: Any, indent: str = "") -> None:
    lines = [printable(part) for part in _cut(_readable(value)).splitlines()]
    if len(lines) == 1:
        click.echo(f"{indent}{printable(name)}: {lines[0]}")
        return
    click.echo(f"{indent}{printable(name)}:")
    for part in lines:
        click.echo(f"{indent}  {part}")


def _cut(text: str) -> str:
    more = len(text) - SHOWN
    return text if more <= 0 else f"{text[:SHOWN]}\n… ({more} more characters: --json has them)"


def _readable(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, dict) and "message" in one for one in value):
        return "\n".join(f"{one.get('path') or '(all of it)'}: {one['message']}" for one in value) + "\n"
    return json.dumps(value, ensure_ascii=False, indent=2)
