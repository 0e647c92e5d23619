"""`mandor dlq …`: what was given up on, read. What is done about it is in `workers.cli.letters`."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import click

from orchestrator.cli import letter_page, output
from orchestrator.cli.command import Group
from orchestrator.cli.letter_options import about_letters, asked_for
from orchestrator.cli.services import services
from orchestrator.cli.waiting import waiting_for
from orchestrator.errors import NotFound
from orchestrator.ledger import Ledger, LetterFilter, LetterGroup, ListedLetter
from schemas.dead_letter import DeadLetterStatus

PLACE: Final = re.compile(r"(\d{1,18})\.([0-9a-f]{1,64})")
STATUSES: Final = [*(status.value for status in DeadLetterStatus), "all"]


@click.group("dlq", cls=Group)
def group() -> None:
    """Work with dead letters: what was given up on. Read them, correct them, replay or drop them."""


@group.command("list")
@about_letters()
@click.option("--status", type=click.Choice(STATUSES), help="How they stand. Groups are of open ones unless given.")
@click.option("--fingerprint", metavar="PRINT", help="The letters of this group.")
@click.option("--groups/--each", "grouped", default=None, help="Those that say the same together, or each by itself.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--before", metavar="NEXT", help="Older than this (the `next` of the page before).")
def list_letters(grouped: bool | None, limit: int, before: str | None, **wanted: Any) -> None:
    """List dead letters, newest first: those that say the same together, with how many they are and the newest one.

    --each, or --fingerprint of a group, lists letters one by one; so does --json, unless --groups is given.

    \b
    Examples:
      mandor dlq list
      mandor dlq list --planner orders.fulfil --since 2h
      mandor dlq list --fingerprint 3f9c0a1b2c3d
      mandor dlq list --kind plan --json | jq -r '.dead_letters[].id'
    """
    if grouped is None:
        grouped = not output.as_json() and wanted["fingerprint"] is None
    told = _list_groups(limit, before, wanted) if grouped else _list_each(limit, before, wanted)
    if told and not output.as_json():
        output.note(f"more: mandor dlq list --before {told}{_same(limit, grouped, wanted)}")


def _same(limit: int, grouped: bool, wanted: Mapping[str, Any]) -> str:
    """The options as they were given, for the next page."""
    given: dict[str, Any] = {"limit": limit if limit != 50 else None, **wanted}
    named = {name.removesuffix("_id"): value for name, value in given.items() if value is not None}
    told = {name: output.iso(value) if name in ("since", "until") else value for name, value in named.items()}
    options = "".join(f" --{name} {shlex.quote(str(value))}" for name, value in told.items())
    return options if grouped or "fingerprint" in named else f" --each{options}"


def _list_each(limit: int, before: str | None, wanted: Mapping[str, Any]) -> str | None:
    with waiting_for("asking the ledger"):
        letters = _page(services().ledger, limit + 1, before, asked_for(wanted))
    page = letters[:limit]
    following = page[-1].id if len(letters) > limit else None
    if output.as_json():
        output.print_json({"dead_letters": [asdict(letter) for letter in page], "next": following})
    elif page:
        letter_page.print_letters(page)
    else:
        output.note("no dead letters" if before is None else f"no dead letter is older than {before}")
    return following


def _page(ledger: Ledger, limit: int, before: str | None, wanted: LetterFilter) -> list[ListedLetter]:
    """NotFound: `before` is no letter."""
    found = ledger.triage.listed(limit, before, wanted)
    if not found and before is not None and ledger.triage.one(before, wanted.namespace) is None:
        raise NotFound(f"no dead letter {before}", path="before", hint="`next` of the page before is what to give")
    return found


def _list_groups(limit: int, before: str | None, wanted: Mapping[str, Any]) -> str | None:
    status = wanted["status"] or DeadLetterStatus.OPEN.value
    with waiting_for("asking the ledger"):
        asked = asked_for({**wanted, "status": status})
        groups = services().ledger.triage.groups(limit + 1, _place(before), asked)
    page = groups[:limit]
    following = f"{page[-1].newest_at}.{page[-1].fingerprint}" if len(groups) > limit else None
    if output.as_json():
        output.print_json({"groups": list(map(_group_json, page)), "next": following})
    elif page:
        letter_page.print_groups(page)
    else:
        output.note("no dead letters" if status == "all" else f"no dead letters that are {status}")
    return following


def _place(before: str | None) -> tuple[int, str] | None:
    if before is None:
        return None
    found = PLACE.fullmatch(before)
    if found is None:
        raise click.UsageError("--before takes the `next` of the page before; of groups that is TIME.FINGERPRINT")
    return int(found[1]), found[2]


def _group_json(group: LetterGroup) -> dict[str, Any]:
    newest = group.newest
    return {
        "fingerprint": group.fingerprint,
        "count": group.count,
        "kind": newest.kind,
        "action": newest.action,
        "planner": newest.planner,
        "reason": newest.reason,
        "newest_id": newest.id,
        "newest_at": group.newest_at,
        "oldest_at": group.oldest_at,
    }


@group.command("show")
@click.argument("letter_id", metavar="ID")
def show(letter_id: str) -> None:
    """Show a dead letter with all it holds: the raw answers and their errors, or the step's attempts; and what people
    have done about it.

    \b
    Examples:
      mandor dlq show ID
      mandor dlq show ID --json | jq -r '.attempts[0].raw'
    """
    with waiting_for("asking the ledger"):
        told = whole(services().ledger, letter_id, services().settings.namespace)
    if output.as_json():
        output.print_json(told)
    else:
        letter_page.print_letter(told)


@group.command("export")
@about_letters()
@click.option("--status", type=click.Choice(STATUSES), help="How they stand; all unless given.")
@click.option("--fingerprint", metavar="PRINT", help="The letters of this group.")
def export(**wanted: Any) -> None:
    """Print whole letters as JSON lines, newest first, as `dlq show --json` has them.

    \b
    Examples:
      mandor dlq export --since 30d > letters.jsonl
      mandor dlq export --kind plan | jq -r '.attempts[-1].raw'
    """
    from orchestrator import triage

    ledger = services().ledger
    for letter in triage.wanted(ledger, asked_for(wanted)):
        output.print_json(_told(ledger, letter), one_line=True)


def whole(ledger: Ledger, letter_id: str, namespace: str) -> dict[str, Any]:
    """All that is known of a letter, as --json prints it."""
    listed = ledger.triage.one(letter_id, namespace)
    if listed is None:
        raise NotFound(f"no dead letter {letter_id}", path="letter_id", hint="`mandor dlq list` shows what there is")
    return _told(ledger, listed)


def _told(ledger: Ledger, listed: ListedLetter) -> dict[str, Any]:
    letter = ledger.letter(listed.id)
    content = letter.content if letter else {}
    decisions = [letter_page.decision_json(one) for one in ledger.triage.decisions(listed.id)]
    return {**asdict(listed), **content, **_attempts(content.get("attempts", [])), "decisions": decisions}


def _attempts(kept: Any) -> dict[str, Any]:
    """A list in every letter. Those about an undo or a callback know only how many there were."""
    return {"attempts": kept} if isinstance(kept, list) else {"attempts": [], "attempts_made": kept}
