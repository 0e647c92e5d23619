import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import click
import pytest

from orchestrator.cli import inputs, output, runs
from schemas.run import StepView
from tests.support.following import RUN_ID


def step(index: int, status: str = "completed") -> StepView:
    return StepView.model_validate(
        {
            "id": f"s{index}",
            "index": index,
            "action": "a",
            "status": status,
            "attempt": 1,
            "attempt_group": 0,
            "fence": 1,
            "step_token": "step",
            "policy_hash": None,
            "needs": [],
            "result": None,
            "error": None,
            "dispatched_at": None,
            "started_at": None,
            "ended_at": None,
        }
    )


def lines(keyboard: int) -> Iterator[str]:
    """What was written to a terminal that is closed."""
    with suppress(OSError):
        while piece := os.read(keyboard, 65_536):
            yield piece.decode()


@pytest.mark.parametrize("columns", [1, 20, 36, 39, 40, 60])
def test_a_narrow_terminal_gets_whole_ids(columns: int) -> None:
    program = (
        "from orchestrator.cli import output; output.print_table(['id', 'status', 'age', 'error'],"
        f" [['{RUN_ID}', 'dead_lettered', '12 min', 'x' * 90]])"
    )
    keyboard, screen = pty.openpty()
    try:
        environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
        subprocess.run([sys.executable, "-c", program], stdout=screen, env=environment, check=True, timeout=60)
        os.close(screen)
        shown = "".join(lines(keyboard))
    finally:
        os.close(keyboard)
    assert (RUN_ID in shown, "dead_lettered" in shown, shown.count("x")) == (True, True, 90)


def test_a_pipe_gets_whole_aligned_values_without_colour(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["name", "value"], [["a", "x" * 200], ["long name", 3], [None, "evil\x1b[2J\nline"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "name       value"
    assert lines[1] == "a          " + "x" * 200
    assert lines[2] == "long name  3"
    assert lines[3] == "           evil\\x1b[2J\\nline"


def test_fields_leave_out_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_fields({"run": "r", "reason": None, "status": "succeeded"})
    assert capsys.readouterr().out == "run     r\nstatus  succeeded\n"


@pytest.mark.parametrize(
    ("ms", "text"),
    [(-3, "0 ms"), (999, "999 ms"), (3_440, "3.4 s"), (125_000, "2 min 05 s"), (11_220_000, "3 h 07 min")],
)
def test_durations(ms: int, text: str) -> None:
    assert output.duration(ms) == text


@pytest.mark.parametrize(
    ("ms", "text"), [(-1, "0 s"), (3_999, "3 s"), (60_000, "1 min 00 s"), (86_400_000 * 2 + 3_600_000 * 4, "2 d 4 h")]
)
def test_ages(ms: int, text: str) -> None:
    assert output.age(ms) == text


def test_of_a_wide_run_those_steps_are_shown_that_something_is_the_matter_with() -> None:
    steps = tuple(step(index, "failed" if index == 5_000 else "completed") for index in range(10_000))
    shown = runs.chosen(steps)
    assert len(shown) == runs.SHOWN_STEPS
    assert [one.index for one in shown] == sorted(one.index for one in shown)
    assert any(one.status == "failed" for one in shown)


def test_standard_input_can_be_asked_for_once_only() -> None:
    inputs.one_stdin("-", "file", None)
    with pytest.raises(click.UsageError, match="only one"):
        inputs.one_stdin("-", None, "-")


def test_a_value_and_its_file_exclude_each_other() -> None:
    with pytest.raises(click.UsageError, match="--goal"):
        inputs.one_text("goal", "text", "file")


def test_a_file_that_is_not_there_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match=r"/nowhere/x: No such file"):
        inputs.read_bytes("/nowhere/x")


def test_a_remark_that_others_wrote_on_several_lines_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    output.note("connection refused\n\tIs the server running?\n")
    output.note("  a hint")
    assert capsys.readouterr().err == "connection refused Is the server running?\n  a hint\n"
