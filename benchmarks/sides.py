"""The same work, done by each side: a fan-out, a sequence, many small runs. Each call answers how long it took."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from benchmarks import bare
from benchmarks.following import Following
from benchmarks.site import wait_until
from benchmarks.tally import Tally
from schemas.canonical import hash_of
from schemas.ids import RunRef
from schemas.states import RUN_TERMINAL

ACTION: Final = "bench.nothing"


class Wrong(Exception):
    """A side did not do what it was asked, or did it more than once: its time means nothing."""


class Bare:
    """Celery alone. It is done when the last task has run. Every method answers seconds from the first message on."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def fan_out(self, width: int) -> float:
        """That many independent tasks, as a group."""
        return self._timed(width, lambda: bare.send_group(width))

    def batched_fan_out(self, width: int) -> float:
        """The same, published in one batch."""
        return self._timed(width, lambda: bare.send_batch(bare.nothing, width))

    def sequence(self, length: int) -> float:
        """One task after the other."""
        return self._timed(length, lambda: bare.send_batch(bare.hop, 1, length))

    def sequences(self, count: int, length: int) -> float:
        """That many of them at once."""
        return self._timed(count * length, lambda: bare.send_batch(bare.hop, count, length))

    def _timed(self, tasks: int, send: Callable[[], None]) -> float:
        done = self._tally.marker()
        began = time.perf_counter()
        send()
        wait_until(lambda: done() >= tasks, f"the end of {tasks} bare tasks")
        return time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class Run:
    """seconds: from the submission to the run's end; steps_s: from its first claim to its last commit."""

    seconds: float
    steps_s: float


class Mandor:
    """Ours. It is done when every run has ended, settled in the store. Times begin with the first submission."""

    def __init__(self, tally: Tally) -> None:
        from orchestrator.app import store  # both read the environment, which names our server only by now
        from orchestrator.client import Client

        self._tally = tally
        self._client = Client()
        self._views = store().views
        self.following = Following(store())

    def fan_out(self, width: int) -> Run:
        """One run of that many independent steps."""
        return self._run(plan(width, needs=[]))

    def sequence(self, length: int) -> Run:
        """One run in which each step waits for the one before it."""
        return self._run(plan(length))

    def sequences(self, count: int, length: int) -> float:
        """That many of them at once; answers seconds."""
        plans = [plan(length) for _ in range(count)]
        return self._timed(plans, count * length)[0]

    def followed(self, count: int, length: int) -> float:
        """The same while the ledger follows, which begins with nothing to be told."""
        self.following.catch_up()
        seconds = self.sequences(count, length)
        self.following.left.append(self.following.behind())
        return seconds

    def unfollowed(self, count: int, length: int) -> float:
        """The same while nothing is drained into the ledger."""
        self.following.catch_up()
        with self.following.held():
            return self.sequences(count, length)

    def _run(self, plan_text: str) -> Run:
        seconds, (ref,) = self._timed([plan_text], len(json.loads(plan_text)["steps"]))
        steps = self._views.steps(ref)
        took_ms = max(step.ended_at for step in steps) - min(step.started_at for step in steps)
        return Run(seconds, took_ms / 1000)

    def _timed(self, plans: list[str], steps: int) -> tuple[float, list[RunRef]]:
        done = self._tally.marker()
        began = time.perf_counter()
        refs = [RunRef(self._client.send(plan=text), "-") for text in plans]
        wait_until(lambda: done() >= steps, f"the end of {steps} steps")
        wait_until(lambda: self._statuses(refs) <= RUN_TERMINAL, "the end of the runs")
        took = time.perf_counter() - began
        self._check(refs, done(), steps)
        return took, refs

    def _statuses(self, refs: Iterable[RunRef]) -> set[str]:
        states = (self._views.run(ref) for ref in refs)
        return {state.status if state else "unknown" for state in states}

    def _check(self, refs: list[RunRef], done: int, steps: int) -> None:
        ends = self._statuses(refs)
        if ends != {"succeeded"} or done != steps:
            raise Wrong(f"{steps} steps were asked for, {done} were done; runs ended as {', '.join(sorted(ends))}")


def plan(length: int, **order: Any) -> str:
    """A ready plan of steps that do nothing: in sequence, or as `needs` says."""
    steps = [{"action": ACTION, "params": {}, **order} for _ in range(length)]
    return json.dumps({"plan_id": str(uuid4()), "context_hash": hash_of({}), "steps": steps})
