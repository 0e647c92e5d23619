"""`./dev bench`: run the contests and print what they came to. It measures and never judges: no figure fails it."""

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

import click

from benchmarks.contests import ALONE, FULL, IN_ARENA, QUICK, Arena, Scale
from benchmarks.faults import contest as faults
from benchmarks.faults.scenes import SCENES
from benchmarks.faults.sides import SIDES
from benchmarks.figures import Outcome, Result, as_json, as_text
from benchmarks.sides import Bare, Mandor
from benchmarks.site import forget_foreign, site

TIMED = (*IN_ARENA, *ALONE)
FAULTS = "faults"  # takes half an hour, and installs what is no dependency of ours: only when it is named


@click.command()
@click.argument("contests", nargs=-1, type=click.Choice((*TIMED, FAULTS)))
@click.option("--quick", is_flag=True, help="Smaller and fewer: a minute or two.")
@click.option("--json", "json_", is_flag=True, help="Print JSON for programs.")
@click.option("--side", "sides", multiple=True, type=click.Choice(list(SIDES)), help="In faults: only these.")
@click.option("--scenario", "scenes", multiple=True, type=click.Choice(list(SCENES)), help="In faults: only these.")
def bench(contests: tuple[str, ...], quick: bool, json_: bool, sides: tuple[str, ...], scenes: tuple[str, ...]) -> None:
    """Measure Mandor against bare Celery, on a server and with processes of its own. No CONTESTS: all but faults.

    faults: the same harm done to Celery alone, with idemkit, with relier (installed for this once), and to Mandor.
    """
    end_in_order()
    forget_foreign()
    outcomes: list[Outcome] = [*run(contests or TIMED, QUICK if quick else FULL)]
    if FAULTS in contests:
        size = faults.QUICK if quick else faults.FULL
        size = replace(size, scenes=scenes or size.scenes)
        outcomes.append(faults.hold(sides or tuple(SIDES), size, say_about(FAULTS)))
    if json_:
        click.echo(json.dumps(as_json(outcomes, quick), indent=2))
    else:
        click.echo("\n".join(as_text(outcomes)))


def end_in_order() -> None:
    """Being asked to end is an exception, so that server and processes end too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def run(names: tuple[str, ...], scale: Scale) -> list[Result]:
    """Each contest once."""
    in_arena = [name for name in names if name in IN_ARENA]
    alone = [ALONE[name](scale) for name in names if name in ALONE]
    return [*(compete(in_arena, scale) if in_arena else ()), *alone]


def compete(names: list[str], scale: Scale) -> list[Result]:
    """Those that need servers and processes, on one site."""
    with site() as here:
        sides = Bare(here.tally), Mandor(here.tally)
        results = []
        for name in names:
            arena = Arena(here, scale, *sides, say_about(name))
            arena.warm_up()
            results.append(IN_ARENA[name](arena))
        return results


def say_about(contest: str) -> Callable[[str], None]:
    """Tells how far it is, on standard error."""
    return lambda text: click.echo(f"{contest}: {text}", err=True)


if __name__ == "__main__":
    bench(prog_name="./dev bench")
