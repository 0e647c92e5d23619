"""What a plan looks like: its steps written out, its graph in lines and in Mermaid."""

import io
import json
from pathlib import Path

import pytest

from orchestrator.cli.command import run
from schemas.states import RunStatus
from tests.support.ledgers import accepted, fresh_ledger, url_of
from tests.support.plans import admit, command, file, plan_text
from workers.cli import graph, mandor

DIAMOND = (
    command(id="start"),
    file("a", id="left"),
    file("b", id="right", needs=["start"]),
    command(id="end", needs=["left", "right"]),
)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(*DIAMOND))
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(mandor, ["plan", *arguments]) == code
    return capsys.readouterr().out


def test_steps_that_could_start_together_stand_together(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "graph", str(plan)).splitlines() == [
        "   1  start  run_command",
        "   2  left   create_file  after start",
        "      right  create_file  after start",
        "   3  end    run_command  after left, right",
    ]


def test_mermaid_names_nodes_by_index(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "graph", str(plan), "--mermaid").splitlines() == [
        "flowchart TD",
        '    n0["start<br/>run_command"]',
        '    n1["left<br/>create_file"]',
        '    n2["right<br/>create_file"]',
        '    n3["end<br/>run_command"]',
        "    n0 --> n1",
        "    n0 --> n2",
        "    n1 --> n3",
        "    n2 --> n3",
    ]


def test_the_graph_as_json(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = json.loads(printed(capsys, "graph", str(plan), "--json"))
    assert drawn["waves"] == [["start"], ["left", "right"], ["end"]]
    assert ["right", "end"] in drawn["edges"]
    assert drawn["mermaid"].startswith("flowchart TD\n")


def test_every_default_is_written_out(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(printed(capsys, "show", str(plan), "--json"))
    assert shown["steps"][0]["params"] == {"command": "true", "timeout_ms": 5000}
    assert (shown["steps"][1]["needs"], shown["steps"][1]["effect"]) == (["start"], "idempotent")
    assert shown["plan_hash"] == admit(plan_text(*DIAMOND)).plan_hash


def test_for_people_values_stay_on_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(file(content="one\n\u202etwo\u001b[31m")))
    shown = printed(capsys, "show", str(path))
    assert '   content: "one\\n\\u202etwo\\u001b[31m"' in shown
    assert "0  s0  create_file (idempotent)" in shown


def test_what_is_no_plan_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    error = json.loads(printed(capsys, "graph", "-", "--json", code=1))["error"]
    assert error["kind"] == "payload_drift"


def test_a_run_s_plan_is_found_by_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = fresh_ledger(tmp_path)
    run_id = accepted(ledger, "order-1").run_id
    monkeypatch.setenv("MANDOR_LEDGER_URL", url_of(tmp_path / "ledger.db"))
    assert "no plan yet" in printed(capsys, "show", run_id, "--json", code=1)
    made = admit(plan_text(*DIAMOND))
    ledger.store_plan(run_id, 1, made.plan_hash, made.plan_text, None)
    assert json.loads(printed(capsys, "show", run_id, "--json"))["plan_hash"] == made.plan_hash
    ledger.end_run(run_id, 1, RunStatus.FAILED, None, 1, 1)
    ledger.reopen_run(run_id, 2, RunStatus.RUNNING)  # started over, it goes by the plan it has
    assert json.loads(printed(capsys, "show", run_id, "--json"))["plan_hash"] == made.plan_hash


def test_a_chain_has_as_many_waves_as_steps() -> None:
    steps = [command(needs=[f"s{index - 1}"] if index else []) for index in range(1000)]
    assert len(graph.waves(admit(plan_text(*steps)).steps)) == 1000
