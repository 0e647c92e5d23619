"""`mandor run cancel|pause|resume|retry|approve|resolve`: what people decide about runs, one or many."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator import outcomes
from orchestrator.cli import bulk, inputs, output
from orchestrator.cli.command import NO, Command
from orchestrator.cli.services import services
from schemas.states import RUN_TERMINAL, RunStatus

if TYPE_CHECKING:
    from orchestrator.decisions import Decided

ENDED: Final = sorted(status.value for status in RUN_TERMINAL)
OPEN: Final = sorted(status.value for status in RunStatus if status not in RUN_TERMINAL)


# ---- who decides, why, and about which runs


def signed(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say who decides and why."""
    for option in (
        click.option("--reason", metavar="TEXT", help="Why; kept with the decision."),
        click.option("--by", metavar="NAME", help="Who decides; the user of this terminal unless given."),
    ):
        command = option(command)
    return command


def _decide(decide: Callable[[str], "Decided"], options: dict[str, Any], *, ended: bool = False) -> None:
    """Decide about the run that is named, or about those that the filter finds."""
    about = bulk.asked(options, ended=ended)
    if about.run_id is not None:
        _tell_one(decide(about.run_id))
    else:
        bulk.decide(about, bulk.found(about), lambda target: _as_json(decide(target.run_id)))


def _tell_one(decided: "Decided") -> None:
    if output.as_json():
        output.print_json(_as_json(decided))
    else:
        about = f"step {decided.step_id}: " if decided.step_id else ""
        output.note(f"{about}{outcomes.of_run(decided.outcome)}")
    if not decided.carried_out:
        click.get_current_context().exit(NO)


def _as_json(decided: "Decided") -> dict[str, Any]:
    fields = asdict(decided)
    fields["decision"] = fields.pop("id")
    return {**fields, "carried_out": decided.carried_out, "message": outcomes.of_run(decided.outcome)}


def who(by: str | None) -> str:
    """Who decides: the user of this terminal, unless somebody is named."""
    from orchestrator.decisions import os_user

    return by or os_user()


def _simple(name: str, by: str | None, reason: str | None, **options: Any) -> None:
    from orchestrator import decisions

    make, tools = getattr(decisions, name), services()
    _decide(lambda one: make(tools.desk, one, who(by), reason), options, ended=name == "retry")


# ---- the commands


@click.command("cancel", cls=Command)
@bulk.about_many(OPEN)
@signed
def cancel(**options: Any) -> None:
    """End a run: nothing more of it starts, what runs is told to stop, what was done is undone where policy says so.

    \b
    Examples:
      mandor run cancel ID --reason "the customer withdrew"
      mandor run cancel --session nightly --dry-run
      mandor run cancel --session nightly --yes
    """
    _simple("cancel", **options)


@click.command("pause", cls=Command)
@bulk.about_many(OPEN)
@signed
def pause(**options: Any) -> None:
    """Start nothing more of a run. What runs goes on, and so does the deadline.

    \b
    Examples:
      mandor run pause ID --reason "the warehouse is closed"
      mandor run pause --status running --yes
    """
    _simple("pause", **options)


@click.command("resume", cls=Command)
@bulk.about_many(OPEN)
@signed
def resume(**options: Any) -> None:
    """Let a paused run go on.

    \b
    Examples:
      mandor run resume ID
    """
    _simple("resume", **options)


@click.command("retry", cls=Command)
@bulk.about_many(ENDED)
@click.option("--from", "from_steps", metavar="STEP", multiple=True, help="Do this step and all that needs it again.")
@click.option("--new-key", "new_keys", metavar="STEP", multiple=True, help="Have the effect of this step once more.")
@signed
def retry(from_steps: tuple[str, ...], new_keys: tuple[str, ...], **options: Any) -> None:
    """Start an ended run over: what is completed stays, the rest is done again, with a new deadline.

    With --from completed steps are done again too. An effect that has landed is not: its step gives back its result,
    unless --new-key names it. Look first: nothing else stands between that word and an effect that happens twice.

    Not for a run of which something was undone, nor while a step whose action runs once only is in doubt.

    \b
    Examples:
      mandor run retry ID
      mandor run retry ID --from fetch
      mandor run retry ID --from pay --new-key pay --reason "the first charge was taken back by the bank"
      mandor run retry --status failed --error step_timeout --since 2h --dry-run
      mandor run retry --status failed --session nightly --yes
    """
    if not (from_steps or new_keys):
        _simple("retry", **options)
        return
    if options["run_id"] is None:
        raise click.UsageError("--from and --new-key are about one run: give its ID")
    from orchestrator import decisions
    from orchestrator.startover import Again

    by, again = who(options.pop("by")), Again(from_steps, new_keys)
    reason, desk = options.pop("reason"), services().desk
    _decide(lambda one: decisions.retry(desk, one, by, reason, again), options)


@click.command("approve", cls=Command)
@bulk.about_many(OPEN, "All steps of this action that wait.")
@click.argument("step_id", metavar="[STEP]", required=False)
@click.option("--refuse", is_flag=True, help="It may not start: the step fails, and its run ends.")
@signed
def approve(step_id: str | None, refuse: bool, by: str | None, reason: str | None, **options: Any) -> None:
    """Let a step start that waits for approval; without STEP the one that waits.

    A filter is about all steps that wait in the runs it finds; with --action, about those of that action.

    \b
    Examples:
      mandor run approve ID pay
      mandor run approve ID pay --refuse --reason "wrong account"
      mandor run approve --session nightly --action payments.charge --dry-run
      mandor run approve --session nightly --yes
    """
    from orchestrator import decisions

    about, desk, name = bulk.asked(options), services().desk, who(by)

    def one(run_id: str, step: str | None) -> "Decided":
        return decisions.approve(desk, run_id, name, reason, step, allowed=not refuse)

    if about.run_id is not None:
        _tell_one(one(about.run_id, step_id))
    else:
        waiting = bulk.found(about, steps=True)
        bulk.decide(about, waiting, lambda target: _as_json(one(target.run_id, target.step_id)))


@click.command("resolve", cls=Command)
@click.argument("run_id", metavar="ID")
@click.argument("step_id", metavar="[STEP]", required=False)
@click.option("--result", "result_text", metavar="JSON|-", help="It happened, and this is its result.")
@click.option("--landed", is_flag=True, help="It happened; its result is null.")
@click.option("--not-landed", is_flag=True, help="It did not happen, and cannot any more.")
@signed
def resolve(
    run_id: str,
    step_id: str | None,
    result_text: str | None,
    landed: bool,
    not_landed: bool,
    by: str | None,
    reason: str | None,
) -> None:
    """Say what became of a step in doubt, after having looked; without STEP the one in doubt.

    Landed: the step counts as completed. Not landed: it runs again while its run goes on, and counts as never done in a
    run that has ended. Look first: nothing else stands between this word and an effect that happens twice.

    \b
    Examples:
      mandor run resolve ID pay --result '{"charge_id": "ch_7"}' --reason "seen in their dashboard"
      mandor run resolve ID pay --not-landed
    """
    from orchestrator import decisions

    if (result_text is not None) + landed + not_landed != 1:
        raise click.UsageError("say one of --result JSON, --landed and --not-landed")
    result = None if result_text is None else inputs.read_json("result", result_text)
    desk = services().desk
    _tell_one(decisions.resolve(desk, run_id, who(by), reason, step_id, landed=not not_landed, result=result))


COMMANDS: Final = (cancel, pause, resume, retry, approve, resolve)
