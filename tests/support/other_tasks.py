"""Somebody's Celery tasks, of an app of their own whose broker nobody serves, offered as actions."""

import os
from pathlib import Path
from typing import Any

from celery import Celery, shared_task
from pydantic import BaseModel

from workers import action

app = Celery("others", broker="redis://127.0.0.1:1/0")  # and so the current app, while this module is imported


class Sent(BaseModel):
    number: str
    attempt: int
    task_id: str
    key: str


def note(self: Any, what: str) -> None:
    """A line for each time that something was really done."""
    with Path(os.environ["EFFECT_LOG"]).open("a") as log:
        log.write(f"{self.request.id} {what}\n")


@app.task(bind=True, max_retries=3, default_retry_delay=0.2)
def send(self: Any, order: int, busy: int = 0) -> Sent:
    """Send an invoice; busy: how many times the other side is."""
    if self.request.retries < busy:
        raise self.retry(exc=OSError("the post is closed"))
    note(self, f"sent {order}")
    headers = self.request.headers
    return Sent(
        number=f"no. {order}", attempt=headers["attempt"], task_id=self.request.id, key=headers["idempotency_key"]
    )


@shared_task(bind=True)
def hand_over(self: Any, order: int) -> None:
    """Leave it to another task, as Celery allows."""
    self.replace(send.s(order))


send_invoice = action("others.send", effect="keyed")(send)
action("others.hand_over", effect="pure")(hand_over)


@send_invoice.compensation
def withdraw(params: Any, done: Sent | None, ctx: Any) -> None:
    """Take the invoice back."""
    with Path(os.environ["EFFECT_LOG"]).open("a") as log:
        log.write(f"{ctx.run_id} withdrew {params.order} {done.number if done else 'in doubt'}\n")
