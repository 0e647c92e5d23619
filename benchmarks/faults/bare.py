"""Celery alone."""

from typing import Any

from celery import Celery

from benchmarks.faults import chords
from benchmarks.faults.work import LIMIT_S, act

app = Celery("bare")
chords.configure(app)


@app.task(name="bare.step", time_limit=LIMIT_S)
def step(run: str, part: str, world: str) -> str:
    """One part of a run."""
    return act(run, part, world)


@app.task(name="bare.total")
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
