"""What holds of every run, whatever happened to it: judged from the ledger's history and a log that no run owns.

The history is judged by the product's own fault kit; the effects by what the actions of these tests leave in their log.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.ledger.history import Happened
from schemas.run import RunView
from tests.support.system import System
from workers.faults.invariants import RunFacts, StepFacts, broken

OF_HISTORY = {"I1", "I2", "I3", "I4", "I7", "I8", "I9", "I12"}
REPEATABLE = ("test.note", "test.order")  # idempotent, and keyed: more than once under one key is once


def assert_holds(system: System, view: RunView) -> None:
    """Every invariant that can be seen from outside."""
    events = system.installed.ledger.history.events(view.run_id)
    lines = system.effects(run_id=view.run_id)
    # of a run that was lost before its last transitions were drained, some steps stand as they were heard of last
    told = view.status == "succeeded" or (events and events[-1].version >= view.version)
    wrong = [*of_history(view, events), *(of_effects(view, lines) if told else ())]
    assert not wrong, f"{wrong}\n{view}\n" + "\n".join(map(str, (*events, *lines)))


def of_history(view: RunView, events: Sequence[Happened]) -> Iterator[str]:
    """What is wrong with its transitions."""
    steps = tuple(StepFacts(step.id, step.action, "", step.needs, step.status) for step in view.steps)
    facts = RunFacts(view.run_id, view.status, view.version, view.policy_hash, steps, tuple(events), ())
    return (f"{one.invariant}: {one.text}" for one in broken(facts) if one.invariant in OF_HISTORY)


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
