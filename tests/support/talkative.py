"""An action that says in its log lines which run it belongs to, and then ends in the way its params ask for."""

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Literal

from celery import signals
from pydantic import BaseModel

from workers import Context, PermanentError, Snooze, action

End = Literal["success", "failure", "retry", "snooze", "timeout", "killed", "exit"]


class Talk(BaseModel):
    """mark: what every line of this step must be found under, the run's request_id."""

    mark: str
    end: End


class Hold(BaseModel):
    """mark: as for talk. gate: a file that is waited for."""

    mark: str
    gate: str


@action("test.hold", effect="idempotent", attempts=2, timeout_s=60, backoff_s=0.1, backoff_max_s=0.1)
def hold(params: Hold, ctx: Context) -> Hold:
    ctx.log.info("talk", mark=params.mark)
    while not Path(params.gate).exists():
        ctx.check()
        time.sleep(0.02)
    return params


@signals.task_prerun.connect(weak=False)
@signals.task_postrun.connect(weak=False)
def _say_who_we_are(**_: Any) -> None:
    """Nobody's work is being done here."""
    logging.getLogger("third.party").warning("between tasks")


@action("test.talk", effect="idempotent", attempts=2, timeout_s=1, backoff_s=0.1, backoff_max_s=0.1)
def talk(params: Talk, ctx: Context) -> Talk | Snooze:
    ctx.log.info("talk", mark=params.mark, password="hunter2")
    logging.getLogger("third.party").warning("library of %s\nsecond line, token=hunter2", params.mark)
    return _end(params, ctx)


def _end(params: Talk, ctx: Context) -> Talk | Snooze:
    if ctx.attempt > 1 or params.end == "success":
        return params
    if params.end == "snooze":
        return _snooze(params, ctx)
    if params.end == "failure":
        raise PermanentError("no")
    if params.end == "retry":
        raise RuntimeError("not yet")
    if params.end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if params.end == "exit":
        sys.exit(3)
    time.sleep(60)
    return params


def _snooze(params: Talk, ctx: Context) -> Talk | Snooze:
    """Only once, though its attempt is not counted."""
    seen = ctx.workspace.path / "snoozed"
    if seen.exists():
        return params
    seen.touch()
    return Snooze(0.1)
