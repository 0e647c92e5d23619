"""What lies in store, ledger and broker, read when Prometheus asks; docs/metrics.md says what each gauge means.

Each part stands alone: one whose service is away is left out, and says so in `mandor_…_up`.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from orchestrator import bound, dispatch, names
from orchestrator.errors import MandorError
from orchestrator.healing import looks, passes
from orchestrator.healing.looks import Services
from orchestrator.healing.shown import build_info, labelled
from orchestrator.ledger import Census
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.views import Backlog
from orchestrator.within import begin
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef
from schemas.states import RUN_TERMINAL

PATIENCE_S: Final = 0.5
PART_S: Final = 2.0
CLOSED_RUNS: Final = 20  # of a shard, that are looked at for one the ledger does not know yet


class Part:
    """One service's gauges. One that hangs is not asked again before it has come back."""

    def __init__(self, name: str, read: Callable[[], Iterable[Metric]]) -> None:
        self._name = name
        self._read = read
        self._hanging: Future[list[Metric]] | None = None

    def read(self) -> list[Metric]:
        """What can be read in time; nothing if the service is away."""
        if self._hanging is not None and not self._hanging.done():
            return []
        self._hanging = begin(lambda: list(self._read()), self._name)
        try:
            return self._hanging.result(PART_S)
        except (MandorError, TimeoutError):
            return []


class Gauges:
    """A collector of prometheus-client's."""

    def __init__(self, given: Settings, app: dispatch.App) -> None:
        self._settings = given
        self._app = app
        self._services = Services(given, PATIENCE_S)
        self._first_seen: dict[str, tuple[str, float]] = {}
        reads = {"store": self._store, "ledger": self._ledger, "broker": self._broker, "both": self._both}
        self._parts = {name: Part(name, read) for name, read in reads.items()}

    def collect(self) -> Iterator[Metric]:
        """Everything that can be read now."""
        began = time.perf_counter()
        for name in ("store", "ledger", "broker"):
            found = self._parts[name].read()
            yield from found
            yield _gauge(f"mandor_{name}_up", f"1: the {name} answered.", float(bool(found)))
        yield from self._parts["both"].read()
        yield build_info()
        yield _gauge("mandor_exporter_seconds", "Time that this answer took.", time.perf_counter() - began)

    # ---- the store

    def _store(self) -> Iterator[Metric]:
        store = self._services.store
        yield labelled("mandor_shards", "Shards by whom they belong to.", "state", looks.shard_states(store))
        ages: dict[str, float] = {duty: math.inf if age is None else age for duty, age in passes.ages_s(store).items()}
        yield labelled(
            "mandor_pass_age_seconds", "Since the last pass over the shard that waits longest.", "duty", ages
        )
        yield from self._due(store)
        yield _gauge("mandor_clock_skew_seconds", "The store's clock against this host's.", skew_s(store))
        about = store.admin.info("memory")
        used, limit = float(about.get("used_memory", 0)), float(about.get("maxmemory", 0) or 0)
        yield _gauge("mandor_store_memory_bytes", "Memory of the store's server.", used)
        yield _gauge("mandor_store_memory_limit_bytes", "What it may have; 0: any.", limit)

    def _due(self, store: Store) -> Iterator[Metric]:
        now = store.now_ms()
        found = store.views.backlogs(now)
        members: dict[str, float] = {duty: sum(one.members for one in backlogs) for duty, backlogs in found.items()}
        overdue: dict[str, float] = {
            duty: max(_late_s(one, now) for one in backlogs) for duty, backlogs in found.items()
        }
        yield labelled("mandor_due_members", "Runs and steps that supervisors will look at.", "duty", members)
        yield labelled("mandor_due_overdue_seconds", "How long the first waits to be looked at.", "duty", overdue)
        stale = sum(one.overdue for one in found["leases"])
        yield _gauge("mandor_leases_stale", "Claims whose lease is over and that nobody has ended.", stale)
        yield _gauge("mandor_waits", "Steps that wait for a person.", members["waits"])

    # ---- the ledger

    def _ledger(self) -> Iterator[Metric]:
        census, now = self._services.ledger.census(self._settings.namespace), self._services.ledger.now_ms()
        yield _gauge("mandor_runs_open", "Runs without an end in the ledger.", census.open_runs)
        yield _gauge("mandor_runs_open_oldest_seconds", "Age of the oldest of them.", _age_s(now, census.oldest_run))
        yield _gauge("mandor_decisions_waiting", "Decisions that were not carried out yet.", census.decisions)
        age_s = _age_s(now, census.oldest_decision)
        yield _gauge("mandor_decisions_oldest_seconds", "Age of the oldest of them.", age_s)
        letters = {kind.value: census.letters.get(kind.value, 0) for kind in DeadLetterKind}
        yield labelled("mandor_dead_letters", "Letters that nobody has dealt with.", "kind", letters)

        yield _gauge("mandor_callbacks_waiting", "Ends of runs that are still to be told.", census.callbacks)
        late_s = _age_s(now, census.oldest_callback)
        yield _gauge("mandor_callbacks_overdue_seconds", "Since when the first of them is due.", late_s)

    # ---- what only both together know

    def _both(self) -> Iterator[Metric]:
        store, census = self._services.store, self._services.ledger.census(self._settings.namespace)
        late, lag_s = past_bound(store, census, self._settings), ledger_lag_s(store)
        yield _gauge("mandor_runs_past_bound", "Open runs that should have ended by now, whatever happened.", late)
        yield _gauge("mandor_ledger_lag_seconds", "Since when a transition waits for the ledger to know.", lag_s)
        undrained = max(store.stream.lengths())
        yield _gauge("mandor_ledger_undrained", "Transitions that the ledger does not know, of one shard.", undrained)

    # ---- the broker

    def _broker(self) -> Iterator[Metric]:
        depths = {name: looks.queue_depth(self._settings, name) for name in names.QUEUES}
        yield labelled("mandor_queue_messages", "Messages ready.", "queue", depths)
        ages = {name: self._oldest_s(name) if depths[name] else 0.0 for name in names.QUEUES}
        known = {name: age for name, age in ages.items() if age is not None}
        yield labelled("mandor_queue_oldest_seconds", "Age of the oldest message.", "queue", known)

    def _oldest_s(self, name: str) -> float | None:
        """Since when the store says that it was sent; of others, since when it has been the oldest one here."""
        waiting = dispatch.oldest_message(self._app, names.queue(self._settings.prefix, name))
        if waiting is None:
            self._first_seen.pop(name, None)
            return None
        now = time.monotonic()
        seen, since = self._first_seen.get(name, ("", now))
        if seen != waiting.id:
            since = now
        self._first_seen[name] = (waiting.id, since)
        return max(now - since, self._sent_s_ago(waiting.fields))

    def _sent_s_ago(self, fields: Mapping[str, Any]) -> float:
        try:
            ref, store = RunRef(fields["run_id"], fields["session"]), self._services.store
            sent = sent_at(store, ref, fields.get("step_id"))
            return max(0.0, (store.now_ms() - sent) / 1000) if sent else 0.0
        except (MandorError, LookupError, ValueError, TypeError):
            return 0.0


def sent_at(store: Store, ref: RunRef, step_id: str | None) -> int:
    """When the message about a step, or about the planning of a run, was last sent; 0: nobody knows."""
    if step_id is None:
        run = store.views.run(ref)
        return run.plan.dispatched_at if run else 0
    step = store.views.step(ref, step_id)
    return step.dispatched_at if step else 0


def past_bound(store: Store, census: Census, settings: Settings) -> int:
    """How many of the overdue runs have gone beyond their last possible moment."""
    now, late = store.now_ms(), 0
    for ref in census.overdue:
        run = store.views.run(ref)
        late += run is None or (not run.ended_at and bound.ended_by(run, store.views.steps(ref), settings) < now)
    return late


def ledger_lag_s(store: Store) -> float:
    """How long ago the first transition, or the first end of a run, happened that the ledger does not know."""
    now = store.now_ms()
    oldest = min(now, store.stream.oldest_at() or now)
    for ref in store.views.first_due("settles", CLOSED_RUNS):
        run = store.views.run(ref)
        if run is not None and run.status in RUN_TERMINAL and run.ended_at:
            oldest = min(oldest, run.ended_at)
    return max(0.0, (now - oldest) / 1000)


def skew_s(store: Store) -> float:
    """How far the store's clock is ahead of this host's."""
    before = time.time()
    there = store.now_ms() / 1000
    return there - (before + time.time()) / 2


def _late_s(one: Backlog, now: int) -> float:
    return max(0.0, (now - one.first) / 1000) if one.first is not None else 0.0


def _age_s(now: int, at: int | None) -> float:
    return max(0.0, (now - at) / 1000) if at is not None else 0.0


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
