"""What it costs to be told: two installations side by side, one as it ships and one that says and counts nothing."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from benchmarks.site import READY_S, environment, into_file, nobody_listens, wait_until
from orchestrator.local import EmbeddedServer, Runner, procfile

WATCHERS: Final = ("flower", "exporter")  # they cost the same whoever is measured
PORTS: Final = tuple(f"MANDOR_{role}_PORT" for role in ("SUPERVISE", "CONTROL", "PLANNER", "STEPS"))
OFF: Final = {"MANDOR_METRICS": "false", "MANDOR_LOG_LEVEL": "ERROR", **dict.fromkeys(PORTS, "0")}
WARM: Final = 40


@dataclass(frozen=True)
class Side:
    """One installation: its processes' names, and who submits to it."""

    names: tuple[str, ...]
    driver: "subprocess.Popen[str]"

    def fan_out(self, width: int) -> float:
        """Seconds for a run of that many independent steps."""
        to, back = _pipes(self.driver)
        print(width, file=to, flush=True)
        return float(back.readline())


def measure(rounds: int, width: int) -> list[list[float]]:
    """Seconds of each round, of the one that tells and of the other. They take turns; who is not at work is frozen."""
    with tempfile.TemporaryDirectory(prefix="mandor-bench-") as folder:
        home = Path(folder)
        with EmbeddedServer(home / "server") as server, Runner(nobody_listens, grace_s=20) as runner:
            assert server.pid is not None
            runner.end_with_us(server.pid)
            with (
                _side(runner, home / "on", server.url, 2, {}) as on,
                _side(runner, home / "off", server.url, 3, OFF) as off,
            ):
                for side, other in ((on, off), (off, on)):
                    _turn(runner, side, other, WARM)
                turns = [(_turn(runner, on, off, width), _turn(runner, off, on, width)) for _ in range(rounds)]
    return [list(times) for times in zip(*turns, strict=True)]


def _turn(runner: Runner, side: Side, other: Side, width: int) -> float:
    for name in other.names:
        runner.child(name).signal_group(signal.SIGSTOP)
    try:
        return side.fan_out(width)
    finally:
        for name in other.names:
            runner.child(name).signal_group(signal.SIGCONT)


@contextmanager
def _side(runner: Runner, home: Path, url: str, database: int, changes: Mapping[str, str]) -> Iterator[Side]:
    home.mkdir()
    env = {**environment(home, url), "MANDOR_REDIS_URL": f"{url.removesuffix('0')}{database}", **changes}
    subprocess.run([sys.executable, "-m", "workers.cli", "ledger", "upgrade"], env=env, check=True, capture_output=True)
    names = []
    for command in procfile.commands(env):
        if command.name not in WATCHERS:
            name = f"{home.name} {command.name}"
            runner.start(into_file(command, home, env, name))
            names.append(name)
    for name in names:
        log = home / f"{name}.log"
        wait_until(lambda log=log: "service.ready" in log.read_text(), f"the start of {name}", READY_S)  # type: ignore[misc]
    argv = [sys.executable, "-m", "benchmarks.driver"]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        try:
            yield Side(tuple(names), driver)
        finally:
            _pipes(driver)[0].close()


def _pipes(driver: "subprocess.Popen[str]") -> tuple[IO[str], IO[str]]:
    assert driver.stdin is not None
    assert driver.stdout is not None
    return driver.stdin, driver.stdout
