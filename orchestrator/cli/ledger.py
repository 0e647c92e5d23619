"""`mandor ledger …`: the database that remembers, and whether the state store still agrees with it."""

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli import output
from orchestrator.cli.command import Group
from orchestrator.cli.services import services
from orchestrator.cli.waiting import waiting_for

if TYPE_CHECKING:
    from orchestrator.ledger.losses import Loss

LOOK_S: Final = 0.2
MOST: Final = 1000


@click.group("ledger", cls=Group)
def group() -> None:
    """Set up the ledger; hold the state store against it."""


@group.command("upgrade")
@click.option("--effects", metavar="URL", help="Only make the effects' tables in a database of your own.")
def upgrade(effects: str | None) -> None:
    """Create the ledger's tables or bring them to this release, and give a new state store its identity.

    Run it once before the first worker starts, and after each upgrade. Run again it changes nothing. With --effects it
    prepares another database, in which transactional actions have their effects (MANDOR_EFFECTS_URLS).

    \b
    Examples:
      mandor ledger upgrade
      MANDOR_LEDGER_URL=postgresql://mandor@db/mandor mandor ledger upgrade
      mandor ledger upgrade --effects postgresql://shop@db/shop
    """
    if effects:
        _upgrade_effects(effects)
        return
    from orchestrator.recovery import verification

    tools = services()
    with waiting_for("setting up ledger and state store"):
        done = verification.upgrade(tools.ledger, tools.settings)
    if output.as_json():
        output.print_json(asdict(done))
        return
    if done.lost:
        click.echo(
            f"{done.lost} shards have forgotten runs: the supervisors, or `mandor ledger restore`, build them again"
        )
    shards = f"{done.shards} shards of the state store set up" if done.shards else "the state store was set up before"
    click.echo(f"the ledger is ready; {shards}")


def _upgrade_effects(url: str) -> None:
    from orchestrator.ledger import upgrade_effects

    with waiting_for("making the effects' tables"):
        upgrade_effects(url)
    if output.as_json():
        output.print_json({"effects": "ready"})
        return
    named = url in services().settings.effects_urls.split()
    rest = "" if named else "; name it in MANDOR_EFFECTS_URLS, for every process"
    click.echo(f"the database is ready for effects{rest}")


@group.command("prune")
def prune() -> None:
    """Delete runs that ended MANDOR_LEDGER_RUNS_D days ago or earlier, and letters older than MANDOR_LEDGER_LETTERS_D.

    In small batches, beside whatever else is at work; interrupted, it goes on the next time. The supervisor
    prune-ledger does the same by itself, a little with each look.

    \b
    Examples:
      mandor ledger prune
      MANDOR_LEDGER_RUNS_D=30 mandor ledger prune --json
    """
    from orchestrator.supervisors import prune_ledger

    tools, runs, letters = services(), 0, 0
    with waiting_for("deleting what is old"):
        for gone in prune_ledger.batches(tools.ledger, tools.settings):
            runs, letters = runs + gone.runs, letters + gone.letters
    if output.as_json():
        output.print_json({"runs": runs, "letters": letters})
    else:
        click.echo(f"{runs} runs and {letters} letters are gone")


@group.command("verify")
def verify() -> None:
    """After the state store's server was restarted or exchanged: check that it holds every open run, and accept it.

    The supervisors do it by themselves; until then workers wait. Exit 3 if runs are missing.

    \b
    Examples:
      mandor ledger verify
      mandor ledger verify --json | jq .runs
    """
    from orchestrator.recovery import verification

    tools = services()
    with waiting_for("looking for every open run"):
        found = verification.verify(tools.ledger, tools.store, tools.settings)
    if output.as_json():
        output.print_json(asdict(found))
    elif found.shards:
        click.echo(f"all {found.runs} open runs are there; {found.shards} shards now belong to this server")
    else:
        click.echo("this is the server that was verified before")


@group.command("restore")
def restore() -> None:
    """Build again what the state store has forgotten, from the ledger. The supervisors do it by themselves.

    Waits until the claims that were held at the time have ended. What any step has done counts as done; what may have
    happened is in doubt; pure and idempotent steps that nobody heard of again run once more. Repeated, it does nothing.
    Exit 3 if runs met errors, so that their shards stay shut.

    \b
    Examples:
      mandor ledger restore
      mandor ledger restore --json | jq '.losses[] | {shard, cause, runs}'
    """
    from orchestrator import app as celery_app
    from orchestrator.recovery import restore, verification

    tools = services()
    site = restore.Site(celery_app.app, tools.store, tools.ledger, tools.settings, restore.this_process())
    began = tools.ledger.now_ms()
    before = {(loss.shard, loss.found_at): loss.era for loss in tools.ledger.losses.open(tools.settings.namespace)}
    failed: list[Loss] = []
    with waiting_for("building the state store again"):
        while waiting := restore.recover(site):
            # since we began, whoever tried it
            tried = [loss for loss in waiting if loss.era > before.get((loss.shard, loss.found_at), 0)]
            failed = [loss for loss in tried if restore.has_failed(loss)]
            if len(failed) == len(waiting):
                break
            time.sleep(LOOK_S)
    made_good = [
        loss for loss in tools.ledger.losses.all(tools.settings.namespace, MOST) if (loss.done_at or 0) >= began
    ]
    told = [_told(loss) for loss in made_good]
    if not output.as_json():
        for one in told:
            click.echo(_line(one))
    verification.refuse_failed([restore.Report(**json.loads(loss.report_text or "{}")) for loss in failed])
    if output.as_json():
        output.print_json({"losses": told})
    elif not told:
        click.echo("the state store has what the ledger remembers")


def _told(loss: "Loss") -> dict[str, Any]:
    from orchestrator.recovery.restore import Report

    report = json.loads(loss.report_text or "{}")
    named = {"shard": loss.shard, "cause": loss.cause, "found_at": loss.found_at, "done_at": loss.done_at}
    return {**named, **asdict(Report()), **report}


def _line(told: dict[str, Any]) -> str:
    shard = f"shard {told['shard']} ({told['cause']})"
    if not told["restored"] + told["dropped"] + told["ended"] + told["refused"] + told["failed"]:
        return f"{shard}: nothing was missing; {told['accepted']} runs go on"
    refused = f", {told['refused']} cannot be built" if told["refused"] else ""
    failed = f", {told['failed']} met errors and are tried again" if told["failed"] else ""
    return f"{shard}: {told['restored']} runs built again, {told['dropped']} dropped{refused}{failed}"
