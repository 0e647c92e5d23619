"""A worker's health and counters, looked after from its main process. Its children know nothing of it."""

import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from orchestrator.errors import ConfigError
from orchestrator.healing import looks, roles, serving
from orchestrator.healing.checks import Fault, Look, Memory, State
from orchestrator.healing.looker import Looker, tell
from orchestrator.healing.pages import Pages
from orchestrator.healing.progress import Found, Progress
from orchestrator.healing.shown import build_info, labelled
from orchestrator.healing.watchdog import Watchdog
from orchestrator.settings import Settings
from orchestrator.telemetry import counting, facts, signals

STARTED: Final = "started"


@dataclass(frozen=True, slots=True)
class Who:
    """node: Celery's name of the worker; queues: full names of those it consumes."""

    node: str
    queues: Collection[str]


class Watch:
    """Begun before the worker waits for its services, so that it can be asked what it waits for."""

    def __init__(self, given: Settings, who: Who) -> None:
        self.settings = given
        self.role = roles.role_of(who.queues, given.prefix)
        self.progress = Progress(given.wedged_s, given.memory_mib)
        self.files: counting.Files | None = None
        self.about: dict[str, str] = {}
        self._who = who
        self._live = Memory()
        self._told = Memory()
        self._started = Memory()
        self._starting: Fault | None = Fault("it waits for its services, or is starting")
        self._dog = Watchdog()
        self._counted_in = given.home.absolute() / "metrics" / _folder_of(who.node)
        self._lookers = {check: Looker(check, look, given.health_every_s) for check, look in self._looks().items()}
        # of nobody's health but its own: no service that hangs may keep systemd waiting
        self._keeper = Looker("watch", self._keep_watch, given.health_every_s)

    def begin(self) -> None:
        """Count, look and serve from here on."""
        if self.settings.metrics:
            with self._written():
                counting.forget_old(self._counted_in.parent)
                self.files = counting.enter(self._counted_in)
        self.live()  # from here on it is known since when
        for looker in (self._keeper, *self._lookers.values()):
            looker.start()
        for check, look in looks.plugins():
            self.look_at(check, look)
        if roles.port_of(self.settings, self.role):
            self._serve()

    def does(self, queue: str) -> bool:
        """Whether this worker consumes our queue of that name."""
        return roles.does(self._who.queues, self.settings.prefix, queue)

    def look_at(self, check: str, look: Look, every_s: float | None = None) -> None:
        """Something else that readiness depends on."""
        taken = {state.check for state in self.ready()}
        name = check if check not in taken else f"{check}.plugin"
        looker = Looker(name, look, every_s or self.settings.health_every_s)
        self._lookers[name] = looker
        looker.start()

    def consuming(self) -> None:
        """The worker takes work from here on."""
        self._starting = None
        self._dog.ready()

    def stopping(self) -> None:
        """It takes no more."""
        self._starting = Fault("it shuts down")

    # ---- what is shown

    def live(self) -> list[State]:
        """The checks of liveness, as of now."""
        states = []
        for found in self._look_at_progress():
            since = None if found.since is None else time.time() - (time.monotonic() - found.since)
            states.append(self._live.note(found.check, found.fault, since)[0])
        return states

    def ready(self) -> list[State]:
        """The checks of readiness, as they were last looked at."""
        started, _ = self._started.note(STARTED, self._starting)
        lookers = tuple(self._lookers.values())  # one may join meanwhile
        return [started, *(looker.state() for looker in lookers)]

    def collect(self) -> Iterator[Metric]:
        """What the processes of this worker have counted, and what it is like now. Called by prometheus-client."""
        if self.files is not None:
            counted = self.files.read()
            yield from counting.shown(counted.families.values())
            yield from counted.gauges
            yield labelled(
                "mandor_metrics_files",
                "Files of counters.",
                "state",
                {"live": counted.live, "unreadable": counted.unreadable},
            )
        yield from self._present()

    def _present(self) -> Iterator[Metric]:
        pool, memory = self.progress.pool, self.progress.memory()
        busy = len(pool.active or {})
        counts = {"busy": busy, "idle": max(0, len(pool.children) - busy)}
        yield labelled("mandor_worker_processes", "Children of this worker.", "state", counts)
        own, *others = memory.values() or (0,)
        sizes = {"parent": own, "children": sum(others), "largest": max((own, *others))}
        yield labelled("mandor_worker_memory_bytes", "Resident memory.", "process", sizes)
        checks = {state.check: float(state.ok) for state in (*self.live(), *self.ready())}
        yield labelled("mandor_health", "1: the check is satisfied.", "check", checks)
        yield build_info()

    # ---- inside

    def _looks(self) -> dict[str, Look]:
        services = looks.Services(self.settings)
        found = looks.of_services(services)
        if self.does("supervise"):
            found["passes"] = services.look_at_passes
        if self.does("deliver"):
            found["secrets"] = services.look_at_secrets
        if self.settings.metrics:
            found["counters"] = self._fold
        return found

    def _fold(self) -> None:
        if self.files is not None:
            with self._written():
                self.files.fold()

    @contextmanager
    def _written(self) -> Iterator[None]:
        """ConfigError: the files of counters cannot be written."""
        try:
            yield
        except OSError as wrong:
            message = f"cannot count in {self._counted_in}: {wrong.strerror or wrong}"
            mend = "let this worker's user write there, make room, name another folder, or set MANDOR_METRICS=false"
            raise ConfigError(message, path="MANDOR_HOME", hint=mend) from wrong

    def _keep_watch(self) -> None:
        """What must be told, whoever asks."""
        failing = [state for state in self._tell_live() if not state.ok]
        if not failing:
            self._dog.alive()

    def _look_at_progress(self) -> Iterator[Found]:
        """A loop that waits for the broker is alive."""
        if not self._lookers["broker"].state().ok:
            self.progress.wait()
        return self.progress.look()

    def _tell_live(self) -> list[State]:
        """Nobody may ever ask: what changes is told all the same."""
        states = []
        for found in self._look_at_progress():
            state, before = self._told.note(found.check, found.fault)
            if before is not None:
                tell(state, before)
            states.append(state)
        return states

    def _serve(self) -> None:
        given, role = self.settings, self.role
        registry = CollectorRegistry()
        registry.register(self)
        pages = Pages(role, self.live, self.ready, registry, self.about)
        try:
            url = serving.serve(
                pages, given.health_address, roles.port_of(given, role), named=roles.is_port_named(role)
            )
        except ConfigError as taken:
            mend = f"set {roles.variable_of(role)} to another port for this worker, or to 0"
            facts.emit(signals.HealthNotServed(role, taken.message, mend))
            return
        serving.remember(given.home, role, url)
        facts.emit(signals.HealthServed(role, url))


def _folder_of(node: str) -> str:
    return re.sub(r"[^\w@.-]", "_", node)


# ---- one a process

_current: list[Watch] = []


def current() -> Watch | None:
    """This process's, if it is the main process of a worker."""
    return _current[0] if _current else None


def begin(given: Settings, who: Who) -> Watch:
    """Watch over this process from here on."""
    _current[:] = [Watch(given, who)]
    _current[0].begin()
    return _current[0]
