"""An installation of one side, as scenarios use it: its processes, its server, and a caller who has work done."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import mkfifo
from pathlib import Path
from typing import IO, Any, Final

from benchmarks.faults import caller
from benchmarks.faults.sides import Side
from benchmarks.faults.work import END, WORLDS
from orchestrator.errors import MandorError
from orchestrator.local import EmbeddedServer
from orchestrator.local.interrupts import Interrupts
from workers.faults import hands, log
from workers.faults.ground import Ground, TooLate
from workers.faults.hands import Hands
from workers.faults.orders import Order, Place
from workers.faults.scene import Scene, Wanted, now_ms

STUCK_S: Final = 45.0  # nothing is waited for any longer: it is three times the visibility timeout
LOOK_S: Final = 0.2
LOG_S: Final = 20.0
QUIET_S: Final = 2.0


class CallerEnded(MandorError):
    """The process that has work done is gone."""

    kind = "caller_ended"


class NobodySends(MandorError):
    """Behind the parts of a run nobody sends anything on this side."""

    kind = "nobody_sends"


class Asked:
    """The caller's process, from outside."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout
        self._line(caller.READY)

    def ask(self, what: str, **given: Any) -> Any:
        """Have it do something. CallerEnded: over that."""
        self._in.write(json.dumps([what, given]) + "\n")
        self._in.flush()
        return json.loads(self._line(what))

    def _line(self, what: str) -> str:
        line = self._out.readline()
        if not line:
            raise CallerEnded(f"the caller ended over `{what}`")
        return line


class Yard(Ground):
    """ends: how each run ended that has, and when that was seen (ms since the epoch)."""

    def __init__(self, side: Side, folder: Path, server: EmbeddedServer, processes: Hands, asked: Asked) -> None:
        super().__init__(folder, server, processes)
        self.side = side
        self.patience_s = STUCK_S
        self.ends: dict[str, tuple[str, Any, int]] = {}
        self._asked = asked
        self._looked = 0.0

    def announce(self, scene: Scene, count: int) -> list[Wanted]:
        """Runs that will be, on each kind of world in turn."""
        numbers, worlds = range(len(scene.runs), len(scene.runs) + count), tuple(WORLDS)
        made = [
            Wanted(f"{scene.name}-{scene.seed}-{number}".lower(), {"world": worlds[number % len(worlds)]})
            for number in numbers
        ]
        scene.runs += made
        return made

    def submit(self, runs: Sequence[Wanted]) -> None:
        """Send them, one after the other."""
        for run in runs:
            self._asked.ask("submit", run=run.run_id, **run.fields)

    def trouble(self, what: str, **given: Any) -> Any:
        """Have something done to the broker."""
        return self._asked.ask(what, **given)

    def until_over(
        self, scene: Scene, meanwhile: Callable[[], object] = lambda: None, timeout_s: float = STUCK_S
    ) -> None:
        """Until every run has ended, or nothing is to be expected any more."""

        def all_over() -> bool:
            meanwhile()
            self._look(scene)
            return len(self.ends) == len(scene.runs)

        with suppress(TooLate):
            self.until(all_over, "the end of all runs", timeout_s)

    def order_senders(self, places: Iterable[tuple[str, Place]]) -> None:
        """Whoever sends the end of one of these runs dies there."""
        if not self.side.sends:
            raise NobodySends("its workers send nothing behind the parts of a run: whoever sent those joins them")
        known = self.side.known_as
        self.order(Order(f"{run}.{END}", known(run), END, place, "die") for run, place in places)

    def note_senders(self, scene: Scene) -> None:
        """Those who have died by such an order."""
        names = {self.side.known_as(run_id): run_id for run_id in scene.run_ids()}
        for act in self.log.acts(run_ids=names, what="ordered"):
            if act.number not in self._handled:
                self._handled.add(act.number)
                scene.fault(f"sender killed, {act.details['place']}", names[act.run_id], at=act.at)

    def hear_all(self) -> None:
        """Until nothing more is told, by whoever was late either, and all of it has been written down."""
        heard, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal heard, since
            now, count = time.monotonic(), len(self.log.acts())
            if count != heard:
                heard, since = count, now
            return now > since + QUIET_S

        self.until(quiet, "the last that is told")
        mark = self.log.mark()
        self.until(lambda: self.log.has(mark), "the end of the log", LOG_S)

    def _look(self, scene: Scene) -> None:
        if time.monotonic() < self._looked + LOOK_S:
            return
        going = [run_id for run_id in scene.run_ids() if run_id not in self.ends]
        for run_id, (word, result) in self._asked.ask("look", runs=going).items():
            if word != "going":
                self.ends[run_id] = (word, result, now_ms())
        self._looked = time.monotonic()


@contextmanager
def stand(side: Side, libraries: Path) -> Iterator[Yard]:
    """Everything of a side that runs, from nothing, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mandor-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        for name in ("logs", "tmp"):
            (home / name).mkdir()
        mkfifo(home / log.PIPE)
        server = EmbeddedServer(home / "server")
        processes = Hands(home / "logs", Interrupts())
        try:
            with server, _caller(side, _start(side, home, server, processes, libraries), home) as asked:
                yield Yard(side, home, server, processes, asked)
        finally:
            processes.kill_all()
            processes.end()


def _start(side: Side, home: Path, server: EmbeddedServer, processes: Hands, libraries: Path) -> dict[str, str]:
    processes.guard(server.pid)
    env = {**side.environment(home, server.url, libraries), log.FOLDER: str(home)}
    side.prepare(env)
    processes.start([hands.witness_command(home), *side.commands(env)])
    return env


@contextmanager
def _caller(side: Side, env: dict[str, str], home: Path) -> Iterator[Asked]:
    argv = [sys.executable, "-m", "benchmarks.faults.caller", side.module]
    with (
        (home / "logs" / "caller.log").open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            argv, env=env, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            yield Asked(process)
        finally:
            process.kill()
