"""Workers are recycled and killed, by the child and as a whole: what they counted is what happened."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.audit import history
from orchestrator.telemetry.counting import UNREADABLE
from schemas.ids import RunRef
from tests.support.scraping import family, scraped, url_of
from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]
ACTIONS = "tests.support.business,tests.support.talkative"
ENDS = ("success", "failure", "retry", "snooze", "killed", "timeout", "success", "exit")
SECRET = "correct-horse-battery-staple"
ATTEMPTS = "mandor_attempts_total"
COMMITS = "mandor_steps_committed_total"


@dataclass
class Worked:
    """A system that has done its work, and what was seen of it. scrapes: of the step worker, in their order."""

    system: System
    runs: list[str]
    scrapes: list[dict[str, float]] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.system.installed.settings.home

    def scrape(self, role: str) -> dict[str, float]:
        return scraped(url_of(self.home, role))

    def transitions(self) -> Counter[str]:
        """Events of all runs, by the store."""
        store = self.system.installed.store
        return Counter(event.event for run_id in self.runs for event in history(store, RunRef(run_id, "-")))


@pytest.fixture(scope="module")
def worked(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worked]:
    folder = tmp_path_factory.mktemp("metrics")
    with (
        running_server(folder / "server", server_kind) as server,
        running_system(server.url, folder, actions=ACTIONS, llm_api_key=SECRET, health_every_s=0.5) as system,
    ):
        system.start_control()
        start_steps(system)
        with system.installed.in_force():
            made = Worked(system, [])
            work(made)
            yield made


def start_steps(system: System) -> None:
    system.processes.worker("steps", "--max-tasks-per-child", "4", queues="steps", concurrency=2)


def work(made: Worked) -> None:
    system = made.system
    held = system.submit(step("test.note", "s", value="x", hold_s=600))
    eventually(lambda: system.effects(run_id=held, what="began"))
    look(made)
    system.processes.kill("steps")
    start_steps(system)
    marks = [f"{end}-{number}" for number, end in enumerate(ENDS)]
    made.runs = [
        held,
        *(system.submit(step("test.talk", mark=mark, end=mark.split("-")[0]), request_id=mark) for mark in marks),
        *(system.submit(step("test.echo", value=str(number)), request_id=f"echo-{number}") for number in range(8)),
        system.submit(step("test.flaky", failures=9), request_id="flaky"),
    ]
    for run_id in made.runs:
        look(made)
        system.wait(run_id, timeout_s=60)
        look(made)
    eventually(lambda: made.scrape("control")["mandor_runs_accepted_total"] == len(made.runs))


def look(made: Worked) -> None:
    """One more scrape, if the worker can be asked just now."""
    try:
        made.scrapes.append(made.scrape("steps"))
    except OSError:
        return


def test_attempts_and_commits_are_those_of_the_store(worked: Worked) -> None:
    found, happened = worked.scrape("steps"), worked.transitions()
    assert sum(family(found, ATTEMPTS).values()) == happened["step.claimed"]
    assert set(family(found, ATTEMPTS)) == {"test.note", "test.talk", "test.echo", "test.flaky"}
    assert found[COMMITS] == happened["step.committed"] == len(worked.runs) - 2


def test_ends_of_runs_are_those_of_the_ledger(worked: Worked) -> None:
    ledger = worked.system.installed.ledger
    ended = Counter(run.status for run in ledger.listed(100) if run.ended_at)
    counted = Counter(family(worked.scrape("control"), "mandor_runs_ended_total"))
    counted += Counter(family(worked.scrape("supervise"), "mandor_runs_ended_total"))
    assert counted == ended
    assert ended == {"succeeded": len(worked.runs) - 2, "failed": 1, "compensation_failed": 1}


def test_every_failed_attempt_is_counted_once_by_its_cause(worked: Worked) -> None:
    """failure, retry, killed, exit and the killed worker; three of flaky, which then has no attempt left."""
    found = Counter(family(worked.scrape("steps"), "ai_worker_failures_total"))
    found += Counter(family(worked.scrape("supervise"), "ai_worker_failures_total"))
    assert found == {"step_error": 8, "step_timeout": 1, "retry_exhausted": 1}
    claims = Counter(family(worked.scrape("steps"), "mandor_claims_ended_total"))
    claims += Counter(family(worked.scrape("supervise"), "mandor_claims_ended_total"))
    assert claims["parent"] == 2  # killed, and killed at its time limit
    assert claims["redelivery"] + claims["reclaim-stale-leases"] == 3  # and that of the killed worker


def test_every_attempt_that_ended_or_was_killed_for_its_time_was_timed(worked: Worked) -> None:
    found, happened = worked.scrape("steps"), worked.transitions()
    unseen = 2  # a process that somebody else kills can say nothing
    assert found["ai_worker_loop_duration_seconds_count"] == happened["step.claimed"] - unseen
    assert found['ai_worker_loop_duration_seconds_bucket{le="1.0"}'] < found["ai_worker_loop_duration_seconds_count"]


def test_no_alarm_was_raised(worked: Worked) -> None:
    found = {**worked.scrape("steps"), **worked.scrape("control")}
    never = ("extra_commits", "policy_mismatches", "version_conflicts", "dispatches_over_completions")
    assert {name: value for name, value in found.items() if any(word in name for word in never) and value} == {}


def test_no_counter_has_ever_fallen(worked: Worked) -> None:
    assert len(worked.scrapes) > len(worked.runs)
    for before, after in zip(worked.scrapes, worked.scrapes[1:], strict=False):
        counted = (
            name for name in before if "_total" in name or "_bucket" in name or name.endswith(("_sum", "_count"))
        )
        fell = {name: (before[name], after.get(name)) for name in counted if after.get(name, 0.0) < before[name]}
        assert fell == {}


def test_gauges_tell_the_truth_again(worked: Worked) -> None:
    def idle() -> bool:
        found = worked.scrape("steps")
        return (
            found['mandor_worker_processes{state="idle"}'] == 2 and found['mandor_worker_processes{state="busy"}'] == 0
        )

    eventually(idle, timeout_s=30)


def test_files_are_bounded_and_a_scrape_is_quick_whatever_lies_there(worked: Worked) -> None:
    (folder,) = (worked.home / "metrics").glob("steps@*")
    eventually(lambda: len(list(folder.iterdir())) <= 3 * 3 + 2, what="two children, their parent, and the archive")
    before = worked.scrape("steps")
    (folder / "counter_999999999-x.db").write_bytes(b"")
    (folder / "histogram_999999998-y.db").write_bytes(b"\x99" * 500)
    started = time.monotonic()
    after = worked.scrape("steps")
    assert time.monotonic() - started < 1
    assert after[COMMITS] == before[COMMITS]
    eventually(lambda: len(list(folder.glob(f"*{UNREADABLE}"))) == 2)
    assert worked.scrape("steps")['mandor_metrics_files{state="unreadable"}'] == 2


def test_only_the_main_process_has_the_port(worked: Worked) -> None:
    port = int(url_of(worked.home, "steps").rpartition(":")[2])
    parent = worked.system.processes.child("steps").pid
    group = {pid for pid in processes() if parent in (pid, parent_of(pid))}
    assert len(group) == 3
    assert {pid for pid in group if listens(pid, port)} == {parent}


def test_no_secret_is_in_logs_metrics_history_or_letters(worked: Worked) -> None:
    system = worked.system
    lines = system.processes.lines()
    views, ledger = system.installed.store.views, system.installed.ledger
    told = [
        *lines,
        *(json.dumps(worked.scrape(role)) for role in ("steps", "control", "planner", "supervise")),
        *(str(event) for run_id in worked.runs for event in history(system.installed.store, RunRef(run_id, "-"))),
        *(str(views.errors(RunRef(run_id, "-"))) for run_id in worked.runs),
        *(letter.model_dump_json() for letter in ledger.letters(100)),
        *(path.read_text(errors="replace") for path in (worked.home / "metrics").rglob("*") if path.is_file()),
    ]
    assert len(lines) > 100
    assert [line for line in told if SECRET in line or "hunter2" in line] == []


def processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def parent_of(pid: int) -> int:
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
        )
    except OSError:
        return 0


def listens(pid: int, port: int) -> bool:
    """Whether the process has a socket that listens on the port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    wanted = {f"socket:[{row[9]}]" for row in rows if int(row[1].partition(":")[2], 16) == port and row[3] == "0A"}
    assert wanted
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(link.readlink()))
        except OSError:
            continue
    return bool(found & wanted)
