"""Hostile plans of the corpus in a real system, and all that people then read: logs, metrics, commands' output."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from orchestrator.cli.command import run
from schemas.ids import RunRef, session_key
from schemas.run import RunView
from tests.support.hostile import steps
from tests.support.sandboxes import ladder
from tests.support.scraping import scraped, url_of
from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually
from workers.cli import mandor
from workers.workspace import Workspaces

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]
MARK = f"m4rk-{uuid4().hex}"
ALONE: dict[str, Any] = {"needs": []}
STOP = {"on_failure": "stop"}
ENOUGH = 15  # steps of five hundred, to see whether a label grows with each
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")  # all but the line's own end


@dataclass(frozen=True)
class Seen:
    """What became of the cases, by id. labels: of one step, and of many."""

    system: System
    runs: dict[str, RunView]
    labels: tuple[set[str], set[str]]

    def shown(self, *arguments: str) -> str:
        """All that a command prints for people."""
        with self.system.installed.in_force(), redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
            run(mandor, arguments)
        return out.getvalue()

    def letters(self, name: str) -> list[Any]:
        run_id = self.runs[name].run_id
        return [one for one in self.system.installed.ledger.letters(100) if one.run_id == run_id]


@pytest.fixture(scope="module")
def seen(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("hostile")
    if not ladder().working[:1]:
        pytest.skip(f"no sandbox here: {ladder().missing}")
    with running_server(folder / "server", server_kind) as server, running_system(server.url, folder) as system:
        system.start_control()
        system.start_steps()
        runs = {name: ended(system, name) for name in ("log-01", "log-02", "log-03", "log-04", "met-02")}
        runs |= {f"{name} alone": ended(system, name, len(steps(name, TOKENS)) - 1) for name in ("log-01", "log-03")}
        runs["words"] = fails(system, step("run_command", command=f"echo tok={MARK} >&2; exit 3"))
        runs["refused"] = fails(system, step("run_command", command="true", timeout_ms=f"soon {MARK}"))
        labels = labels_of(system)
        runs["iso-10"] = dies(system)
        yield Seen(system, runs, labels)


TOKENS: dict[str, object] = {"MARK": MARK}


def ended(system: System, name: str, *only: int) -> RunView:
    """The run of a case, or of one of its steps."""
    planned = [{**one, **ALONE} for number, one in enumerate(steps(name, TOKENS)) if not only or number in only]
    return system.wait(system.submit(*planned, policy=STOP))


def fails(system: System, one: dict[str, Any]) -> RunView:
    view = system.wait(system.submit(one, policy=STOP))
    assert view.status in {"failed", "dead_lettered"}
    return view


def labels_of(system: System) -> tuple[set[str], set[str]]:
    """The names and labels of all time series, after one step of met-01 and after many."""
    many = [{**one, **ALONE} for one in steps("met-01", {})]
    system.wait(system.submit(many[0]))
    url = url_of(system.installed.settings.home, "steps")
    before = set(scraped(url))
    run_id = system.submit(*many)
    eventually(lambda: completed(system.view(run_id)) >= ENOUGH, timeout_s=90)
    system.installed.store.runs.cancel(RunRef(run_id, session_key(None)), 1)
    system.wait(run_id)
    return before, set(scraped(url))


def completed(view: RunView) -> int:
    return sum(one.status == "completed" for one in view.steps)


def dies(system: System) -> RunView:
    """iso-10: the worker is killed between the two lines that the command writes; another one comes."""
    run_id = system.submit(*steps("iso-10", {}), policy=STOP)
    log = Workspaces(system.installed.settings.home).path(run_id) / "log"
    eventually(lambda: log.exists() and log.read_text() == "start\n")
    system.processes.kill("steps")
    system.start_steps("others")
    view = system.wait(run_id)
    assert log.read_text() == "start\n"
    return view


# ---- what is refused, and what is done


def test_a_name_that_is_no_name_is_refused_at_the_door(seen: Seen) -> None:
    for name in ("log-01", "log-03", "met-02"):
        assert seen.runs[name].status == "dead_lettered"
        (letter,) = seen.letters(name)
        assert "steps.0.params.path" in {error["path"] for error in letter.content["attempts"][0]["errors"]}
    assert seen.runs["log-03 alone"].status == "dead_lettered", "signs that turn what a reader sees"


def test_a_command_that_nobody_saw_end_is_not_run_again(seen: Seen) -> None:
    (lost,) = seen.runs["iso-10"].steps
    assert (lost.status, lost.attempt) == ("in_doubt", 1)


# ---- the log


def test_one_event_is_one_line(seen: Seen) -> None:
    lines = seen.system.processes.lines()
    assert len(lines) > 100
    assert not [line for line in lines if line.lstrip().startswith(("2026-01-01T", "ERROR forged"))]
    ours = [line for line in lines if line.startswith("{")]
    assert all(json.loads(line)["event"] for line in ours)
    assert not [line for line in ours if RAW.search(line)]


def test_values_are_in_results_and_in_no_log(seen: Seen) -> None:
    """log-04, and what a command said last, and a value that the door refused."""
    assert seen.runs["log-04"].steps[0].result["stdout_head"] == f"tok={MARK}\n"
    assert MARK in str(seen.runs["words"].steps[0].error)
    assert not [line for line in seen.system.processes.lines() if MARK in line]


# ---- what commands print


@pytest.mark.parametrize("name", ["log-01", "log-02", "log-03", "met-02", "words"])
def test_nothing_that_is_shown_acts_on_a_terminal(seen: Seen, name: str) -> None:
    run_id = seen.runs[name].run_id
    shown = [seen.shown("run", what, run_id) for what in ("show", "events", "result", "why")]
    shown += [seen.shown("plan", "show", run_id), seen.shown("run", "list"), seen.shown("dlq", "list")]
    shown += [seen.shown("dlq", "show", letter.id) for letter in seen.letters(name)]
    assert all(shown)
    assert not [text for text in shown if RAW.search(text)]


def test_it_is_shown_by_its_escape(seen: Seen) -> None:
    assert "\\x1b]0;pwn\\x07" in _unquoted(seen.shown("run", "result", seen.runs["log-02"].run_id))
    (letter,) = seen.letters("log-03")
    assert "invoice\\u202efdp.sh" in _unquoted(seen.shown("dlq", "show", letter.id))


def _unquoted(text: str) -> str:
    """JSON within what is shown doubles a backslash, and spells a control character its own way."""
    return text.replace("\\\\", "\\").replace("\\u001b", "\\x1b").replace("\\u0007", "\\x07")


# ---- metrics


def test_labels_do_not_grow_with_steps(seen: Seen) -> None:
    one, many = seen.labels
    assert many == one


def test_no_text_of_a_plan_is_a_label(seen: Seen) -> None:
    """met-02; the page was read by a parser."""
    assert not [name for names in seen.labels for name in names if re.search(r"evil|s-\d|true #|log-0", name)]
