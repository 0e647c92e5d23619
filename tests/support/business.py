"""Actions of the system tests, loaded by real workers through MANDOR_ACTIONS.

What they do outside is one line in an effect log, a file that belongs to no run and no worker: EFFECT_LOG names it.
"""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from workers import Context, PermanentError, PlanContext, Referable, Snooze, action, planner


class Value(BaseModel):
    value: str


class Echo(BaseModel):
    """Answer with value, after a moment of up to delay_s seconds."""

    value: Annotated[str, Referable]
    delay_s: float = Field(default=0.0, ge=0, le=60)


class Note(BaseModel):
    """Leave value in the effect log; the first attempt hold_s seconds after a line that says it began."""

    value: Annotated[str, Referable]
    hold_s: float = Field(default=0.0, ge=0, le=600)
    deaf: bool = False


class Flaky(BaseModel):
    """Fail so many times, then answer. for_good: fail without another attempt."""

    failures: int = Field(ge=0, le=100)
    for_good: bool = False


def log_effect(ctx: Context, what: str, value: str) -> None:
    """One line, appended in one write: lines of several processes do not mix."""
    line = {
        "what": what,
        "run_id": ctx.run_id,
        "step_id": ctx.step_id,
        "attempt": ctx.attempt,
        "fence": ctx.fencing_token,
        "value": value,
        "pid": os.getpid(),
        "at": time.time(),
    }
    with Path(os.environ["EFFECT_LOG"]).open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def effects(path: Path) -> list[dict[str, Any]]:
    """The effect log's lines."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@action("test.echo", effect="pure")
def echo(params: Echo, ctx: Context) -> Value:
    time.sleep(random.uniform(0, params.delay_s))
    return Value(value=params.value)


@action("test.note", effect="idempotent")
def note(params: Note, ctx: Context) -> Value:
    log_effect(ctx, "began", params.value)
    held = time.monotonic() + (params.hold_s if ctx.attempt == 1 else 0)
    while time.monotonic() < held:
        if not params.deaf:
            ctx.check()
        time.sleep(0.02)
    log_effect(ctx, "noted", params.value)
    return Value(value=params.value)


@action("test.order", effect="keyed")
def order(params: Note, ctx: Context) -> Value:
    """Like note, with an effect row: what is noted here was opened first."""
    return note(params, ctx)


@action("test.send", effect="once")
def send(params: Note, ctx: Context) -> Value:
    """Like note, and nobody may do it twice."""
    return note(params, ctx)


@action("test.until_told", effect="pure", attempts=1)
def until_told(params: Value, ctx: Context) -> Value:
    """Fails for good until there is a file `told` beside the effect log."""
    if not (Path(os.environ["EFFECT_LOG"]).parent / "told").exists():
        raise PermanentError("nobody has told me")
    return params


def die(params: Value, ctx: Context) -> Value:
    """What a bad extension module does; `all`: and wait for somebody to end the whole worker."""
    log_effect(ctx, "dying", params.value)
    if params.value == "all":
        time.sleep(3600)
    os.kill(os.getpid(), signal.SIGKILL)
    return params


action("test.die", effect="pure", attempts=2)(die)
action("test.die_keyed", effect="keyed", attempts=2)(die)


@planner("test.die")
def die_planning(ctx: PlanContext) -> str:
    """The same, while planning."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ctx.goal or ""


@action("test.sleep_for_ever", effect="idempotent", timeout_s=1, attempts=2)
def sleep_for_ever(params: Value, ctx: Context) -> Value:
    log_effect(ctx, "began", params.value)
    while True:
        time.sleep(3600)


@action("test.flaky", effect="pure", attempts=3)
def flaky(params: Flaky, ctx: Context) -> Value:
    log_effect(ctx, "tried", "")
    if params.for_good:
        raise PermanentError("it will never work")
    if ctx.attempt <= params.failures:
        raise RuntimeError("not yet")
    return Value(value=str(ctx.attempt))


@action("test.snooze", effect="pure")
def snooze(params: Flaky, ctx: Context) -> Value | Snooze:
    log_effect(ctx, "tried", "")
    tried = sum(line["step_id"] == ctx.step_id for line in effects(Path(os.environ["EFFECT_LOG"])))
    return Value(value=str(ctx.attempt)) if tried > params.failures else Snooze(0.2)
