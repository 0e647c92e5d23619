"""Loaded by real workers through MANDOR_ACTIONS: holds an attempt at one place, so that a test can interrupt it there.

The step's id names the place, or two joined by a hyphen. The first attempt that comes there leaves a line `held` in the
effect log, and waits for a file `go.<place>` beside that log. It listens to nobody: what ends it is a signal.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.ledger import Closed, EffectRows
from orchestrator.store.guard import Guard
from orchestrator.store.replies import TooOften
from tests.support.business import Note, Value, log_effect
from workers import Context, action
from workers.attempt import Attempt

POPPED, CLAIMED, OPENED, ACTED, LANDED, COMMITTED = "popped", "claimed", "opened", "acted", "landed", "committed"
REFUSED, GIVEN_UP = "refused", "given_up"


def hold_at(place: str, run_id: str, step_id: str) -> None:
    """Wait here, if this is where the step is to be interrupted and it has not been yet."""
    log = Path(os.environ["EFFECT_LOG"])
    if place not in step_id.split("-") or not first_of(log.with_name(f"{run_id}.{place}")):
        return
    line = {"what": "held", "run_id": run_id, "step_id": step_id, "value": place, "pid": os.getpid(), "at": time.time()}
    with log.open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")
    while not log.with_name(f"go.{place}").exists():
        time.sleep(0.02)


def first_of(mark: Path) -> bool:
    """Whether nobody has left this mark before."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def holding(
    owner: Any,
    name: str,
    ids: Callable[..., tuple[str, str]],
    before: str = "",
    after: str = "",
    where: Callable[[Any], bool] = bool,
) -> None:
    """Make a method hold before it does anything, and once it has done it. where: if its answer is such a one."""
    original = getattr(owner, name)

    def call(self: Any, *given: Any, **more: Any) -> Any:
        hold_at(before, *ids(self, *given))
        answer = original(self, *given, **more)
        if where(answer):
            hold_at(after, *ids(self, *given))
        return answer

    setattr(owner, name, call)


def of_attempt(attempt: Any, *_: Any) -> tuple[str, str]:
    return attempt.message.run_id, attempt.message.step_id


def of_ref(_: Any, ref: Any, step_id: str, *__: Any) -> tuple[str, str]:
    return ref.run_id, step_id


def of_row(_: Any, run_id: str, step_id: str, *__: Any) -> tuple[str, str]:
    return run_id, step_id


if "EFFECT_LOG" in os.environ:  # a worker's process: a test only needs the names
    holding(Guard, "claim_step", of_ref, before=POPPED)
    holding(Attempt, "params", of_attempt, before=CLAIMED)
    holding(EffectRows, "open", of_row, after=OPENED)
    holding(EffectRows, "land", of_row, before=ACTED, after=REFUSED, where=lambda answer: isinstance(answer, Closed))
    holding(Guard, "complete_step", of_ref, before=LANDED, after=COMMITTED)
    holding(Guard, "hand_back", of_ref, after=GIVEN_UP, where=lambda answer: isinstance(answer, TooOften))


@action("test.look", effect="pure")
def look(params: Note, ctx: Context) -> Value:
    """A pure step that can be counted all the same."""
    log_effect(ctx, "noted", params.value)
    return Value(value=params.value)
