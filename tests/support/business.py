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
    """Leave value in the effect log; the first attempt hold_s seconds after a line that says it began.

    gate: a file the first attempt waits for instead. linger_s: how long it goes on after its effect. deaf: it does not
    ask whether it should stop. raises: after its effect it fails. undo_hold_s, undo_failures: how its first undo lasts,
    how many undos fail.
    """

    value: Annotated[str, Referable]
    hold_s: float = Field(default=0.0, ge=0, le=600)
    gate: str = ""
    linger_s: float = Field(default=0.0, ge=0, le=600)
    deaf: bool = False
    raises: bool = False
    undo_hold_s: float = Field(default=0.0, ge=0, le=600)
    undo_failures: int = Field(default=0, ge=0, le=100)


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
    """The effect log's lines, but for one that is being written."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@action("test.echo", effect="pure")
def echo(params: Echo, ctx: Context) -> Value:
    time.sleep(random.uniform(0, params.delay_s))
    return Value(value=params.value)


@action("test.note", effect="idempotent")
def note(params: Note, ctx: Context) -> Value:
    wait(params, ctx)
    log_effect(ctx, "noted", params.value)
    hold(params.linger_s if ctx.attempt == 1 else 0, ctx, deaf=params.deaf)
    if params.raises:
        raise RuntimeError("the answer did not come")
    return Value(value=params.value)


def wait(params: Note, ctx: Context) -> None:
    log_effect(ctx, "began", params.value)
    if ctx.attempt == 1:
        hold(params.hold_s, ctx, deaf=params.deaf)
        while params.gate and not Path(params.gate).exists():
            hold(0.02, ctx, deaf=params.deaf)


def hold(seconds: float, ctx: Context, *, deaf: bool) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not deaf:
            ctx.check()
        time.sleep(0.02)


def stands(ctx: Context) -> bool:
    """Whether the effect log has the step's effect, and has it not undone."""
    lines = [line for line in effects(Path(os.environ["EFFECT_LOG"])) if line["run_id"] == ctx.run_id]
    mine = [line["what"] for line in lines if line["step_id"] == ctx.step_id]
    return mine.count("noted") > mine.count("undone")


@note.compensation
def take_back(params: Note, done: Value | None, ctx: Context) -> None:
    """Look what stands, and leave a line that it is undone; or one that there was nothing to undo."""
    log_effect(ctx, "undoing", params.value)
    if ctx.attempt <= params.undo_failures:
        raise RuntimeError("not yet")
    hold(params.undo_hold_s if ctx.attempt == 1 else 0, ctx, deaf=False)
    log_effect(ctx, "undone" if stands(ctx) else "found_nothing", params.value)


@action("test.ponder", effect="pure")
def ponder(params: Note, ctx: Context) -> Value:
    """Holds up as note does, and leaves nothing but the line that it began."""
    wait(params, ctx)
    return Value(value=params.value)


@action("test.order", effect="keyed")
def order(params: Note, ctx: Context) -> Value:
    """Like note, with an effect row: what is noted here was opened first."""
    return note(params, ctx)


@action("test.send", effect="once")
def send(params: Note, ctx: Context) -> Value:
    """Like note, and nobody may do it twice."""
    return note(params, ctx)


@action("test.wire", effect="once")
def wire(params: Note, ctx: Context) -> Value:
    """Like send, and it can be taken back."""
    return note(params, ctx)


@action("test.until_told", effect="pure", attempts=1)
def until_told(params: Value, ctx: Context) -> Value:
    """Fails for good until there is a file `told` beside the effect log."""
    if not (Path(os.environ["EFFECT_LOG"]).parent / "told").exists():
        raise PermanentError("nobody has told me")
    return params


@action("test.later", effect="pure", queue="later")
def later(params: Value, ctx: Context) -> Value:
    """From a queue that only those take from who have been told to."""
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


@action("test.post", effect="once")
def post(params: Note, ctx: Context) -> Value:
    """Like note, for somebody who knows no keys."""
    return note(params, ctx)


@post.probe
def find_post(params: Note, ctx: Context) -> Value | None:
    """The effect log knows."""
    log_effect(ctx, "asked", params.value)
    return Value(value=params.value) if stands(ctx) else None


@action("test.book", effect="transactional")
def book(params: Note, ctx: Context) -> Value:
    """Like note, its line written only if its transaction is."""
    wait(params, ctx)
    result = Value(value=params.value)
    with ctx.ledger().begin() as connection:
        ctx.effect(connection, result)
    log_effect(ctx, "noted", params.value)
    return result


@book.compensation
def cancel_booking(params: Note, done: Value | None, ctx: Context) -> None:
    with ctx.ledger().begin() as connection:
        ctx.effect(connection, None)
    take_back(params, done, ctx)


@action("test.file", effect="keyed")
def file(params: Note, ctx: Context) -> Value:
    """Like order, and who takes it back wants to know which files the run has."""
    return note(params, ctx)


@file.compensation
def take_file_back(params: Note, done: Value | None, ctx: Context) -> None:
    take_back(params, done, ctx)
    log_effect(ctx, "found", " ".join(sorted(path.name for path in ctx.workspace.path.iterdir())))


order.compensation(take_back)
wire.compensation(take_back)
post.compensation(take_back)


@action("test.sleep_for_ever", effect="pure", timeout_s=1, attempts=2)
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
