"""A storm under way: runs are fed, troubles strike, who froze is woken, until every run has ended. Imported only once
its installation's settings are this process's own."""

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from orchestrator import decisions
from orchestrator.client import Client
from orchestrator.decisions import Desk
from orchestrator.errors import BrokerUnavailable, LedgerUnavailable, NotFound, StoreError
from orchestrator.recovery import verdicts
from orchestrator.store.replies import Duty
from orchestrator.store.runs import TAKEN_MS
from tests.support.storm import shapes
from tests.support.storm.forecast import SESSION, Ahead, Forecast, calm
from tests.support.storm.reclaims import Loss, Outage
from tests.support.storm.troubles import TROUBLES, freeze, kill_whole
from workers.faults.floor import Floor
from workers.faults.ground import TooLate, group_of
from workers.faults.hands import STEP_WORKERS
from workers.faults.orders import Order
from workers.faults.scene import Scene, Wanted, now_ms

AT_ONCE: Final = 250  # runs under way
UNHEARD: Final = 40  # submissions under way
AGAIN_S: Final = 15.0  # who is not accepted by then is submitted again: whoever had it in hand may be dead
LOOK_S: Final = 0.1
STILL_S: Final = 240.0  # without any run that ends
SERVER, LOOKS = "server", "looks"  # what may be down, beside processes
ENDING: Final[tuple[Duty, ...]] = ("leases", "deadlines", "settles")  # what claims and runs are ended by
MOMENT_MS: Final = 2000  # until a connection that was cut, or a child that was killed, is there again
FILLED_S: Final = 16.0  # until every slot has work, when nothing else goes on: no longer than anybody may hold a claim
CALMS: Final = 3  # times that each harm is done behind the storm, at most
REST_LEASES: Final = 2  # so long claims may rest, once supervisors look again behind an outage


@dataclass
class Weather:
    """One storm over one installation. losses: of processes; killed: those that are gone, and since when (ms since the
    epoch); asleep: who is frozen, and until when (monotonic); held: runs with a step that holds until it is let go;
    began: ms since the epoch.
    """

    floor: Floor
    forecast: Forecast
    scene: Scene = field(init=False)
    losses: list[Loss] = field(default_factory=list)
    killed: dict[int, int] = field(default_factory=dict)
    outages: list[Outage] = field(default_factory=list)
    asleep: dict[str, float] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)
    accepted: dict[str, float] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    began: int = field(default_factory=now_ms)
    runs: list[Ahead] = field(init=False)

    def __post_init__(self) -> None:
        self.runs = list(self.forecast.runs)
        self.scene = Scene("storm", self.forecast.seed)
        self.scene.runs = [_wanted(run) for run in self.runs]
        self._ahead = {run.run_id: run for run in self.forecast.runs}
        self._fields = {run.run_id: run.fields for run in self.scene.runs}
        self._to_send = list(self._ahead)
        self._to_cancel = {run.run_id for run in self.forecast.runs if run.cancel_s is not None}
        self._strikes = list(self.forecast.strikes)
        self._client = Client()
        self._down: dict[str, int] = {}  # what is not there, and since when
        self._last_end = time.monotonic()

    # ---- all of it

    def blow(self) -> None:
        """Until every run has ended and everybody is awake. TooLate: nothing ends any more."""
        self.floor.order(self.forecast.orders)
        while len(self.ended) < len(self._ahead) or self._strikes or self.asleep:
            self._look()
            self._feed()
            self._cancel()
            self._strike()
            self.floor.hands.tend()
            self._tend()
            time.sleep(LOOK_S)
        self.floor.order([])

    def calm_down(self) -> None:
        """Until nothing is left to do: everybody is ready, every action is over, what came late is undone."""
        self.floor.until(self.floor.hands.all_ready, "everybody is ready")
        self.floor.until(lambda: not self.at_work(), "the end of the last actions")
        self.floor.until(self.floor.is_idle, "the end of the messages")
        self.floor.pause(MOMENT_MS / 1000)  # from the end of an action to its row
        ledger, namespace = self.floor.ledger, self.floor.settings.namespace
        self.floor.until(lambda: not ledger.late.owed(ledger.now_ms(), 1, namespace), "late effects are seen to")

    def harm_in_calm(self, slots: int) -> None:
        """When nothing else goes on: a worker is killed with all that it holds, another is frozen, and each time every
        slot takes work again. TooLate: one does not. What is excused proves nothing, and is done again a few times.
        """
        names, draw = list(STEP_WORKERS), Random(f"{self.forecast.seed}:calm")
        harms: list[Callable[[], object]] = [
            partial(kill_whole, names[:1], self, draw),
            partial(freeze, names[1:], self, draw),
            lambda: True,
        ]
        for harm in harms:
            for _ in range(CALMS):
                if self._harmed(harm, dict.fromkeys(names, slots)):
                    break

    def _harmed(self, harm: Callable[[], object], slots: dict[str, int]) -> bool:
        """All of one harm, until everybody is back. False: not in calm, for supervisors looked too seldom meanwhile."""
        self._until(self._is_calm, "calm")
        outages = len(self.outages)
        filled = self._fill(slots)
        self.floor.until(harm, "somebody to harm")
        self.floor.order([])
        self.floor.let_go(self.floor.holding(filled))
        self.floor.until_over(filled, self._tend)
        self._until(lambda: not self.asleep and self.floor.hands.all_ready(), "everybody is back")
        return not self._down and len(self.outages) == outages

    def _fill(self, slots: dict[str, int]) -> Scene:
        """More runs, of which each holds a slot."""
        more = Scene("calm", self.forecast.seed)
        ahead = calm(self.forecast.seed, len(self.runs) - len(self.forecast.runs), sum(slots.values()))
        more.runs = [_wanted(run) for run in ahead]
        self.runs += ahead
        self.scene.runs += more.runs
        self.held |= set(more.run_ids())
        self.floor.order(Order(f"{run_id}.hold", run_id, "charge", "began", "hold") for run_id in more.run_ids())
        self.floor.submit(more.runs)
        self._until(
            lambda: Counter(map(self.floor.worker_of, self.floor.holding(more))) == slots, f"work in {slots}", FILLED_S
        )
        return more

    def _is_calm(self) -> bool:
        """Whether nothing is away, and nothing rests behind that."""
        return not self._down and all(now_ms() > one.ended for one in self.outages)

    def _until(self, look: Callable[[], object], what: str, timeout_s: float | None = None) -> None:
        """Outages are noted meanwhile."""

        def looked() -> object:
            self._tend()
            return look()

        self.floor.until(looked, what, timeout_s)

    def _tend(self) -> None:
        self._wake()
        self._note_outages()

    # ---- what is under way

    @property
    def ledger_file(self) -> Path:
        """Where the ledger lies."""
        return Path(self.floor.settings.home) / "ledger.db"

    def live(self) -> list[str]:
        """Runs that were accepted and have not ended, in an order that a draw can go by."""
        return sorted(set(self.accepted) - self.ended)

    def at_work(self) -> set[int]:
        """Living processes in the middle of an action or an undo."""
        busy: dict[int, int] = {}
        for act in self.floor.log.acts():
            if act.what in ("began", "undoing"):
                busy[act.pid] = act.at
            elif act.what in ("acted", "raised", "undone", "undo_raised") or act.details.get("deed") == "die":
                busy.pop(act.pid, None)
        # a number may be another process's by now
        return {pid for pid, since in busy.items() if since > self.killed.get(pid, 0) and self.worker_of(pid)}

    def worker_of(self, pid: int) -> str | None:
        """Whose process that is; None: it is gone, or somebody else's by now."""
        return self.floor.hands.name_of(group_of(pid))

    def awake(self, names: Iterable[str]) -> list[str]:
        """Those of these processes that can work."""
        return [name for name in names if name not in self.asleep and self.floor.hands.is_ready(name)]

    def lose(self, pids: Iterable[int], text: str) -> None:
        """These processes are frozen now, or killed."""
        self.losses += [Loss(pid, now_ms(), text) for pid in pids]

    def kill(self, pids: Iterable[int], text: str) -> None:
        """The same of those that do not come back."""
        pids = list(pids)
        self.lose(pids, text)
        self.killed |= dict.fromkeys(pids, now_ms())

    def is_down(self, what: str, since: int | None = None) -> None:
        """Claims may stand for longer until this is there again."""
        self._down.setdefault(what, since or now_ms())

    def flicker(self) -> None:
        """The same for a moment."""
        self.outages.append(Outage(now_ms(), now_ms() + MOMENT_MS + self._rest_ms(), "a moment"))

    # ---- one look

    def _look(self) -> None:
        now = time.monotonic()
        before = len(self.ended)
        for run_id, has_ended in self._standing():
            self.accepted.setdefault(run_id, now)
            if has_ended:
                self.ended.add(run_id)
        if len(self.ended) > before or self.asleep:
            self._last_end = now
        if now - self._last_end > STILL_S:
            raise TooLate(f"no run has ended for {STILL_S:g} s; still open: {self.live()[:20]}")

    def _standing(self) -> Iterator[tuple[str, bool]]:
        """Each accepted run of ours, and whether it has ended, from the ledger's own file: nobody is asked."""
        with closing(sqlite3.connect(f"file:{self.ledger_file}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT run_id, ended_at IS NOT NULL FROM runs").fetchall()
        return ((run_id, bool(has_ended)) for run_id, has_ended in rows if run_id in self._ahead)

    def _feed(self) -> None:
        """Submit what there is room for, and once more what nobody has accepted. Who cannot send tries again."""
        now = time.monotonic()
        unheard = [run_id for run_id in self.sent if run_id not in self.accepted]
        room = min(AT_ONCE - (len(self.sent) - len(self.ended)), UNHEARD - len(unheard))
        again = [run_id for run_id in unheard if now > self.sent[run_id] + AGAIN_S]
        for run_id in [*again, *self._to_send[: max(0, room)]]:
            try:
                self._client.send(**self._fields[run_id])
            except (BrokerUnavailable, StoreError):
                return
            if run_id in self.sent:
                self.scene.nuisance("submitted again", run_id)
            self.sent[run_id] = now
        self._to_send = [run_id for run_id in self._to_send if run_id not in self.sent]

    def _cancel(self) -> None:
        """A decision that the store cannot be told of is kept, and carried out by others."""
        now = time.monotonic()
        due = [one for one in self._to_cancel if now > self.accepted.get(one, now) + (self._ahead[one].cancel_s or 0)]
        for run_id in due:
            desk = Desk(self.floor.app, self.floor.store, self.floor.ledger)
            try:
                decisions.cancel(desk, run_id, "storm")
            except (NotFound, LedgerUnavailable):
                continue
            except StoreError:
                pass
            self._to_cancel.discard(run_id)
            self.scene.nuisance("cancelled", run_id)

    def _strike(self) -> None:
        """The next trouble, if its time has come. It waits until it meets somebody, as long as there is anybody."""
        if not self._strikes or self._strikes[0].after > len(self.ended):
            return
        strike = self._strikes[0]
        if TROUBLES[strike.trouble](self, strike.draw):
            self.scene.fault(strike.trouble, "")
        elif self.live():
            return
        self._strikes.pop(0)

    def _wake(self) -> None:
        now = time.monotonic()
        for name in [name for name, until in self.asleep.items() if now > until]:
            self.floor.hands.thaw(name)
            del self.asleep[name]

    def _note_outages(self) -> None:
        """What was down and is there again was an outage, and claims may rest behind it. Supervisors that look too
        seldom are one too: so busy may a machine be.
        """
        with suppress(StoreError):
            if self._look_seldom():
                self.is_down(LOOKS, self._last_look())
        for what in [what for what in self._down if self._is_up(what)]:
            rest_ms = round(1000 * self.floor.settings.lease_s) if what == LOOKS else self._rest_ms()
            self.outages.append(Outage(self._down.pop(what), now_ms() + rest_ms, what))

    def _look_seldom(self) -> bool:
        """Whether it is so long ago that claims will rest for a lease."""
        return now_ms() - self._last_look() > 500 * self.floor.settings.lease_s

    def _last_look(self) -> int:
        """When the pass began which is longest ago."""
        passes = self.floor.store.views.last_passes()
        return min(passes[duty] for duty in ENDING)

    def _rest_ms(self) -> int:
        """What a pass had in hand that died is not looked at before, and claims may rest meanwhile."""
        return max(TAKEN_MS, round(1000 * REST_LEASES * self.floor.settings.lease_s))

    def _is_up(self, what: str) -> bool:
        store = self.floor.store
        try:
            if what == SERVER:
                return not verdicts.states(store)
            if what == LOOKS:
                return not self._look_seldom()
        except StoreError:
            return False
        return self.floor.hands.is_ready(what)


def _wanted(run: Ahead) -> Wanted:
    return Wanted(run.run_id, fields(run), shapes.ENDS[run.shape] if run.cancel_s is None else shapes.CANCELLED)


def fields(run: Ahead) -> dict[str, Any]:
    """Its submission."""
    context = shapes.context(run.shape, run.name)
    made = {"planner": shapes.PLANNER} if run.planned else {"plan": shapes.plan_text(run.shape, run.name)}
    policy = {"approvals": ["storm.end"], "deadline_s": shapes.OVERDUE_S} if run.shape == "overdue" else {}
    return {**made, "context": context, "session_id": SESSION, "request_id": run.name, "policy": policy}
