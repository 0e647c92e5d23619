"""Server, processes and log of effects of any installation that is thrown away, and what scenarios do with them."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from orchestrator.errors import MandorError
from orchestrator.local import EmbeddedServer
from workers.faults import orders
from workers.faults.hands import STEP_WORKERS, Hands
from workers.faults.log import Act, Log
from workers.faults.orders import Order
from workers.faults.scene import Scene, now_ms

LOOK_S: Final = 0.05
TOLD_S: Final = 30.0


class TooLate(MandorError):
    """What was bound to happen did not, in the time that it has."""

    kind = "too_late"


class Ground:
    """Where scenarios take place, whoever does the work."""

    def __init__(self, folder: Path, server: EmbeddedServer, hands: Hands) -> None:
        self.folder = folder
        self.server = server
        self.hands = hands
        self.log = Log(folder)
        self.patience_s = 60.0  # how long anything may take
        self.run_s = 0.0  # how long a run takes without faults
        self._given: list[Order] = []
        self._handled: set[int] = set()

    def order(self, given: Iterable[Order]) -> None:
        """From here on this is ordered, and nothing else."""
        self._given = list(given)
        orders.put(self.folder, self._given)

    def restart_server(self, away_s: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Stop the server, let time pass, start it where it was."""
        self.hands.forget(self.server.pid)
        self.server.stop()
        meanwhile()
        self.pause(away_s)
        self.server.start()
        self.hands.guard(self.server.pid)

    # ---- time

    def until(self, look: Callable[[], object], what: str, timeout_s: float | None = None) -> None:
        """Return as soon as it is so; whoever ends meanwhile is started again. TooLate names what was waited for."""
        timeout_s = self.patience_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while not look():
            if time.monotonic() > deadline:
                raise TooLate(f"{what}: not within {timeout_s:g} s", hint="see the processes' logs; --keep keeps them")
            self.hands.tend()
            time.sleep(LOOK_S)

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        over = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > over, "time", seconds + self.patience_s)

    # ---- orders that were carried out

    def ordered(self, scene: Scene) -> list[Act]:
        """What orders of this scene have been carried out, or are."""
        return self.log.acts(run_ids=scene.run_ids(), what="ordered")

    def note_missed(self, scene: Scene) -> None:
        """What is ordered by now should have been carried out: harm that was not done shows nothing."""
        self.until_told()
        done = {act.details["order"] for act in self.ordered(scene)}
        scene.missed += [order for order in self._given if order.name not in done]

    def came(self, run_id: str, message: str, step_id: str = "") -> list[Act]:
        """Each time that a worker has begun with this message of the run."""
        of_run = self.log.acts(run_ids=[run_id], what="came")
        return [act for act in of_run if (act.details["message"], act.step_id) == (message, step_id)]

    def until_told(self) -> None:
        """Until the witness has written down all that it was told so far."""
        mark = self.log.mark()
        self.until(lambda: self.log.has(mark), "the end of the log", TOLD_S)

    def holding(self, scene: Scene) -> list[Act]:
        """Processes that hold by an order, and have not been dealt with."""
        held = [act for act in self.ordered(scene) if act.details["deed"] == "hold"]
        return [act for act in held if act.number not in self._handled]

    def kill_holding(self, scene: Scene) -> None:
        """SIGKILL to every process that holds."""
        for act in self.holding(scene):
            self._do_to(act, signal.SIGKILL, scene, "killed")

    def freeze_holding(self, scene: Scene) -> list[Act]:
        """SIGSTOP to every process that holds, each a worker's child; they are not let go before they are thawed."""
        return [act for act in self.holding(scene) if self._do_to(act, signal.SIGSTOP, scene, "frozen")]

    def _do_to(self, act: Act, number: int, scene: Scene, word: str) -> bool:
        """A signal to a child that holds. False: it has ended by itself, and the harm is not done."""
        self._handled.add(act.number)
        place, at = act.details["place"], now_ms()
        is_done = signalled(act.pid, number)
        if is_done:
            scene.fault(f"child {word}, {place}", act.run_id, act.step_id, at)
        scene.expect(is_done, f"{act.step_id} of {act.run_id} had ended at {place} before it could be {word}")
        return is_done

    def thaw(self, frozen: Iterable[Act]) -> None:
        """They go on, and hold no more."""
        frozen = list(frozen)
        self.let_go(frozen)
        for act in frozen:
            signalled(act.pid, signal.SIGCONT)

    def let_go(self, held: Iterable[Act]) -> None:
        """They may go on."""
        for act in held:
            self._handled.add(act.number)
            orders.let_go(self.folder, act.details["order"])

    def worker_of(self, act: Act) -> str | None:
        """The process whose child did that."""
        return self.hands.name_of(group_of(act.pid))

    def fullest(self, scene: Scene) -> str:
        """The step worker that holds most."""
        names = (self.worker_of(act) for act in self.holding(scene))
        found = Counter(name for name in names if name in STEP_WORKERS).most_common(1)
        if not found:
            raise TooLate("no step is held any more", hint="choose time limits (timeout_s) of ten seconds or more")
        return found[0][0]

    def held_by(self, scene: Scene, worker: str) -> list[Act]:
        """What holds in this worker."""
        return [act for act in self.holding(scene) if self.worker_of(act) == worker]


def signalled(pid: int, number: int) -> bool:
    """Send a process a signal. False: it is gone, as one may be that ran out of time."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def group_of(pid: int) -> int:
    """The process group of a process, also of a dead one that nobody has buried; 0: it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
