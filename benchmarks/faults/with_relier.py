"""Celery with relier 0.1, as its documentation has it: `rl_task`, idempotent, with time limits, sent with `push`.

Blocking work goes to a thread, as it says, so that heart-beats go on. The parts of a run are joined by whoever sent
them: relier makes single tasks reliable, and a chord's signatures go past its envelope. The app is relier's own; what
is set besides keeps connections up, and lets a killed worker's unstarted messages come back before an hour is over.
"""

import asyncio
from typing import Any, Final

from relier import rl_task
from relier.tasks.app import celery_app as app

from benchmarks.faults import chords
from benchmarks.faults.work import LIMIT_S, PARTS, act

app.conf.update(
    broker_transport_options=chords.TRANSPORT,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    result_backend_always_retry=True,
)
sent: Final[dict[str, list[str]]] = {}  # ids of each run's tasks


@rl_task(queue="default", idempotent=True, idempotency_ttl=3600, soft_timeout=LIMIT_S - 1, hard_timeout=LIMIT_S)
async def step(run: str, part: str, world: str) -> str:
    """One part of a run."""
    return await asyncio.to_thread(act, run, part, world)


def submit(run: str, world: str) -> None:
    """Send a run."""
    sent[run] = [step.push(run=run, part=part, world=world).id for part in PARTS]


def look(run: str) -> tuple[str, Any]:
    """How it stands: done once all parts are, failed if one is."""
    stand = [chords.look(app, task_id) for task_id in sent[run]]
    words, results = zip(*stand, strict=True)
    if "failed" in words:
        return "failed", [result for word, result in stand if word == "failed"]
    return ("going", None) if "going" in words else ("done", list(results))
