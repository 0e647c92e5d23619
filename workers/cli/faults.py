"""`mandor faults …`: what your actions promise, tried on real processes that are killed, frozen and cut off."""

import json
import random
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli import inputs, output
from orchestrator.cli.command import NO, Group, Interrupted
from orchestrator.cli.waiting import waiting_for
from orchestrator.errors import MandorError
from workers.faults.titles import TITLES

if TYPE_CHECKING:
    from workers.faults.kit import Options
    from workers.faults.report import Outcome

SEEDS: Final = 10**6


@click.group("faults", cls=Group)
def group() -> None:
    """Try what is promised, with real faults."""


@group.command("run")
@click.option("--scenario", "scenarios", metavar="S1,S3", help="Only these, in this order; else all of them.")
@click.option("--list", "only_list", is_flag=True, help="Say what each scenario does, and play none.")
@click.option("--seed", type=click.IntRange(min=0), help="Draw what an earlier call drew; it printed its seed.")
@click.option("--actions", metavar="MODULES", help="Modules of yours that declare actions and planners, by commas.")
@click.option("--planner", metavar="NAME", help="The planner whose plans are driven.")
@click.option("--plan", "plan_file", metavar="FILE|-", help="A ready plan that is driven, instead.")
@click.option("--context", metavar="JSON", help="The context of every run; none given: the empty one.")
@click.option("--context-file", metavar="FILE|-", help="The same from a file.")
@click.option("--audit", metavar="MODULE:FUNCTION", help="Asked after each scenario what is wrong with your world.")
@click.option("--junit", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Also write JUnit XML.")
@click.option("--keep", is_flag=True, help="Keep the temporary home: ledger, log of effects, output of all processes.")
def run(
    scenarios: str | None,
    only_list: bool,
    seed: int | None,
    actions: str | None,
    planner: str | None,
    plan_file: str | None,
    context: str | None,
    context_file: str | None,
    audit: str | None,
    junit: Path | None,
    keep: bool,
) -> None:
    """Start an installation that is thrown away, do to it what may go wrong, and hold what came of it against what is
    promised. It ends in a certificate: duplicates, losses, what was stuck, how long recovery took.

    Without --actions the kit's own example is driven: one action of each effect class. With yours, their effects really
    happen: name services that may be tried. --audit names a function of yours that gets the run ids of a scenario and
    answers what is wrong outside, as texts. Nothing of your installation is used: no MANDOR_* or CELERY_* variable
    reaches it, and the server is one of its own. Exit 1 if something does not hold.

    \b
    Examples:
      mandor faults run
      mandor faults run --scenario S1,S3 --seed 4711
      mandor faults run --actions shop.actions --plan plan.json --context-file order.json --junit faults.xml
      mandor faults run --actions shop.actions --plan plan.json --audit shop.books:complaints
      mandor faults run --actions shop.actions --planner shop.checkout --context '{"card": "4242", "prices": [990]}'
    """
    if only_list:
        _print_list()
        return
    from workers.faults.kit import Options

    given = {"actions": actions, "planner": planner, "plan": plan_file, "audit": audit}
    given |= {"context": context, "context-file": context_file}
    _check(actions, planner, plan_file, context if context_file is None else context_file, junit)
    inputs.one_stdin(plan_file, context_file)
    options = Options(
        scenarios=chosen(scenarios),
        seed=random.randrange(SEEDS) if seed is None else seed,
        actions=actions,
        planner=planner,
        plan=inputs.read_text(plan_file) if plan_file else None,
        context=_context(inputs.one_text("context", context, context_file)),
        audit=audit,
        keep=keep,
    )
    _play(options, junit, again(options, given))


def chosen(names: str | None) -> tuple[str, ...]:
    """The scenarios of --scenario, or a usage error that names what there is."""
    wanted = tuple(name.strip().upper() for name in (names or ",".join(TITLES)).split(",") if name.strip())
    unknown = [name for name in wanted if name not in TITLES]
    if unknown or not wanted:
        said = ", ".join(unknown) or repr(names)
        raise click.UsageError(f"--scenario: no scenario is called {said}; see --list")
    return tuple(dict.fromkeys(wanted))


def _context(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    context = inputs.read_json("context", text)
    if not isinstance(context, dict):
        raise click.UsageError("--context: a context is a JSON object")
    return context


def _check(actions: str | None, planner: str | None, plan: str | None, context: str | None, junit: Path | None) -> None:
    """What belongs together, before anything is read."""
    if planner and plan:
        raise click.UsageError("say who plans: --planner NAME, or --plan FILE for a ready plan")
    if actions and not (planner or plan):
        raise click.UsageError("say what these actions are to do: --plan FILE, or --planner NAME")
    if context is not None and not (planner or plan):
        raise click.UsageError("--context belongs to a --plan or --planner")
    if junit is not None and not junit.parent.is_dir():
        raise click.UsageError(f"--junit: there is no folder {junit.parent}")


def _play(options: "Options", junit: Path | None, again: str) -> None:
    from workers.faults import kit, report

    screen = Screen(quiet=output.as_json())
    screen.say(f"seed {options.seed}; call {options.call}; {options.subject}; {len(options.scenarios)} scenarios")
    with _told_how(options, again):
        played = kit.play(options, screen)
    if junit is not None:
        junit.write_bytes(report.junit(played))
    if output.as_json():
        output.print_json(report.as_json(played))
    screen.say("\n".join(["", *report.text(played), f"again: {again}"]))
    if not played.passed:
        click.get_current_context().exit(NO)


@contextmanager
def _told_how(options: "Options", again: str) -> Iterator[None]:
    """Whatever ends the kit tells what it has drawn."""
    drawn = {"seed": options.seed, "call": options.call}
    try:
        yield
    except MandorError as wrong:
        wrong.done = drawn
        raise
    except KeyboardInterrupt as stop:
        raise Interrupted(f"the same draws again: {again}", drawn) from stop


class Screen:
    """A line for each scenario as soon as it is over; at a terminal, a sign of life until then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._out = sys.stdout  # which, while the kit plays, is not what users' own code prints to

    def say(self, text: str) -> None:
        """Some lines for people."""
        if not self._quiet:
            click.echo(text, file=self._out)

    def during(self, what: str) -> AbstractContextManager[None]:
        """Shown while it lasts."""
        return waiting_for(what)

    def judged(self, outcome: "Outcome") -> None:
        """What came of a scenario."""
        from workers.faults import report

        self.say("\n".join([report.line(outcome), *report.remarks(outcome)]))


def again(options: "Options", given: Mapping[str, object]) -> str:
    """How to call for the same scenarios with the same draws. given: the other options, by name, as they were."""
    chosen = [] if set(options.scenarios) == set(TITLES) else ["--scenario", ",".join(options.scenarios)]
    others = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    return shlex.join(["mandor", "faults", "run", *chosen, "--seed", str(options.seed), *others])


def _print_list() -> None:
    if output.as_json():
        click.echo(json.dumps({"scenarios": [{"name": name, "title": title} for name, title in TITLES.items()]}))
    else:
        output.print_table(["scenario", "what is done"], list(TITLES.items()))
