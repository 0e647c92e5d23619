"""Celery with idemkit 1.0, as its documentation has it for Celery: `idempotent_sync` under the task's own decorator.

The key are the arguments that say which operation it is; runs are scopes; a call that finds another one under way waits
and is tried again later. The lease is as long as Mandor's here, and is renewed while the body works.
"""

import os
from typing import Any

from celery import Celery
from idemkit import IdempotencyConflict, MethodConfig, RedisBackend, StorageUnavailable, idempotent_sync

from benchmarks.faults import chords
from benchmarks.faults.work import LIMIT_S, act

app = Celery("with_idemkit")
chords.configure(app)
again = {"autoretry_for": (IdempotencyConflict, StorageUnavailable), "max_retries": 20, "retry_backoff_max": 5}


@app.task(name="idemkit.step", time_limit=LIMIT_S, retry_backoff=True, **again)
@idempotent_sync(
    backend=RedisBackend.from_url(os.environ[chords.BROKER]),
    config=MethodConfig(
        key_fields=["part"], scope=lambda given: given["run"], lease_ttl_seconds=3, wait_timeout_seconds=3
    ),
)
def step(run: str, part: str, world: str) -> str:
    """One part of a run."""
    return act(run, part, world)


@app.task(name="idemkit.total")
def total(said: list[str]) -> list[str]:
    """The run's result."""
    return said


chords.watch(total)


def submit(run: str, world: str) -> None:
    """Send a run."""
    chords.submit(step, total, run, world)


def look(run: str) -> tuple[str, Any]:
    """How it stands."""
    return chords.look(app, run)
