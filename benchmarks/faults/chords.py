"""Runs as chords of Celery's: one task for each part, and a body that puts together what they said.

The body's task id is the run's name, so whoever knows the name can look.
"""

import os
from typing import Any, Final

from celery import Celery, chord
from celery.signals import after_task_publish, before_task_publish

from benchmarks.faults.work import END, PARTS, SENDING, SENT
from workers.faults.deeds import pass_by

BROKER: Final = "BENCH_BROKER"
VISIBLE_S: Final = 15  # visibility timeout: longer than any step may take
# A lost worker's messages are looked for every 2 s, not every 100 s.
TRANSPORT: Final = {"visibility_timeout": VISIBLE_S, "unacked_restore_interval": 2, "unacked_restore_throttle": 1}


def configure(app: Celery) -> None:
    """As somebody has it who wants no task lost: acknowledged late, given back when a child dies, connections kept."""
    app.conf.update(
        broker_url=os.environ.get(BROKER),
        result_backend=os.environ.get(BROKER),
        broker_transport_options=TRANSPORT,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        result_backend_always_retry=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
    )


def watch(total: Any) -> None:
    """Whoever sends the body of a run can be stopped before and behind that."""
    name = total.name

    def sending(sender: str, headers: dict[str, Any], **_: Any) -> None:
        if sender == name:
            pass_by(SENDING, headers["id"], END)

    def sent(sender: str, headers: dict[str, Any], **_: Any) -> None:
        if sender == name:
            pass_by(SENT, headers["id"], END)

    before_task_publish.connect(sending, weak=False)
    after_task_publish.connect(sent, weak=False)


def submit(step: Any, total: Any, run: str, world: str) -> None:
    """Send a run."""
    chord([step.s(run=run, part=part, world=world) for part in PARTS], total.s().set(task_id=run)).apply_async()


def look(app: Celery, task_id: str) -> tuple[str, Any]:
    """How a task stands: `going`, `done` and its result, or `failed` and why."""
    meta = app.backend.get_task_meta(task_id, cache=False)
    if meta["status"] == "SUCCESS":
        return "done", meta["result"]
    return ("failed", repr(meta["result"])) if meta["status"] == "FAILURE" else ("going", None)
