"""What Celery's workers tell of their tasks, as Flower hears it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

LISTEN_S = 0.2


@dataclass
class TaskEvents:
    """Task ids in the order in which workers received them."""

    received: list[str] = field(default_factory=list)

    def count(self, task_id: str) -> int:
        return self.received.count(task_id)

    def hear(self, event: dict[str, Any]) -> None:
        self.received.append(event["uuid"])


@contextmanager
def task_events(app: Celery) -> Iterator[TaskEvents]:
    """Listens inside the block."""
    heard = TaskEvents()
    with listening_to(app, "task-received", heard.hear):
        yield heard


@contextmanager
def listening_to(app: Celery, kind: str, hear: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Hears each event of a kind, `*` of all, inside the block, on a thread."""
    listening, over = threading.Event(), threading.Event()

    def listen() -> None:
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection, handlers={kind: hear})
            with receiver.consumer_context() as (its_own, _, _):
                listening.set()
                while not over.is_set():
                    with suppress(TimeoutError):
                        its_own.drain_events(timeout=LISTEN_S)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert listening.wait(10)
    try:
        yield
    finally:
        over.set()
        thread.join(10)
