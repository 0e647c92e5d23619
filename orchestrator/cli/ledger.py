"""`mandor ledger …`: the database that remembers, and whether the state store still agrees with it."""

from dataclasses import asdict

import click

from orchestrator.cli import output
from orchestrator.cli.command import Group
from orchestrator.cli.services import services
from orchestrator.cli.waiting import waiting_for


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
    from orchestrator import verification

    tools = services()
    with waiting_for("setting up ledger and state store"):
        done = verification.upgrade(tools.ledger, tools.settings)
    if output.as_json():
        output.print_json(asdict(done))
        return
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

    Workers stop when they meet a server that was not verified; start them again afterwards. Exit 3 if runs are missing.

    \b
    Examples:
      mandor ledger verify
      mandor ledger verify --json | jq .runs
    """
    from orchestrator import verification

    tools = services()
    with waiting_for("looking for every open run"):
        found = verification.verify(tools.ledger, tools.store, tools.settings)
    if output.as_json():
        output.print_json(asdict(found))
    elif found.shards:
        click.echo(f"all {found.runs} open runs are there; {found.shards} shards now belong to this server")
    else:
        click.echo("this is the server that was verified before")
