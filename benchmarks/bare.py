"""Celery without us, as somebody would write it who wants it fast and safe: the side to be compared with.

The same broker server, late acknowledgement, no results, no events, and a prefetch that keeps its children busy. It
publishes with `group`, Celery's own way, and once more in one batch of kombu's, as Mandor does inside.
"""

import os
from typing import Any, Final

from celery import Celery, group

from benchmarks import tally

BROKER: Final = "BENCH_BROKER"

app = Celery("bare", broker=os.environ.get(BROKER))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=16,
    broker_connection_retry_on_startup=True,
)


@app.task(name="bare.nothing")
def nothing() -> None:
    """What a step of the contests does, too."""
    tally.add()


@app.task(name="bare.hop")
def hop(left: int) -> None:
    """Send the next one, until none is left. A `chain` would carry all that is left in every message."""
    tally.add()
    if left > 1:
        hop.delay(left - 1)


def send_group(count: int) -> None:
    """Publish that many independent tasks."""
    group([nothing.s() for _ in range(count)]).apply_async()


def send_batch(task: Any, count: int, *arguments: Any) -> None:
    """Publish one task that many times in one batch."""
    with app.producer_or_acquire() as producer, producer.batch():
        for _ in range(count):
            task.apply_async(arguments, producer=producer)
