"""Decisions about many runs: what a filter finds, how many that are, and what came of each."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from orchestrator.cli import output
from orchestrator.cli.command import NO, Interrupted
from orchestrator.cli.moments import Moment
from orchestrator.cli.services import services
from orchestrator.cli.waiting import waiting_for
from orchestrator.errors import DecisionRefused, MandorError, NotFound
from schemas.states import RunStatus

if TYPE_CHECKING:
    from orchestrator.ledger import RunFilter
    from orchestrator.selection import Target

SHOWN: Final = 10
FILTERS: Final = ("status", "session_id", "planner", "action", "error", "since", "until")
NAMED: Final = "--status, --session, --planner, --action, --error, --since, --until"
MOMENT: Final = Moment()
Row = dict[str, Any]
Item = TypeVar("Item")
Command = Callable[..., None]


def about_many(
    statuses: list[str], action_help: str = "All runs with a step of this action."
) -> Callable[[Command], Command]:
    """The arguments that name one run, or a filter over all."""

    def decorate(command: Command) -> Command:
        for option in (
            click.option("--yes", is_flag=True, help="Decide about more than one."),
            click.option("--dry-run", is_flag=True, help="Count and name what the filter finds, and decide nothing."),
            click.option("--until", type=MOMENT, metavar="WHEN", help="All that were accepted before."),
            click.option("--since", type=MOMENT, metavar="WHEN", help="All accepted then or later: 2h ago, or ISO."),
            click.option("--error", metavar="KIND", help="All runs that ended with an error of this kind."),
            click.option("--action", metavar="NAME", help=action_help),
            click.option("--planner", metavar="NAME", help="All runs that this planner planned."),
            click.option("--session", "session_id", metavar="ID", help="All runs of this session."),
            click.option("--status", type=click.Choice(statuses), help="All runs that stand so."),
            click.argument("run_id", metavar="[ID]", required=False),
        ):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True, slots=True)
class Asked:
    """Which runs a command is about: one by its id, or (run_id None) those that fit all of a filter."""

    run_id: str | None
    wanted: "RunFilter"
    dry_run: bool
    yes: bool


def asked(options: dict[str, Any], *, ended: bool = False) -> Asked:
    """What the options of `about_many` name; they are taken out. A usage error: neither a run nor a filter, or both.

    ended: whether a filter without a status is about runs that have ended.
    """
    from orchestrator.ledger import RunFilter

    given = {name: options.pop(name) for name in FILTERS}
    run_id, dry_run, yes = options.pop("run_id"), options.pop("dry_run"), options.pop("yes")
    narrowed = any(value is not None for value in given.values())
    if run_id is not None and (narrowed or dry_run):
        raise click.UsageError(f"give the ID of one run, or a filter ({NAMED}); --dry-run is for a filter")
    if run_id is None and not narrowed:
        raise click.UsageError(f"say which run: its ID, or a filter ({NAMED})")
    status = RunStatus(given["status"]) if given["status"] else None
    return Asked(run_id, RunFilter(**{**given, "status": status}, ended=ended or None), dry_run, yes)


def found(about: Asked, *, steps: bool = False) -> "list[Target]":
    """What the filter finds now: runs, or steps of them that wait for approval."""
    from orchestrator import selection

    tools, targets = services(), list["Target"]()
    search = selection.find_waiting if steps else selection.find
    with waiting_for(lambda: f"looking for runs, {len(targets)} found"):
        for target in search(tools.ledger, tools.store, tools.settings.namespace, about.wanted):
            targets.append(target)  # one by one, for who watches
    return targets


def decide(about: Asked, targets: "list[Target]", one: "Callable[[Target], Row]") -> None:
    """Say how many there are; then, unless that was all that was asked for, decide about each and tell of it."""
    if about.dry_run:
        _tell_found(targets)
        return
    _agree(targets, about.yes)
    one_by_one(targets, lambda target: _tried(target, one), "decisions", _print)


def one_by_one(
    items: Sequence[Item], one: Callable[[Item], Row], name: str, printed: Callable[[list[Row]], None]
) -> None:
    """Do it with each, with a sign of life, and tell what came of them: under this name in JSON, else printed.

    Exit 1 if one was not carried out. Whoever has to end in the middle tells of those that were, and how far it came.
    """
    rows = list[Row]()
    with _telling_how_far(rows, len(items), name, printed), waiting_for(lambda: f"{len(rows)} of {len(items)} decided"):
        for item in items:
            rows.append(one(item))  # one by one, for who watches
    if output.as_json():
        output.print_json({name: rows})
    elif rows:
        printed(rows)
    if not all(row["carried_out"] for row in rows):
        click.get_current_context().exit(NO)


def _print(rows: list[Row]) -> None:
    cells = [[row["run_id"], row.get("step_id"), row["outcome"], row["message"]] for row in rows]
    output.print_table(["run", "step", "outcome", "what came of it"], cells)


def _tell_found(targets: "list[Target]") -> None:
    statuses = Counter(target.status.value for target in targets)
    if output.as_json():
        runs = [{"run_id": one.run_id, "status": one.status, "step_id": one.step_id} for one in targets]
        output.print_json({"found": len(targets), "statuses": dict(statuses), "runs": runs})
        return
    if targets:
        rows = [[one.run_id, one.status, one.step_id] for one in targets]
        output.print_table(["run", "status", "step"], rows)
    output.note(f"{_counted(targets)} found{_split(statuses)}; nothing was decided")


def _split(statuses: Counter[str]) -> str:
    return f" ({', '.join(f'{count} {status}' for status, count in sorted(statuses.items()))})" if statuses else ""


def _agree(targets: "list[Target]", yes: bool) -> None:
    """Say how many it is about; more than one take a --yes."""
    if not output.as_json():
        output.note(f"{_counted(targets)} found")
    if len(targets) > 1 and not yes:
        names = list(dict.fromkeys(target.run_id for target in targets))
        shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
        raise click.UsageError(
            f"this is about {_counted(targets)} ({shown}); --yes decides about all, --dry-run about none"
        )


def _counted(targets: "list[Target]") -> str:
    runs = len({target.run_id for target in targets})
    if any(target.step_id for target in targets):
        return f"{_many(len(targets), 'step')} of {_many(runs, 'run')}"
    return _many(runs, "run")


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _tried(target: "Target", one: "Callable[[Target], Row]") -> Row:
    """What came of it, or why not: one run that cannot follow does not stop the others."""
    try:
        return one(target)
    except (DecisionRefused, NotFound) as refused:
        about = {"run_id": target.run_id, "step_id": target.step_id}
        return {**about, "carried_out": False, "outcome": refused.kind, "message": refused.message}


@contextmanager
def _telling_how_far(rows: list[Row], of: int, name: str, printed: Callable[[list[Row]], None]) -> Iterator[None]:
    """Whoever has to end in the middle says so: what was decided stands, and the same command goes on."""
    try:
        yield
    except (KeyboardInterrupt, MandorError) as stop:
        said = f"{len(rows)} of {of} were decided about before; the same command goes on with the others"
        if rows and not output.as_json():
            printed(rows)
        if not isinstance(stop, MandorError):
            raise Interrupted(said, {name: rows}) from None
        stop.also(said)
        stop.done = {name: rows}
        raise
