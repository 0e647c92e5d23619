"""What holds of every run, whatever happened to it: judged from the ledger's history and a log that no run owns.

The history is judged by the product's own fault kit; the effects by what the actions of these tests leave in their log.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator import bound
from orchestrator.ledger.history import Happened
from schemas.ids import RunRef
from schemas.run import RunView, StepView
from schemas.states import EffectClass, RunStatus, StepStatus
from tests.support.accounts import came_late
from tests.support.system import SWEEP_S, System
from workers.faults.effects import RESTORED
from workers.faults.invariants import broken, undoing
from workers.faults.known import RunFacts, StepFacts
from workers.registry import registry

OF_HISTORY = {"I1", "I2", "I3", "I4", "I7", "I8", "I9", "I12"}
REPEATABLE = (EffectClass.IDEMPOTENT, EffectClass.KEYED)  # more than once under one key is once
LOOKS_MS = round(2000 * SWEEP_S)  # until a loss is found


def assert_holds(system: System, view: RunView, end: str) -> None:
    """Every invariant that can be seen from outside. end: the only one that this run may have come to."""
    seen = Seen(
        view,
        system.installed.ledger.history.events(view.run_id),
        system.effects(run_id=view.run_id),
        values_of(system, view),
        {step.id for step in view.steps if came_late(system, view.run_id, step.id)},
        bound_at(system, view),
    )
    wrong = list(broken_in(seen))
    if view.status != end:
        wrong.append(f"it is {view.status}, not {end}")
    assert not wrong, f"{wrong}\n{view}\n" + "\n".join(map(str, (*seen.events, *seen.lines)))


@dataclass(frozen=True)
class Seen:
    """All that is known of a run. values: what steps must have been given; late: steps whose landing was refused;
    bound_at: when it had to have ended."""

    view: RunView
    events: Sequence[Happened]
    lines: Sequence[dict[str, Any]]
    values: Mapping[str, str]
    late: Collection[str]
    bound_at: int | None

    def count(self, step: StepView, what: str) -> int:
        return sum((line["step_id"], line["what"]) == (step.id, what) for line in self.lines)

    def place(self, step_id: str, what: str) -> int | None:
        """Of the first such line."""
        found = (i for i, line in enumerate(self.lines) if (line["step_id"], line["what"]) == (step_id, what))
        return next(found, None)

    def told(self) -> bool:
        """Whether its end was heard of before the store forgot it. Else nobody knows how its steps stood, or what came
        of them."""
        return bool(self.events) and self.events[-1].version >= self.view.version

    def restored(self) -> int:
        return sum(event.event == RESTORED for event in self.events)


def broken_in(seen: Seen) -> Iterator[str]:
    """All that does not hold. Pure."""
    yield from of_history(seen)
    yield from of_effects(seen)
    yield from of_order(seen)
    yield from of_values(seen)


def effect_of(step: StepView) -> EffectClass:
    return registry.find_action(step.action).spec.effect


# ---- history


def of_history(seen: Seen) -> Iterator[str]:
    """What is wrong with its transitions."""
    view = seen.view
    steps = tuple(StepFacts(step.id, step.action, effect_of(step), step.needs, step.status) for step in view.steps)
    facts = RunFacts(
        view.run_id,
        view.status,
        view.version,
        view.policy_hash,
        steps,
        tuple(seen.events),
        (),
        view.ended_at,
        seen.bound_at,
        told=seen.told(),
    )
    yield from (f"{one.invariant}: {one.text}" for one in broken(facts) if one.invariant in OF_HISTORY)
    yield from (f"I10: {text}" for _, text in undoing(facts))


def bound_at(system: System, view: RunView) -> int | None:
    """When it had to have ended: as is shown of it, and as long as its shard was built again. None: it is forgotten."""
    row = system.installed.ledger.run(view.run_id)
    assert row is not None
    store, ref = system.installed.store, RunRef(row.run_id, row.session)
    state, settings = store.views.run(ref), system.installed.settings
    if state is None:
        return None
    losses = system.installed.ledger.losses.all(settings.namespace, 1000)
    mine = [
        loss for loss in losses if loss.shard == store.keys.shard_of(row.run_id) and loss.found_at > row.accepted_at
    ]
    waited = sum((loss.done_at or loss.found_at) - loss.found_at + LOOKS_MS for loss in mine)
    return bound.ended_by(state, store.views.steps(ref), settings) + waited


# ---- effects


def of_effects(seen: Seen) -> Iterator[str]:
    for step in seen.view.steps:
        acted, undone, in_vain = (seen.count(step, what) for what in ("noted", "undone", "found_nothing"))
        if acted > 1 and effect_of(step) not in REPEATABLE:
            yield f"{step.id} ({step.action}) acted {acted} times"
        if undone + in_vain > 1 + (step.id in seen.late) + seen.restored():
            yield f"{step.id} was undone {undone + in_vain} times"
        if undone > acted:
            yield f"{step.id} was undone {undone} times, and acted {acted} times"
        should, stands = should_stand(seen, step), acted > 0 and undone == 0
        if should is not None and stands != should:
            yield f"{step.id} is {step.status}, acted {acted} times, was undone {undone} times"


def should_stand(seen: Seen, step: StepView) -> bool | None:
    """Whether the step's effect is to be found outside. None: nobody can say."""
    if effect_of(step) is EffectClass.PURE or seen.view.status == RunStatus.COMPENSATED:
        return False
    known = seen.told() or seen.view.status == RunStatus.SUCCEEDED
    return step.status == StepStatus.COMPLETED if known else None


def of_order(seen: Seen) -> Iterator[str]:
    """None acts before what it needs has acted, and none is undone before what needed it is undone."""
    for step in seen.view.steps:
        for need in step.needs:
            acted, before = seen.place(step.id, "noted"), seen.place(need, "noted")
            if acted is not None and before is not None and acted < before:
                yield f"{step.id} acted before {need}"
            undone, begun = seen.place(step.id, "undone"), seen.place(need, "undoing")
            if undone is not None and begun is not None and begun < undone:
                yield f"{need} was to be undone before {step.id}, which needed it"


# ---- values


def of_values(seen: Seen) -> Iterator[str]:
    """Each step has seen what its own plan says, or its own run's results: actions of these tests pass on a value."""
    for line in seen.lines:
        value = seen.values.get(line["step_id"])
        if line["what"] in ("began", "noted", "undone") and line["value"] != value:
            yield f"{line['step_id']} was given {line['value']!r}, not {value!r}"
    for step in seen.view.steps if seen.told() else ():
        value = seen.values.get(step.id)
        if step.status == StepStatus.COMPLETED and value is not None and step.result != {"value": value}:
            yield f"{step.id} has the result {step.result}, not {value!r}"


def values_of(system: System, view: RunView) -> Mapping[str, str]:
    """What each step that is given a value must be given."""
    plan = system.installed.ledger.plan(view.run_id, 1)
    assert plan is not None
    values: dict[str, str] = {}
    for step in json.loads(plan.plan_text)["steps"]:
        given = step["params"].get("value")
        if given is not None:
            values[step["id"]] = values[given["$result"]] if isinstance(given, dict) else given
    return values
