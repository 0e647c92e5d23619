"""A worker that only counts: it answers to our task names, so that a chord's bookkeeping is seen without a store.

celery -A tests.support.parts worker -Q steps,control
"""

from typing import Any

from celery import Celery
from celery.exceptions import Ignore, Retry

import celeryconfig
from orchestrator import names

app = Celery("parts")
app.config_from_object(celeryconfig)
app.conf.include = []
app.conf.worker_consumer = "celery.worker.consumer:Consumer"


def note(key: str, value: str) -> None:
    """Append to a list on the server that also keeps the results."""
    app.backend.client.rpush(key, value)


@app.task(name=names.STEP, bind=True, ignore_result=True)
def step(self: Any, run_id: str, session: str, generation: int, step_id: str) -> dict[str, Any]:
    """Steps named ignore… and retry… end the way the guard ends duplicates and waits; others report their part."""
    note(f"parts:{run_id}:{generation}", step_id)
    if step_id.startswith("ignore"):
        raise Ignore
    if step_id.startswith("retry"):
        raise Retry
    return {"step_id": step_id, "status": "executed", "fence": 1}


@app.task(name=names.SETTLE, bind=True, ignore_result=True)
def settle(self: Any, **fields: Any) -> None:
    """The chord's body."""
    note(f"settled:{fields['run_id']}", str(fields["generation"]))
