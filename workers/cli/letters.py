"""`mandor dlq`, with what is done about letters: replay, edit, drop. Planners and actions are known here."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.admission import PayloadDrift
from orchestrator.cli import dealing, inputs, output
from orchestrator.cli.command import NO
from orchestrator.cli.decide import signed, who
from orchestrator.cli.letter_options import about_letters
from orchestrator.cli.letters import group
from orchestrator.cli.services import Services, services
from orchestrator.errors import DecisionRefused, MandorError, SubmissionRefused
from orchestrator.replays import Wish
from workers import loading
from workers.cli import drafts
from workers.registry import registry

if TYPE_CHECKING:
    from orchestrator.triage import Dealt

__all__ = ["group"]

_KEPT: Final = "what you wrote is kept in {}"


@group.command("replay")
@click.argument("letter_id", metavar="[ID]", required=False)
@click.option("--planner", "other", metavar="NAME", help="Plan anew, with this planner.")
@about_letters("--of-planner")
@dealing.many
@signed
def replay(
    letter_id: str | None,
    other: str | None,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    **wanted: Any,
) -> None:
    """Do again what a letter is about, once: who comes second is told who was first, and what came of it.

    A plan or a submission becomes a new run; for a step its run is started over; an undo is begun again; a callback
    is posted again. With a filter it is about the open
    letters that fit: the command first says how many there are, and more than one take --yes.

    \b
    Examples:
      mandor dlq replay ID
      mandor dlq replay ID --planner llm
      mandor dlq replay --fingerprint 3f9c0a1b2c3d --dry-run
      mandor dlq replay --fingerprint 3f9c0a1b2c3d --yes --reason "the price service is back"
    """
    from orchestrator import triage

    tools = services()
    wish = Wish(planner=_known(tools, other))
    if dry_run:
        dealing.foresee(letter_id, wanted, lambda one: triage.foresee(tools.desk, one, wish))
        return
    dealing.deal(letter_id, wanted, lambda one: triage.replay(tools.desk, one, who(by), reason, wish), yes=yes)


def _known(tools: Services, planner: str | None) -> str | None:
    """A letter is replayed once: a mistyped name would be the end of it."""
    if planner is None:
        return None
    loading.load_actions(tools.settings)
    if fault := registry.catalogue().planner_fault(planner):
        raise click.UsageError(fault)
    return planner


@group.command("drop")
@click.argument("letter_id", metavar="[ID]", required=False)
@about_letters()
@dealing.many
@signed
def drop(letter_id: str | None, by: str | None, reason: str | None, dry_run: bool, yes: bool, **wanted: Any) -> None:
    """Say that nothing is to be done about a letter, and why. It stays where it is until its time is over.

    \b
    Examples:
      mandor dlq drop ID --reason "a test of ours"
      mandor dlq drop --fingerprint 3f9c0a1b2c3d --dry-run
      mandor dlq drop --fingerprint 3f9c0a1b2c3d --yes --reason "that customer has left"
    """
    from orchestrator import triage

    if dry_run:
        dealing.foresee(letter_id, wanted, lambda one: triage.foresee_drop(services().desk, one))
        return
    if reason is None:
        raise click.UsageError("say why nothing is to be done: --reason TEXT")
    dealing.deal(letter_id, wanted, lambda one: triage.drop(services().desk, one, who(by), reason or ""), yes=yes)


@group.command("edit")
@click.argument("letter_id", metavar="ID")
@click.option("--file", "source", metavar="FILE|-", help="What is to stand in its place; else $EDITOR is opened.")
@click.option("--dry-run", is_flag=True, help="Only judge it.")
@signed
def edit(letter_id: str, source: str | None, dry_run: bool, by: str | None, reason: str | None) -> None:
    """Correct the plan or the submission that a letter is about, and replay it.

    It passes the same door as any other. Refused, each fault is named, nothing is decided, and what was written in the
    editor is kept: the next `dlq edit` of this letter goes on with it.

    \b
    Examples:
      mandor dlq edit ID
      mandor dlq edit ID --file plan.json
      jq '.steps[0].params.value = "3"' plan.json | mandor dlq edit ID --file -
    """
    from orchestrator import triage

    tools = services()
    draft = drafts.Draft(tools.settings.home, triage.find(tools.desk, letter_id))
    with _draft_named(draft):
        drafts.may_be_edited(triage.open_letter(tools.desk, letter_id))
        loading.load_actions(tools.settings)
        text = drafts.without_remarks(inputs.read_text(source)) if source is not None else _written(draft, letter_id)
        wish = Wish(edited=text, catalogue=registry.catalogue())
        try:
            if dry_run:
                _tell_accepted(triage.foresee(tools.desk, letter_id, wish))
            else:
                dealt = triage.replay(tools.desk, letter_id, who(by), reason, wish)
                _tell_dealt(dealt, draft, is_of_draft=source is None or Path(source).resolve() == draft.path)
        except (PayloadDrift, SubmissionRefused) as refused:
            _tell_refused(refused, draft.kept() if source is None else None)


@contextmanager
def _draft_named(draft: drafts.Draft) -> Iterator[None]:
    """Whatever is refused or fails behind it says where that lies which was written in the editor."""
    try:
        yield
    except MandorError as error:
        kept = draft.kept()
        if kept and str(kept) not in (error.hint or ""):
            error.also(_KEPT.format(kept))
        raise


def _written(draft: drafts.Draft, letter_id: str) -> str:
    """What is to stand in place of what was refused, from an editor."""
    text = draft.edited()
    if text is None:
        kept = draft.kept()
        as_before = f"to replay it with what was written before: `mandor dlq edit {letter_id} --file {kept}`"
        hint = as_before if kept else f"to replay it as it is: `mandor dlq replay {letter_id}`"
        raise DecisionRefused("nothing was changed, so nothing is done", hint=hint)
    return text


def _tell_dealt(dealt: "Dealt", draft: drafts.Draft, *, is_of_draft: bool) -> None:
    """A draft has served once what it says was decided here, and has come about. Until then the letter may be open
    again, and what somebody else has decided about, or another file said, is another text."""
    if dealt.made and dealt.carried_out and is_of_draft:
        draft.forget()
    elif kept := draft.kept():
        output.note(_KEPT.format(kept))
    dealing.tell_one(dealt)


def _tell_accepted(would: str) -> None:
    if output.as_json():
        output.print_json({"verdict": "accept", "errors": [], "would": would})
    else:
        output.note(f"accepted: it would {would}")


def _tell_refused(refused: PayloadDrift | SubmissionRefused, kept: Path | None) -> None:
    """Each fault by its path."""
    errors = refused.errors()
    if output.as_json():
        output.print_json({"verdict": "reject", "errors": errors, "kept": str(kept) if kept else None})
    else:
        rows = [[error["path"] or "(all of it)", error["kind"], error["message"]] for error in errors]
        output.print_table(["path", "kind", "message"], rows)
        output.note("refused: nothing was decided" + (f"; {_KEPT.format(kept)}" if kept else ""))
    click.get_current_context().exit(NO)
