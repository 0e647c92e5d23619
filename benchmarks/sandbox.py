"""What a sandbox costs: a trivial command on each rung that works here, in turn with the same command bare."""

import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Figure, Result
from orchestrator.settings import Settings
from schemas.policy import Rung
from workers.sandbox.jobs import Exited, Job, Limits
from workers.sandbox.ladder import Ladder, find
from workers.sandbox.ownership import hand_to
from workers.sandbox.running import run

BARE: Final = "bare"
COMMAND: Final = ("/bin/sh", "-c", "true")
LIMITS: Final = Limits(
    timeout_s=30,
    grace_s=1.0,
    cpu_s=10,
    memory_bytes=512 << 20,
    processes=64,
    kept_bytes=4096,
    output_bytes=4 << 20,
    file_bytes=256 << 20,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one command, from its start until nothing of it is left. processor_s: of all its processes together."""

    seconds: float
    processor_s: float


def sandbox(rounds: int, commands: int) -> Result:
    """So many commands a round; the last rung is measured too, though no operator allows it here."""
    found = find(Settings(min_rung=Rung.RLIMITS))
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "workspace")
        workspace.mkdir(mode=0o700)
        hand_to(workspace, found.host.uid, found.host.gid)
        taken = [in_turn(ways(found, workspace), commands) for _ in range(rounds)]
    user = "root" if found.host.uid is not None else "a user who is not root"
    return Result("sandbox", f"a trivial command by a worker of {user}", figures(taken))


def ways(found: Ladder, workspace: Path) -> dict[str, Callable[[], None]]:
    """The bare command, and what runs it on each rung."""
    job = Job(COMMAND, workspace, LIMITS)

    def fenced(rung: Rung) -> None:
        assert run(rung, found.host, job).end == Exited(0)

    on_rungs = {rung.value: lambda rung=rung: fenced(rung) for rung in found.working}
    return {BARE: lambda: bare(workspace), **on_rungs}


def bare(folder: Path) -> None:
    """As any program starts another."""
    subprocess.run(COMMAND, cwd=folder, env={}, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def in_turn(all_ways: Mapping[str, Callable[[], None]], commands: int) -> dict[str, Cost]:
    """What one command costs each way: the median of many, each way once before any comes again."""
    costs: dict[str, list[Cost]] = {name: [] for name in all_ways}
    for _ in range(commands):
        for name, way in all_ways.items():
            costs[name].append(cost_of(way))
    return {
        name: Cost(median(one.seconds for one in many), median(one.processor_s for one in many))
        for name, many in costs.items()
    }


def cost_of(way: Callable[[], None]) -> Cost:
    """Of one start."""
    used, began = processor_s(), time.perf_counter()
    way()
    return Cost(time.perf_counter() - began, processor_s() - used)


def processor_s() -> float:
    """Of this process and of all that it has buried."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def figures(taken: list[dict[str, Cost]]) -> list[Figure]:
    """taken: one mapping a round, by way; the bare one is in each."""
    return [figure for name in taken[0] for figure in _of_one(name, taken)]


def _of_one(name: str, taken: list[dict[str, Cost]]) -> Iterator[Figure]:
    if name != BARE:
        over = [one[name].seconds / one[BARE].seconds for one in taken]
        yield Figure(f"{name}_ratio", "", over, "time from start to end over that of the bare command; less is better")
    yield Figure(f"{name}_ms", "ms", [1000 * one[name].seconds for one in taken])
    yield Figure(f"{name}_cpu_ms", "ms", [1000 * one[name].processor_s for one in taken], "of all its processes")
