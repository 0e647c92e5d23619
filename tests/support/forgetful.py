"""A system whose state store will forget, runs of all effect classes that go on for as long as a test wants, and what
is told of it afterwards."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis
from sqlalchemy import func, select

from orchestrator.ledger.drained import history
from orchestrator.ledger.losses import Loss
from orchestrator.local import EmbeddedServer
from tests.support.invariants import assert_holds
from tests.support.servers import ended_with_us, server_binary
from tests.support.system import System, result_of, running_system, step
from tests.support.waiting import eventually

CLASSES = {"pure": "test.echo", "idempotent": "test.note", "keyed": "test.order", "once": "test.post"}
ACTIONS = (*CLASSES.values(), "test.book")
LINES = 2 * (len(ACTIONS) - 1)  # a run leaves in the effect log, if all goes well: a pure step leaves none
HELD, HOLD_S = (
    ("test.order", "test.post"),
    0.2,
)  # a flush finds them between open and land; they listen to nobody, so they land
GATE = "mandor.later"  # the queue of each run's last step but one

Ends = dict[str, str]  # of each run, the only way it may end


@dataclass
class Forgetful:
    """A system, and the server that will forget. known: losses that are other tests'."""

    system: System
    server: EmbeddedServer
    folder: Path
    known: set[int] = field(default_factory=set)

    @property
    def client(self) -> Redis:
        return Redis.from_url(self.server.url)

    def submit_all(self, count: int) -> Ends:
        """Runs that cannot end before `open_gate`, all accepted."""
        run_ids = self.system.submit_together([mixed(i) for i in range(count)])
        return {run_id: "compensated" if fails(i) else "succeeded" for i, run_id in enumerate(run_ids)}

    def open_gate(self) -> None:
        """Let all runs go on to their end."""
        self.system.start_steps("later", queues=GATE)

    def wait_for_lines(self, count: int) -> None:
        eventually(lambda: len(self.system.effects()) >= count, timeout_s=60, what=f"{count} lines of effects")

    def wait_for_planned(self, run_ids: Collection[str]) -> None:
        """Until each has been heard of as running."""
        heard = self.system.installed.ledger.history.run
        for run_id in run_ids:
            eventually(lambda run_id=run_id: (run := heard(run_id)) and run.status == "running", timeout_s=60)  # type: ignore[misc]

    def live(self) -> set[str]:
        """Runs that have been accepted and have not ended."""
        rows = self.system.installed.ledger.open_runs(None, 1000, self.system.installed.settings.namespace)
        return {row.run_id for row in rows}

    # ---- what is told

    def losses(self) -> list[Loss]:
        """Those that were found since the test began."""
        losses = self.system.installed.ledger.losses.all(self.system.installed.settings.namespace, 1000)
        return [loss for loss in losses if loss.found_at not in self.known]

    def made_good(self, least: int = 1) -> list[Loss]:
        """All losses, at least so many, once they are made good."""

        def over() -> list[Loss]:
            losses = self.losses()
            return losses if len(losses) >= least and all(loss.done_at for loss in losses) else []

        return eventually(over, timeout_s=60, what=f"the end of {least} losses")

    def built(self, run_ids: Collection[str]) -> Counter[str]:
        """How often each run was built again, as its history says."""
        query = select(history.c.run_id, func.count()).where(history.c.event == "run.restored").group_by("run_id")
        with self.system.installed.ledger.begin() as connection:
            counted = {run_id: count for run_id, count in connection.execute(query) if run_id in run_ids}
        return Counter(counted)

    def assert_all_end(
        self, ends: Mapping[str, str], timeout_s: float, causes: Collection[str], least: Collection[str]
    ) -> None:
        """Each run ends as it must, and holds what is promised; so does the report. least: these were built again."""
        views = [self.system.wait(run_id, timeout_s=timeout_s) for run_id in ends]
        eventually(self.drained, what="the last transitions in the ledger")
        for view in views:
            assert_holds(self.system, view, ends[view.run_id])
        self.assert_told(ends, causes, least)

    def assert_told(self, run_ids: Collection[str], causes: Collection[str], least: Collection[str]) -> None:
        """The report names the causes, and counts each run as often as it was built again, and no other."""
        losses, built = self.made_good(), self.built(run_ids)
        assert {loss.cause for loss in losses} <= set(causes), losses
        assert set(least) <= built.keys(), f"not built again: {set(least) - built.keys()}"
        reports = [report(loss) for loss in losses]
        assert sum(told["restored"] for told in reports) == built.total(), (reports, built)
        assert not any(told["refused"] or told["failed"] for told in reports), reports

    def drained(self) -> bool:
        store = self.system.installed.store
        return not any(store.stream.length(shard) for shard in range(store.shards))


def report(loss: Loss) -> dict[str, int]:
    """What was done about it."""
    told: dict[str, int] = json.loads(loss.report_text or "{}")
    return told


def fails(number: int) -> bool:
    """Every third run does, at its end."""
    return number % 3 == 2


def mixed(number: int, *, without: str = "") -> list[dict[str, Any]]:
    """A run of all effect classes, in a row or wide, with a value of its own that is passed on from step to step. Its
    last step but one waits for somebody to open the gate."""
    value = f"of run {number}"
    actions = [action for action in ACTIONS if action != without]
    made = [acting(i, action, value, wide=bool(number % 2)) for i, action in enumerate(actions)]
    gate = step("test.later", "gate", [one["id"] for one in made], value=value)
    bad = step("test.flaky", "bad", ["gate"], failures=0, for_good=True)
    return [*made, gate, bad] if fails(number) else [*made, gate]


def acting(i: int, action: str, value: str, *, wide: bool) -> dict[str, Any]:
    """The step of one class."""
    params: dict[str, Any] = {"value": value if wide or not i else result_of(f"s{i - 1}")}
    if action in HELD:
        params |= {"hold_s": HOLD_S, "deaf": True}
    return step(action, f"s{i}", [] if wide else None, **params)


@contextmanager
def forgetful(folder: Path, server_kind: str, through: Callable[[str], str] = str) -> Iterator[Forgetful]:
    """Every role but step workers."""
    with EmbeddedServer(folder / "server", binary=server_binary(server_kind)) as server:
        assert server.pid is not None
        with ended_with_us(server.pid), running_system(through(server.url), folder, audit_s=1) as made:
            made.start_control()
            yield Forgetful(made, server, folder)
