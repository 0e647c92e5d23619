"""The real Prometheus, as deploy/ ships it, on a live system: what it counts is what the ledger has, and what must
never be, brought about by force, is an alert.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator import dispatch
from orchestrator.ledger import Ledger
from orchestrator.local.address import free_port
from orchestrator.store.replies import Dispatch
from orchestrator.store.scripts import Scripts
from schemas.ids import RunRef, session_key
from tests.support.monitoring import selectors, targets
from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually
from tests.support.watchmen import Watchmen, start_watchmen

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]
COPIES = 25
AT_ONCE = {
    "MandorDuplicateCommit",
    "MandorPolicyMismatch",
    "MandorVersionConflict",
    "MandorDispatchesOverCompletions",
}
# true from the first evaluation on; nobody waits two minutes here for them to fire
IN_TWO_MINUTES = {"MandorLockContention", "MandorIdempotencySpike"}
FAILED = 'ai_worker_failures_total{error_type!="retry_exhausted"}'
PATIENT_S = 10.0  # a lease so long that a busy parent ends the claim of its killed child before that lapses
PARENT = 'mandor_claims_ended_total{by="parent"}'
OTHERS = 'mandor_claims_ended_total{by!="parent"}'
Counts = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Watched:
    """A system, and who watches over it. ports: of its roles."""

    system: System
    watchmen: Watchmen
    gates: Path

    @property
    def ledger(self) -> Ledger:
        return self.system.installed.ledger


@dataclass(frozen=True)
class Worked:
    """After a run of kills: what PromQL said, what the ledger had, which alerts fired."""

    counted: Counts
    happened: Counts
    firing: set[str]


@pytest.fixture(scope="module")
def watched(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("prometheus")
    ports = {role: free_port() for role in targets()}
    named: dict[str, Any] = {f"{role}_port": port for role, port in ports.items()}
    with (
        running_server(folder / "server", server_kind) as server,
        running_system(server.url, folder, health_every_s=0.5, lease_s=PATIENT_S, **named) as system,
    ):
        watchmen = start_watchmen(system.processes, folder, ports)
        system.start_control()
        system.processes.python("exporter", "-m", "workers.cli", "exporter", ready="service.ready")
        system.start_steps()
        system.processes.worker("deliver", queues="deliver", concurrency=1)
        with system.installed.in_force():
            yield Watched(system, watchmen, folder)


@pytest.fixture(scope="module")
def worked(watched: Watched) -> Worked:
    """One child and one worker are killed, steps fail and are given up on; all of it is counted."""
    system = watched.system
    eventually(lambda: all_up(watched), timeout_s=30)
    for number in range(6):
        system.submit(step("test.echo", value=str(number)), request_id=f"echo-{number}")
    system.submit(step("test.flaky", failures=1), step("test.flaky", failures=9))
    poison = system.submit(step("test.die", value="x"), policy={"on_failure": "stop"})
    orphan = begun(system)
    os.kill(orphan["pid"], signal.SIGKILL)
    for run_id in (poison, orphan["run_id"]):
        system.wait(run_id, timeout_s=60)
    begun(system)
    system.processes.kill("steps")
    system.start_steps()
    for run in watched.ledger.listed(100):
        system.wait(run.run_id, timeout_s=60)
    return settled(watched)


def all_up(watched: Watched) -> bool:
    return watched.watchmen.values('sum by (role) (up{job="mandor"})') == dict.fromkeys(targets(), 1)


def begun(system: System) -> dict[str, Any]:
    """A step that holds its child until somebody kills it."""
    run_id = system.submit(step("test.note", value="held", hold_s=600))
    line: dict[str, Any] = eventually(lambda: system.effects(run_id=run_id, what="began"))[0]
    return line


def settled(watched: Watched, within_s: float = 15.0) -> Worked:
    """Once the last scrape and the last drain are over, which is when both say the same; or else as they are."""
    until = time.monotonic() + within_s
    while True:
        happened = of_ledger(watched.ledger)
        counted = {query: watched.watchmen.values(query) for query in happened}
        if counted == happened or time.monotonic() > until:
            return Worked(counted, happened, watched.watchmen.firing())
        time.sleep(0.2)


def of_ledger(ledger: Ledger) -> Counts:
    """What each query must answer, by what the ledger has."""
    runs = ledger.listed(100)
    letters = Counter(letter.kind.value for letter in ledger.letters(100))
    events = Counter(event.event for run in runs for event in ledger.history.events(run.run_id))
    return {
        "sum(mandor_runs_accepted_total)": {"": len(runs)},
        "sum by (status) (mandor_runs_ended_total) > 0": dict(Counter(run.status for run in runs)),
        "sum(mandor_attempts_total)": {"": events["step.claimed"]},
        "sum(mandor_steps_committed_total)": {"": events["step.committed"]},
        f"sum({FAILED})": {"": events["step.claimed"] - events["step.committed"]},
        f"sum({PARENT})": {"": events["step.claim_ended"]},
        f"sum({OTHERS})": {"": events["step.expired"]},
        "sum by (kind) (mandor_letters_total) > 0": dict(letters),
        "max by (kind) (mandor_dead_letters) > 0": dict(letters),
    }


def test_every_target_is_up(watched: Watched) -> None:
    eventually(lambda: all_up(watched), timeout_s=30)


def test_there_is_something_of_all_that_alerts_and_panels_ask_for(watched: Watched, worked: Worked) -> None:
    assert len(selectors()) > 50
    missing = {selector for selector in selectors() if not watched.watchmen.values(f"count({selector})")}
    assert missing == set()


def test_counters_are_what_the_ledger_has(worked: Worked) -> None:
    assert worked.counted == worked.happened
    assert worked.happened["sum by (status) (mandor_runs_ended_total) > 0"] == {"succeeded": 8, "failed": 2}
    assert worked.happened[f"sum({PARENT})"] == {"": 3}
    assert worked.happened["sum by (kind) (mandor_letters_total) > 0"] == {"step": 1}


def test_nobody_was_told_of_deaths_that_were_mended(worked: Worked) -> None:
    assert worked.firing == set()


# ---- what must never be


@dataclass(frozen=True)
class Tampered:
    """A run whose second step waits at a gate while somebody changes what the store has of it."""

    watched: Watched
    run_id: str
    gate: Path

    @property
    def ref(self) -> RunRef:
        return RunRef(self.run_id, session_key(None))

    @property
    def scripts(self) -> Scripts:
        return self.watched.system.installed.store.scripts

    @property
    def state(self) -> str:
        return self.watched.system.installed.store.keys.state(self.ref)

    def change(self, **fields: str | int) -> None:
        for name, value in fields.items():
            self.scripts.tell("HSET", self.state, name, value)

    def add_event(self, event: str, moves: str) -> None:
        """One more transition, which never was."""
        version = int(self.scripts.ask("HGET", self.state, "version")) + 1
        key = self.watched.system.installed.store.keys.part(self.ref, "events")
        self.scripts.tell("XADD", key, "*", "event", event, "version", version, "at", 1, "steps", moves)
        self.change(version=version)

    def send_again(self, step_id: str, index: int) -> None:
        app = self.watched.system.installed.app
        queue = self.watched.system.installed.queue("steps")
        dispatch.publish(app, [Dispatch("step", self.ref, 1, step_id, index, queue, 60_000)] * COPIES)
        eventually(lambda: dispatch.queue_depth(app, queue) == 0)

    def end(self) -> None:
        self.gate.touch()
        self.watched.system.wait(self.run_id)


def at_the_gate(watched: Watched, name: str) -> Tampered:
    system, gate = watched.system, watched.gates / name
    held = step("test.note", "held", value="x", gate=str(gate))
    run_id = system.submit(step("test.echo", "first", value="x"), held, step("test.echo", "last", value="x"))
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    return Tampered(watched, run_id, gate)


@pytest.fixture(scope="module")
def wronged(watched: Watched, worked: Worked) -> Watched:
    """Each promise is broken once, after an hour's beginning in which none was."""
    twice = at_the_gate(watched, "twice")
    twice.add_event("step.committed", "first=completed/1/9")
    twice.end()
    ended = at_the_gate(watched, "never_ended")
    ended.add_event("step.dispatched", "first=dispatched/1/1")
    ended.end()
    other = at_the_gate(watched, "policy")
    other.change(policy_hash="0" * 64)
    other.end()
    back = at_the_gate(watched, "version")
    back.change(version=1)
    back.end()
    copied = at_the_gate(watched, "copies")
    copied.send_again("first", 0)
    copied.send_again("held", 1)
    copied.end()
    return watched


def test_each_broken_promise_is_an_alert_at_once(wronged: Watched) -> None:
    eventually(lambda: wronged.watchmen.firing() >= AT_ONCE, timeout_s=20, what=str(wronged.watchmen.alerts()))
    assert wronged.watchmen.firing() == AT_ONCE

    def seen() -> set[tuple[str, str | None]]:
        return {(one.name, one.labels.get("at") or one.labels.get("kind")) for one in wronged.watchmen.alerts()}

    # a rule may be looked at between two processes' words
    wanted = {("MandorPolicyMismatch", "claim"), ("MandorPolicyMismatch", "end"), ("MandorVersionConflict", "back")}
    eventually(lambda: wanted <= seen(), timeout_s=20, what=str(wanted))


def test_crowds_of_copies_are_alerts_that_wait_for_their_time(wronged: Watched) -> None:
    def waiting() -> set[str]:
        return {one.name for one in wronged.watchmen.alerts() if one.state == "pending"}

    eventually(lambda: waiting() >= IN_TWO_MINUTES, timeout_s=20, what="alerts of copies")


def test_the_team_is_told_and_nobody_is_woken(wronged: Watched) -> None:
    told = eventually(lambda: {} if AT_ONCE - set(found := wronged.watchmen.told()) else found, timeout_s=20)
    assert {told[name] for name in AT_ONCE} == {"team"}
