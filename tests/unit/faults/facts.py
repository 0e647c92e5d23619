"""A run in which everything holds, and ways to spoil it."""

from dataclasses import replace
from itertools import count
from typing import Any

from orchestrator.ledger.history import Happened
from workers.faults.known import RunFacts, StepFacts
from workers.faults.log import Act

RUN = "0f0e0d0c-0b0a-8908-8706-050403020100"
POLICY = "p" * 64
CLASSES = {"look": "pure", "note": "idempotent", "book": "transactional", "charge": "keyed", "send": "once"}


def events(*told: tuple[str, str], generation: int = 1, first: int = 1) -> tuple[Happened, ...]:
    """Transitions, each as (event, moves)."""
    return tuple(
        Happened(RUN, version, generation, 1000 + version, event, fields(moves))
        for version, (event, moves) in enumerate(told, first)
    )


def fields(moves: str) -> dict[str, str]:
    """What an event says: it is about the first step that it moves."""
    step_id, fence = moves.partition("=")[0], moves.partition(",")[0].rpartition("/")[2]
    return {"steps": moves, "policy_hash": POLICY, "step_id": step_id, "fence": fence}


def act(what: str, step_id: str, number: int, **more: Any) -> Act:
    """A line of the log."""
    return Act(what, RUN, step_id, number, 1000 + number, **{"key": f"key-{step_id}", **more})


def good(*, undone: bool = False) -> RunFacts:
    """One step of each class, all needing the first; succeeded, or undone because the last of them failed."""
    steps = tuple(
        StepFacts(name, f"do.{name}", effect, () if name == "look" else ("look",), "completed", inputs=f"in-{name}")
        for name, effect in CLASSES.items()
    )
    told = [("run.accepted", ""), ("plan.admitted", "look=dispatched/0/0")]
    for fence, name in enumerate(CLASSES, 1):
        told += [("step.claimed", f"{name}=running/1/{fence}"), ("step.committed", f"{name}=completed/1/{fence}")]
    numbers = count(1)
    acts = [
        act(what, name, next(numbers), fence=fence, details={"inputs": f"in-{name}"})
        for fence, name in enumerate(CLASSES, 1)
        for what in ("began", "acted")
    ]
    if undone:
        effects = [name for name, effect in CLASSES.items() if effect != "pure"]
        told.append(
            ("run.compensating", ",".join(f"{name}=compensating/1/{effects.index(name) + 2}" for name in effects))
        )
        told += [pair for name in effects for pair in undoing(name)]
        told.append(("run.compensated", ""))
        acts += [act(what, name, next(numbers)) for name in effects for what in ("undoing", "undone")]
        steps = tuple(replace(step, status="compensated") if step.id in effects else step for step in steps)
    else:
        told.append(("run.succeeded", ""))
    status = "compensated" if undone else "succeeded"
    happened = events(*told)
    facts = RunFacts(RUN, status, len(happened), POLICY, steps, happened, tuple(acts), ended_at=2000, bound_at=3000)
    return replace(facts, landed=frozenset({"book"}))


def undoing(step_id: str) -> tuple[tuple[str, str], ...]:
    """Its undo is claimed and committed."""
    return ("undo.claimed", f"{step_id}=compensating/1/2"), ("undo.committed", f"{step_id}=compensated/1/2")


def with_acts(run: RunFacts, *acts: Act) -> RunFacts:
    """More lines at the end of the log."""
    return replace(run, acts=(*run.acts, *acts))


def without(run: RunFacts, step_id: str, what: str) -> RunFacts:
    """The log without these lines."""
    return replace(run, acts=tuple(one for one in run.acts if (one.step_id, one.what) != (step_id, what)))


def with_events(run: RunFacts, *told: tuple[str, str]) -> RunFacts:
    """More transitions before the last one."""
    before, last = run.events[:-1], run.events[-1]
    more = events(*told, first=last.version)
    end = replace(last, version=last.version + len(more))
    return replace(run, events=(*before, *more, end), version=end.version)


def with_step(run: RunFacts, step_id: str, **changes: Any) -> RunFacts:
    """One of its steps as it was not."""
    steps = tuple(replace(step, **changes) if step.id == step_id else step for step in run.steps)
    return replace(run, steps=steps)
