"""What `mandor dlq replay`, `edit` and `drop` have in common: about which letters, by whom, and what is said of it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator import outcomes
from orchestrator.cli import bulk, output
from orchestrator.cli.command import NO
from orchestrator.cli.letter_options import asked_for
from orchestrator.cli.services import services
from orchestrator.cli.waiting import waiting_for
from orchestrator.errors import BrokerUnavailable, LedgerError, MandorError, StoreError

if TYPE_CHECKING:
    from orchestrator.triage import Dealt

SHOWN: Final = 10
AWAY: Final = (StoreError, LedgerError, BrokerUnavailable)  # one that is away is away for all letters


def many(command: Callable[..., None]) -> Callable[..., None]:
    """For commands that take a filter in place of an id."""
    for option in (
        click.option("--yes", is_flag=True, help="Do it with more than one letter."),
        click.option("--dry-run", is_flag=True, help="Only say how many they are and what would be done."),
        click.option("--fingerprint", metavar="PRINT", help="All open letters of this group."),
    ):
        command = option(command)
    return command


def deal(letter_id: str | None, wanted: dict[str, Any], one: Callable[[str], "Dealt"], *, yes: bool) -> None:
    """Do it with the letter that is named, or with the open ones that the filter finds."""
    if letter_id is not None:
        tell_one(one(_alone(letter_id, wanted)))
        return
    found = _found(wanted)
    _agree(found, yes)
    bulk.one_by_one(found, lambda each: _tried(one, each), "letters", _print)


def foresee(letter_id: str | None, wanted: dict[str, Any], one: Callable[[str], str]) -> None:
    """Say what would be done, letter by letter; nothing is."""
    found = _found(wanted) if letter_id is None else [_alone(letter_id, wanted)]
    rows = [_foreseen(one, each, alone=letter_id is not None) for each in found]
    if output.as_json():
        output.print_json({"dry_run": True, "count": len(rows), "letters": rows})
        return
    _count(found)
    if rows:
        output.print_table(["id", "would"], [[row["letter_id"], row["would"] or row["message"]] for row in rows])


def _foreseen(one: Callable[[str], str], letter_id: str, *, alone: bool) -> dict[str, Any]:
    try:
        return {"letter_id": letter_id, "would": one(letter_id), "message": None}
    except AWAY:
        raise
    except MandorError as refused:
        if alone:
            raise
        return {"letter_id": letter_id, "would": None, "message": f"nothing: {refused}"}


def _alone(letter_id: str, wanted: dict[str, Any]) -> str:
    if any(value is not None for value in wanted.values()):
        raise click.UsageError("give the ID of one letter, or a filter")
    return letter_id


def _found(wanted: dict[str, Any]) -> list[str]:
    from orchestrator import triage

    if all(value is None for value in wanted.values()):
        raise click.UsageError("say which letters: an ID, or a filter (--fingerprint, --kind, --action, …)")
    asked, found = asked_for({**wanted, "status": "open"}), list[str]()
    with waiting_for(lambda: f"looking for letters, {len(found)} found"):
        for letter in triage.wanted(services().ledger, asked):
            found.append(letter.id)  # one by one, for who watches
    return found[::-1]  # as they were given up: an undo before that of a step which the other had needed


def _count(found: Sequence[str]) -> None:
    output.note(f"{len(found)} open letter{'' if len(found) == 1 else 's'} found")


def _agree(found: Sequence[str], yes: bool) -> None:
    if not output.as_json():
        _count(found)
    if len(found) > 1 and not yes:
        shown = ", ".join(found[:SHOWN]) + (", …" if len(found) > SHOWN else "")
        raise click.UsageError(
            f"this is about {len(found)} letters ({shown}); --yes deals with all, --dry-run tells how"
        )


def _tried(one: Callable[[str], "Dealt"], letter_id: str) -> dict[str, Any]:
    """What came of it, or why not: one letter that cannot be dealt with does not stop the others."""
    try:
        return as_json(one(letter_id))
    except AWAY:
        raise
    except MandorError as refused:
        nothing = {"letter_id": letter_id, "outcome": refused.kind, "run_id": None, "carried_out": False, "made": False}
        return {**nothing, "message": str(refused)}


# ---- what came of it


def as_json(dealt: "Dealt") -> dict[str, Any]:
    """For programs."""
    return {**asdict(dealt), "carried_out": dealt.carried_out, "message": sentence(dealt)}


def sentence(dealt: "Dealt") -> str:
    """For people: also who was first, if somebody was."""
    first = "" if dealt.made else f"{dealt.by} was first, at {output.when(dealt.at_ms)}: "
    return first + _came(dealt)


def _came(dealt: "Dealt") -> str:
    if dealt.outcome is None:
        return "kept, and carried out once what it needs is back"
    if dealt.word == "refused":
        return "it could not be done, and the letter is open: " + outcomes.of_run(dealt.outcome.partition(":")[2])
    return outcomes.of_letter(dealt.outcome, dealt.run_id, dealt.step_id)


def tell_one(dealt: "Dealt") -> None:
    """What came of one letter. Exit 1 if it is not what was asked for."""
    if output.as_json():
        output.print_json(as_json(dealt))
    else:
        click.echo(dealt.run_id or dealt.letter_id)
        output.note(sentence(dealt))
    if not dealt.carried_out:
        click.get_current_context().exit(NO)


def _print(rows: list[dict[str, Any]]) -> None:
    cells = [[row["letter_id"], row["run_id"], row["message"]] for row in rows]
    output.print_table(["id", "run", "what came of it"], cells)
