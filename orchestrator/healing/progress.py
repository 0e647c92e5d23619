"""Does a worker make progress, or has it nothing to do? Told by its event loop once a second, judged by whoever asks.

The judge is another thread: a loop that stands still cannot say so itself.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.healing.checks import Fault, fault_of

LIVE: Final = ("loop", "pool", "memory")
END_IT: Final = "end this worker and start another; what it held is taken over"
LATE_KILL_S: Final = 10.0  # Celery kills at a task's limit; it may need a moment for it
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Pool:
    """What the event loop sees of the pool. active: task id -> time limit in seconds, of tasks that a child runs;
    waiting: ids of those that the worker has taken and no child has.
    """

    children: tuple[int, ...] = ()
    active: Mapping[str, float | None] | None = None
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """A check's fault, and since when by the monotonic clock."""

    check: str
    fault: Fault | None
    since: float | None = None


class Progress:
    """wedged_s: how long it may stand still with work to do. memory_mib: most of one process, 0: any."""

    def __init__(self, wedged_s: float, memory_mib: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._wedged_s = wedged_s
        self._memory_mib = memory_mib
        self._clock = clock
        self._ticked: float | None = None
        self._connected = False
        self._waited: float | None = None
        self._since: dict[str, float] = {}
        self.pool = Pool()

    # ---- told by the event loop

    def connect(self) -> None:
        """The loop begins to turn."""
        self._ticked = self._clock()
        self._connected = True

    def disconnect(self) -> None:
        """The loop stands still because the broker is away, or the worker ends; that is for another check to say."""
        self._connected = False

    def tick(self, pool: Pool) -> None:
        """The loop turns."""
        now = self._clock()
        active, keys = pool.active or {}, set[str]()
        keys.update(f"active {task}" for task in active)
        if len(active) < len(pool.children):
            keys.update(f"waiting {task}" for task in pool.waiting)
        if not pool.children:
            keys.add("no children")
        self._since = {key: self._since.get(key, now) for key in keys}
        self.pool = pool
        self._ticked = now

    # ---- told by who looks at the broker

    def wait(self) -> None:
        """The broker does not answer. The loop may stand still in a call to it for as long as that lasts, and then
        until its next try: Celery's heartbeat is repeated without end, and nobody is told of a lost connection.
        """
        self._waited = self._clock()

    # ---- asked by others

    def look(self) -> Iterator[Found]:
        """Each check of LIVE."""
        now = self._clock()
        yield self._loop(now)
        yield self._children(now)
        yield Found("memory", self._memory())

    def _loop(self, now: float) -> Found:
        ticked = self._ticked
        if not self._is_due(now) or ticked is None or now - ticked <= self._wedged_s:
            return Found("loop", None)
        return Found("loop", Fault(f"the event loop has not turned for {now - ticked:.0f} s", END_IT), ticked)

    def _children(self, now: float) -> Found:
        since, active = self._since, self.pool.active or {}
        for key, began in since.items():
            kind, _, task = key.partition(" ")
            limit_s = self._wedged_s
            if kind == "active":
                limit_s = (active.get(task) or self._wedged_s) + LATE_KILL_S
            if now - began > limit_s and self._is_due(now):
                return Found("pool", fault_of(_WEDGED[kind].format(task=task, s=now - began), END_IT), began)
        return Found("pool", None)

    def _is_due(self, now: float) -> bool:
        """Whether the loop has had a broker for long enough to turn."""
        return self._connected and (self._waited is None or now - self._waited > self._wedged_s)

    def _memory(self) -> Fault | None:
        if not self._memory_mib:
            return None
        pid, most = max(self.memory().items(), key=lambda item: item[1], default=(0, 0))
        if most <= self._memory_mib * 2**20:
            return None
        text = f"process {pid} has {most // 2**20} MiB, MANDOR_MEMORY_MIB is {self._memory_mib}"
        return Fault(text, "look for a leak in the actions it runs; worker_max_memory_per_child recycles its children")

    def memory(self) -> dict[int, int]:
        """Resident bytes of the worker's processes, the main one's first; empty where the system does not tell."""
        found = {}
        for pid in (os.getpid(), *self.pool.children):
            with suppress(OSError, IndexError, ValueError):
                found[pid] = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
        return found


_WEDGED: Final = {
    "active": "task {task} runs for {s:.0f} s, beyond its limit, and nothing ends it",
    "waiting": "task {task} waits for {s:.0f} s while a child is idle",
    "no": "there has been no child for {s:.0f} s",
}
