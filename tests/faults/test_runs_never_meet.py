"""Two runs of one session, with one plan id and the same step ids, many times: nothing of one in the other."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import pytest

from orchestrator.store.views import Event
from schemas.canonical import canonical_text
from schemas.run import RunView
from tests.support.system import System, result_of, step

ROUNDS = 30
BATCH = 5  # rounds under way at once
WORKERS = ("first", "second", "third")
STRICT = {"max_parallel": 1, "limits": {"attempts": 1}}


@dataclass(frozen=True)
class Side:
    """One run of a round, and what it was given."""

    run_id: str
    session_id: str
    value: str
    entity_id: str
    strict: bool


def start(system: System, number: int, side: str, plan_id: str) -> Side:
    """Both sides of a round differ in their inputs and their policy alone."""
    value, entity_id = f"{side}-{number}", str(uuid4())
    strict = side == "strict"
    run_id = system.submit(
        step("test.echo", "read", value=value, delay_s=0.2),
        step("test.echo", "price", value=result_of("read"), delay_s=0.2),
        step("mutate_record", "charge", entity_id=entity_id, changes={"charged": value}),
        step("test.note", "book", ["price", "charge"], value=result_of("price")),
        plan_id=plan_id,
        session_id=f"session-{number}",
        request_id=side,
        **({"policy": STRICT} if strict else {}),
    )
    return Side(run_id, f"session-{number}", value, entity_id, strict)


def play(system: System, rounds: int) -> list[Side]:
    """All rounds, some at a time, to their end."""
    sides: list[Side] = []
    for first in range(0, rounds, BATCH):
        batch = [
            start(system, number, side, plan_id)
            for number in range(first, min(first + BATCH, rounds))
            for plan_id in [str(uuid4())]
            for side in ("strict", "loose")
        ]
        for side in batch:
            system.wait(side.run_id, timeout_s=60)
        sides += batch
    return sides


def faults(system: System, side: Side) -> list[str]:
    """What went wrong with one run, in words."""
    view = system.view(side.run_id)
    found = [] if view.status == "succeeded" else [f"{side.value}: {view.status}: {view.reason}"]
    noted = [line["value"] for line in system.effects(run_id=side.run_id, what="noted")]
    if noted != [side.value]:
        found.append(f"{side.value}: noted {noted}")
    record = system.installed.ledger.record(side.entity_id)
    if record is None or (record.data_text, record.version) != (canonical_text({"charged": side.value}), 1):
        found.append(f"{side.value}: the record is {record}")
    return found + published_twice(side, system.events(side.run_id, side.session_id)) + policies(side, view)


def published_twice(side: Side, events: list[Event]) -> list[str]:
    sent = [step_id for event in events for step_id, status, _, _ in event.steps if status == "dispatched"]
    committed = [event.fields["step_id"] for event in events if event.event == "step.committed"]
    again = [event.event for event in events if event.event == "step.republished"]
    expected = ["book", "charge", "price", "read"]
    wrong = sorted(sent) != expected or sorted(committed) != expected or again
    return [f"{side.value}: sent {sent}, committed {committed}, {again}"] if wrong else []


def policies(side: Side, view: RunView) -> list[str]:
    """Each step ran under its run's own policy."""
    of_steps = {one.policy_hash for one in view.steps}
    return [f"{side.value}: policies {of_steps}"] if of_steps != {view.policy_hash} else []


def all_faults(system: System, rounds: int) -> list[str]:
    for name in WORKERS:
        system.start_steps(name, concurrency=2)
    sides = play(system, rounds)
    hashes = {
        strict: {system.view(s.run_id).policy_hash for s in sides if s.strict is strict} for strict in (True, False)
    }
    mixed = (
        [] if [len(found) for found in hashes.values()] == [1, 1] and hashes[True] != hashes[False] else [str(hashes)]
    )
    return mixed + [fault for side in sides for fault in faults(system, side)]


def test_two_runs_of_one_session_share_nothing(system: System) -> None:
    assert all_faults(system, ROUNDS) == []


@pytest.mark.full
def test_the_test_sees_runs_that_do_meet(new_system: Callable[..., System]) -> None:
    """The same, with workers that keep results and effects by session and lock by action."""
    crossed = new_system(actions="tests.support.business,tests.support.crossed", deadline_s=62)
    crossed.start_control()
    found = all_faults(crossed, 2)
    assert any("noted" in fault for fault in found), found
    assert any("the record is None" in fault for fault in found), found
