"""Who takes part: how each side is started, how it is set, and what of the harm its own documentation leaves out."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.faults import chords
from benchmarks.faults.work import LIMIT_S, SESSION
from benchmarks.site import ROOT
from orchestrator.local import Command, surroundings
from orchestrator.policies import FROM_BROKER
from schemas.ids import run_id_for
from workers.faults import hands, installation

Environment = Mapping[str, str]
SLOTS: Final = 6  # of each of the two step workers


@dataclass(frozen=True)
class Side:
    """package: what has to be installed for it. module: its tasks, and how a caller sends runs and looks at them.

    commands: its processes; variables: what they need in their environment besides the server.
    not_promised: scenarios for whose double effects or lost runs it says itself that it is not made. sends: whether its
    workers send what ends a run, once its parts are done; known_as: by which id they know a run.
    """

    name: str
    module: str
    settings: str
    commands: Callable[[Environment], list[Command]]
    variables: Callable[[Path, str], Environment]
    package: str | None = None
    not_promised: frozenset[str] = frozenset()
    prepare: Callable[[Environment], None] = lambda _: None
    sends: bool = True
    known_as: Callable[[str], str] = lambda run: run

    def environment(self, home: Path, url: str, libraries: Path) -> dict[str, str]:
        """All that its processes are started with."""
        path = f"{libraries}:{ROOT}" if self.package else str(ROOT)
        return {**self.variables(home, url), "PYTHONPATH": path, "TMPDIR": str(home / "tmp")}


# ---- Celery's


def _workers(app: str, *options: str) -> Callable[[Environment], list[Command]]:
    def commands(env: Environment) -> list[Command]:
        argv = [sys.executable, "-m", "celery", "-A", app, "worker", "-l", "INFO", "--without-gossip", *options]
        return [
            Command(name, [*argv, *hands.slots_of(name, SLOTS)], env=env, ready=r"\bready\.")
            for name in hands.STEP_WORKERS
        ]

    return commands


def _broker(_: Path, url: str) -> Environment:
    return {**surroundings.clean(), chords.BROKER: url}


CHORD: Final = (
    f"a chord; two workers of {SLOTS} slots, as all have; task_acks_late, task_reject_on_worker_lost, prefetch 1, "
    f"time limit {LIMIT_S} s, visibility timeout {chords.VISIBLE_S} s, looked after every 2 s, "
    "result_backend_always_retry"
)
CELERY: Final = Side(
    name="celery",
    module="benchmarks.faults.bare",
    settings=CHORD,
    commands=_workers("benchmarks.faults.bare"),
    variables=_broker,
    not_promised=frozenset({"S4", "S5", "S6", "S8", "S9", "S12"}),
)
IDEMKIT: Final = Side(
    name="idemkit",
    module="benchmarks.faults.with_idemkit",
    settings=(
        "the same, the body behind idempotent_sync: Redis, lease 3 s, waits 3 s; conflicts, and a store that is away, "
        "are tried again 20 times, at most 5 s apart"
    ),
    commands=_workers("benchmarks.faults.with_idemkit"),
    variables=_broker,
    package="idemkit[redis]==1.0.2",
    not_promised=frozenset({"S1", "S2", "S5", "S6", "S9", "S12"}),
)


# ---- relier's own app, with its resurrector

INFLIGHT_S: Final = LIMIT_S + 11  # how long a task in flight holds its key
RELIER_SETTINGS: Final = {
    "RELIER_ENV": "production",
    "RELIER_SECRET_KEY": "of-a-bench-that-is-thrown-away-afterwards",
    "RELIER_HEARTBEAT_TTL": "3",
    "RELIER_RESURRECTION_CHECK_INTERVAL": "1",
    "RELIER_IDEMPOTENCY_INFLIGHT_TTL": str(INFLIGHT_S),
    "RELIER_SOFT_TIMEOUT": str(LIMIT_S - 1),
    "RELIER_HARD_TIMEOUT": str(LIMIT_S),
}
RELIER_QUEUES: Final = "high_priority,default,low_priority,re-queue"


def _relier(env: Environment) -> list[Command]:
    tasks = ("-Q", RELIER_QUEUES, "--include", "benchmarks.faults.with_relier", "--time-limit", str(LIMIT_S + 2))
    argv = [sys.executable, "-c", "from relier.cli.main import app; app()", "run-resurrector"]
    return [*_workers("relier.tasks.app", *tasks)(env), Command("resurrector", argv, env=env)]


def _for_relier(home: Path, url: str) -> Environment:
    return {**_broker(home, url), **RELIER_SETTINGS, "RELIER_REDIS_URL": url}


RELIER: Final = Side(
    name="relier",
    module="benchmarks.faults.with_relier",
    settings=(
        f"rl_tasks, pushed one by one: idempotent for an hour, in flight for {INFLIGHT_S} s (over 10 s more than the "
        f"time limit, as it asks for), soft_timeout {LIMIT_S - 1} s, hard_timeout {LIMIT_S} s, heart-beat 3 s, looked "
        f"after every second; a resurrector besides; Celery's time limit {LIMIT_S + 2} s, visibility timeout "
        f"{chords.VISIBLE_S} s"
    ),
    commands=_relier,
    variables=_for_relier,
    package="relier==0.1.7",
    not_promised=frozenset({"S6"}),
    sends=False,
)


# ---- ours


def _ours(env: Environment) -> list[Command]:
    return hands.commands(env, kit=(), slots=SLOTS)


def _for_ours(home: Path, url: str) -> Environment:
    return installation.environment(home, url, "benchmarks.faults.with_mandor")


def _upgrade(env: Environment) -> None:
    argv: Sequence[str] = [sys.executable, "-m", "workers.cli", "ledger", "upgrade"]
    subprocess.run(argv, env=dict(env), check=True, capture_output=True)


HASTE: Final = ", ".join(f"MANDOR_{name.upper()}={seconds:g}" for name, seconds in installation.HASTE.items())
MANDOR: Final = Side(
    name="mandor",
    module="benchmarks.faults.with_mandor",
    settings=(
        f"the Procfile without {', '.join(hands.LEFT_OUT)}, with two step workers; effects once, with a probe where "
        f"the world can be asked, or keyed; on_failure stop, timeout {LIMIT_S} s; {HASTE}; no metrics; else "
        "as it ships"
    ),
    commands=_ours,
    variables=_for_ours,
    prepare=_upgrade,
    known_as=lambda run: run_id_for(FROM_BROKER, SESSION, run),
)

SIDES: Final = {side.name: side for side in (CELERY, IDEMKIT, RELIER, MANDOR)}
