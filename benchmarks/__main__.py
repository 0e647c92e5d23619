"""`./dev bench`: run the contests and print what they came to. It measures and never judges: no figure fails it."""

import json
import signal
import sys
from collections.abc import Callable

import click

from benchmarks.contests import ALONE, FULL, IN_ARENA, QUICK, Arena, Scale
from benchmarks.figures import Result, as_json, as_text
from benchmarks.sides import Bare, Mandor
from benchmarks.site import forget_foreign, site

NAMES = (*IN_ARENA, *ALONE)


@click.command()
@click.argument("contests", nargs=-1, type=click.Choice(NAMES))
@click.option("--quick", is_flag=True, help="Smaller and fewer: a minute or two.")
@click.option("--json", "json_", is_flag=True, help="Print JSON for programs.")
def bench(contests: tuple[str, ...], quick: bool, json_: bool) -> None:
    """Measure Mandor against bare Celery, on a server and with processes of its own. No CONTESTS: all of them."""
    end_in_order()
    forget_foreign()
    results = run(contests or NAMES, QUICK if quick else FULL)
    if json_:
        click.echo(json.dumps(as_json(results, quick), indent=2))
    else:
        click.echo("\n".join(as_text(results)))


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
