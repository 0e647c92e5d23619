"""What holds of every run, whatever happened to it: judged from the ledger's history and a log that no run owns.

A run that was built again may commit once more what nobody had heard of: so events are counted between one
`run.restored` and the next.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.ledger.history import Happened
from schemas.run import RunView
from schemas.states import RUN_TERMINAL
from tests.support.system import System

ENDS = {f"run.{status}" for status in RUN_TERMINAL} | {"plan.rejected"}
REPEATABLE = ("test.note", "test.order")  # idempotent, and keyed: more than once under one key is once


def assert_holds(system: System, view: RunView) -> None:
    """Every invariant that can be seen from outside."""
    events = system.installed.ledger.history.events(view.run_id)
    lines = system.effects(run_id=view.run_id)
    # of a run that was lost before its last transitions were drained, some steps stand as they were heard of last
    told = view.status == "succeeded" or (events and events[-1].version >= view.version)
    broken = [*of_events(events), *(of_effects(view, lines) if told else ())]
    if view.status not in RUN_TERMINAL:
        broken.append(f"it is {view.status}")
    assert not broken, f"{broken}\n{view}\n" + "\n".join(map(str, (*events, *lines)))


def moves(event: Happened) -> Iterator[tuple[str, str, int]]:
    """Step, status and fence of each move."""
    for move in event.fields["steps"].split(","):
        if move:
            step_id, _, rest = move.partition("=")
            status, _, fence = rest.split("/")
            yield step_id, status, int(fence)


def of_events(events: Sequence[Happened]) -> Iterator[str]:
    versions = [event.version for event in events]
    if versions != sorted(set(versions)):
        yield f"versions {versions}"
    yield from _commits(events)
    yield from _fences(events)
    yield from _starts(events)
    ends = Counter(event.generation for event in events if event.event in ENDS)
    if any(count > 1 for count in ends.values()):
        yield f"ends {ends}"


def _commits(events: Sequence[Happened]) -> Iterator[str]:
    seen: Counter[tuple[int, str]] = Counter()
    for event in events:
        if event.event == "run.restored":
            seen.clear()
            continue
        seen.update((event.generation, step_id) for step_id, status, _ in moves(event) if status == "completed")
    if any(count > 1 for count in seen.values()):
        yield f"commits {seen}"


def _fences(events: Sequence[Happened]) -> Iterator[str]:
    granted = [fence for event in events for _, status, fence in moves(event) if status == "running"]
    if granted != sorted(set(granted)):
        yield f"fences {granted}"


def _starts(events: Sequence[Happened]) -> Iterator[str]:
    left = False
    for event in events:
        if event.event == "run.retried":
            left = False
        if left and any(status == "running" for _, status, _ in moves(event)):
            yield f"{event} after its run left running"
        left = left or event.event in ("run.compensating", "run.cancel", "run.deadline", *ENDS)


def of_effects(view: RunView, lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    for step in view.steps:
        mine = [line["what"] for line in lines if line["step_id"] == step.id]
        noted, undone = mine.count("noted"), mine.count("undone")
        if step.action not in REPEATABLE and noted > 1:
            yield f"{step.id} ({step.action}) acted {noted} times"
        if undone > max(noted, 0):
            yield f"{step.id} was undone {undone} times"
        stands = noted > 0 and undone == 0
        if stands != (step.status == "completed" and step.action != "test.echo"):
            yield f"{step.id} is {step.status}, noted {noted}, undone {undone}"
    yield from _order(view, lines)


def _order(view: RunView, lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Of what left a line: no step acts before those it needs have acted."""
    acted: dict[str, float] = {}
    for line in lines:
        if line["what"] == "noted":
            acted.setdefault(line["step_id"], line["at"])
    for step in view.steps:
        for need in step.needs:
            if step.id in acted and need in acted and acted[step.id] < acted[need]:
                yield f"{step.id} acted before {need}"
