"""After a bad night, the log lines alone are asked what happened; store and ledger know whether they are right.

A child was killed, a frozen worker woke up with an effect that came too late, a run was cancelled, a step killed its
process until it was given up on.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator import decisions, late_effects
from orchestrator.decisions import Desk
from orchestrator.store.views import Event
from orchestrator.telemetry.logs import IDENTITY
from schemas.ids import RunRef, session_key
from schemas.run import RunView
from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]
SESSION = "night"
Line = dict[str, Any]


@dataclass(frozen=True)
class Lines:
    """All that was logged, and nothing else."""

    all: list[Line]

    def of(self, run_id: str, event: str) -> list[Line]:
        """In the order of their time: several processes wrote them."""
        found = [line for line in self.all if line.get("run_id") == run_id and line["event"] == event]
        return sorted(found, key=lambda line: str(line["timestamp"]))

    def starts(self, run_id: str) -> list[Line]:
        return self.of(run_id, "job.start")

    # ---- the five questions

    def how_often(self, run_id: str) -> Counter[str]:
        """Attempts that began, by step."""
        return Counter(line["step_id"] for line in self.starts(run_id))

    def before_the_first_commit(self, run_id: str) -> dict[str, list[bool]]:
        """Of each step's attempts in their order: did it begin before its step's first commit? Without one, all did."""
        first: dict[str, str] = {}
        for line in self.of(run_id, "step.committed"):
            first.setdefault(line["idempotency_key"], line["timestamp"])
        found: dict[str, list[bool]] = {}
        for line in self.starts(run_id):
            before = line["timestamp"] < first.get(line["idempotency_key"], "~")
            found.setdefault(line["step_id"], []).append(before)
        return found

    def what_they_saw(self, run_id: str) -> list[tuple[str, int]]:
        """Who began, and at which version of the run."""
        return [(line["worker_id"], line["state_version"]) for line in self.starts(run_id)]

    def policies(self, run_id: str) -> dict[str, set[str]]:
        """Hashes by what bears them: the resolved policy, attempts, results."""
        told = {event: self.of(run_id, event) for event in ("policy.resolved", "job.start", "step.committed")}
        return {event: {line["policy_hash"] for line in lines} for event, lines in told.items() if lines}

    def locks(self, run_id: str) -> list[tuple[str, int]]:
        """Which lock each attempt held, and under which fence."""
        return [(line["lock_key"], line["fence"]) for line in self.starts(run_id)]

    # ---- and who lost, how it ended, where the letter is

    def late(self, run_id: str) -> list[tuple[str, int]]:
        """Whose effect came after its claim had been judged, and under which fence."""
        return [(line["worker_id"], line["fence"]) for line in self.of(run_id, "effect.refused") if line["late"]]

    def ends(self, run_id: str) -> set[str]:
        return {line["status"] for line in self.of(run_id, "run.settled")}

    def letters(self, run_id: str) -> set[str]:
        return {line["letter_id"] for line in self.of(run_id, "letter.written")}


@dataclass(frozen=True)
class Truth:
    """A run as store and ledger have it."""

    ref: RunRef
    view: RunView
    events: list[Event]
    locks: dict[str, str]

    def claims(self) -> list[Event]:
        return [event for event in self.events if event.event == "step.claimed"]


@dataclass(frozen=True)
class Night:
    """Everything that was brought about. runs: by what befell them."""

    lines: Lines
    runs: dict[str, Truth] = field(default_factory=dict)


KINDS = ("killed", "late", "cancelled", "given_up")


@pytest.fixture(scope="module")
def night(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    folder = tmp_path_factory.mktemp("questions")
    with (
        running_server(folder / "server", server_kind) as server,
        running_system(server.url, folder) as system,
        system.installed.in_force(),
    ):
        system.start_control()
        system.start_steps("first", concurrency=1)
        runs = happens(system, folder / "gate")
        truths = {kind: truth(system, run_id) for kind, run_id in runs.items()}
        yield Night(Lines(parsed(system)), truths)


def happens(system: System, gate: Path) -> dict[str, str]:
    late = submit(system, step("test.order", "s", value="x", deaf=True, gate=str(gate)))
    begun(system, late)
    system.processes.freeze("first")
    system.start_steps("second", concurrency=3)
    killed = submit(system, step("test.note", "s", value="x", hold_s=600), step("test.echo", "t", value="y"))
    os.kill(begun(system, killed)["pid"], signal.SIGKILL)
    cancelled = submit(system, step("test.note", "s", value="x", hold_s=600), step("test.echo", "t", value="y"))
    begun(system, cancelled)
    installed = system.installed
    decisions.cancel(Desk(installed.app, installed.store, installed.ledger), cancelled, "ann")
    given_up = submit(system, step("test.die", "s", value="x"))
    runs = dict(zip(KINDS, (killed, late, cancelled, given_up), strict=True))
    for run_id in runs.values():
        system.wait(run_id, timeout_s=60)
    gate.touch()
    system.processes.thaw("first")
    system.processes.wait_for_line("letter.written", name="first")
    eventually(lambda: all(Lines(parsed(system)).ends(run_id) for run_id in runs.values()), what="lines of all ends")
    return runs


def parsed(system: System) -> list[Line]:
    return [json.loads(line) for line in system.processes.lines() if line.startswith("{")]


def submit(system: System, *steps: Line) -> str:
    return system.submit(*steps, session_id=SESSION, policy={"on_failure": "stop"})


def begun(system: System, run_id: str) -> Line:
    return eventually(lambda: system.effects(run_id=run_id, what="began"))[0]


def truth(system: System, run_id: str) -> Truth:
    ref, view = RunRef(run_id, session_key(SESSION)), system.view(run_id)
    keys = system.installed.store.keys
    return Truth(ref, view, system.events(run_id, SESSION), {one.id: keys.lock(ref, one.id) for one in view.steps})


@pytest.mark.parametrize("kind", KINDS)
def test_how_often_did_this_job_run(night: Night, kind: str) -> None:
    run = night.runs[kind]
    assert night.lines.how_often(run.ref.run_id) == Counter(event.fields["step_id"] for event in run.claims())


@pytest.mark.parametrize("kind", KINDS)
def test_before_or_after_its_first_commit(night: Night, kind: str) -> None:
    run = night.runs[kind]
    happened: dict[str, list[bool]] = {}
    committed: set[str] = set()
    for event in run.events:
        if event.event == "step.committed":
            committed.add(event.fields["step_id"])
        if event.event == "step.claimed":
            step_id = event.fields["step_id"]
            happened.setdefault(step_id, []).append(step_id not in committed)
    assert night.lines.before_the_first_commit(run.ref.run_id) == happened


@pytest.mark.parametrize("kind", KINDS)
def test_did_two_workers_see_the_same_version(night: Night, kind: str) -> None:
    run = night.runs[kind]
    saw = night.lines.what_they_saw(run.ref.run_id)
    assert saw == [(event.fields["worker_id"], event.version) for event in run.claims()]
    assert len({version for _, version in saw}) == len(saw)


@pytest.mark.parametrize("kind", KINDS)
def test_was_the_policy_that_of_the_result(night: Night, kind: str) -> None:
    run = night.runs[kind]
    told = night.lines.policies(run.ref.run_id)
    commits = {"step.committed"} if kind in ("killed", "late") else set()
    assert set(told) == {"policy.resolved", "job.start"} | commits
    assert set.union(*told.values()) == {run.view.policy_hash}


@pytest.mark.parametrize("kind", KINDS)
def test_which_lock_was_really_held(night: Night, kind: str) -> None:
    run = night.runs[kind]
    held = [(run.locks[event.fields["step_id"]], int(event.fields["fence"])) for event in run.claims()]
    assert night.lines.locks(run.ref.run_id) == held


def test_who_came_too_late(night: Night) -> None:
    run = night.runs["late"]
    first, second = run.claims()
    told = night.lines.late(run.ref.run_id)
    assert told == [(first.fields["worker_id"], int(first.fields["fence"]))]
    assert first.fields["worker_id"] != second.fields["worker_id"]
    (refused,) = night.lines.of(run.ref.run_id, "effect.refused")
    (committed,) = night.lines.of(run.ref.run_id, "step.committed")
    assert refused["fence"] == refused["closed_to"] < committed["fence"]
    assert committed["timestamp"] < refused["timestamp"]


@pytest.mark.parametrize("kind", KINDS)
def test_how_it_ended_and_which_letters_there_are(night: Night, kind: str) -> None:
    run = night.runs[kind]
    assert night.lines.ends(run.ref.run_id) == {run.view.status}
    assert night.lines.letters(run.ref.run_id) == {letter.id for letter in run.view.dead_letters}
    told = {"killed": "succeeded", "late": "succeeded", "cancelled": "cancelled", "given_up": "failed"}
    assert run.view.status == told[kind]


def test_letters_are_about_what_was_given_up_and_what_came_late(night: Night) -> None:
    found = {kind: {letter.reason for letter in run.view.dead_letters} for kind, run in night.runs.items()}
    assert (found["given_up"], found["late"]) == ({"retry_exhausted"}, {late_effects.REASON})
    assert (found["killed"], found["cancelled"]) == (set(), set())


def test_every_line_of_an_attempt_answers_all_of_it(night: Night) -> None:
    about = ("job.start", "job.end", "step.committed", "effect.refused", "lease.lost", "stop.asked")
    lines = [line for run in night.runs.values() for event in about for line in night.lines.of(run.ref.run_id, event)]
    assert {line["event"] for line in lines} > {"job.start", "job.end", "step.committed", "effect.refused"}
    missing = {(line["event"], name) for line in lines for name in IDENTITY if line.get(name) is None}
    assert missing == set()
