"""The moving table: what it shows of a run, and never more than the terminal has room for."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from orchestrator.cli import board
from orchestrator.cli.follow import Lines, Objects
from orchestrator.store.views import Event
from tests.support.following import NOW, Followed, moved, state, step


def drawn(run: Followed, width: int = 100, height: int = 30, remark: str | None = None, **options: Any) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, **options)
    console.print(board.picture(run, width, height, remark))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_run_that_is_only_accepted_has_a_head() -> None:
    run = Followed(state=None)
    assert drawn(run) == [f"{run.run_id}  accepted", "age 5 s, session s"]


def test_a_running_one_shows_its_steps_in_the_plan_s_order() -> None:
    run = Followed(
        step(0, "completed", took_ms=1_200),
        step(1, "running", since_ms=3_000),
        step(2, "backoff", in_ms=2_500),
        step(3, "dispatched"),
        step(4, "pending"),
    )
    lines = drawn(run)
    assert lines[1] == "age 5 s, deadline in 1 min 00 s, planner orders.fulfil, session s"
    assert lines[2] == "1 of 5 steps, 1 running, 1 backoff, 1 dispatched, 1 pending"
    assert [line.split() for line in lines[4:]] == [
        ["step", "action", "status", "attempt", "took", "worker"],
        ["s0", "test.echo", "completed", "1", "of", "3", "1.2", "s", "host:41"],
        ["s1", "test.echo", "running", "1", "of", "3", "3", "s", "host:41"],
        ["s2", "test.echo", "backoff", "1", "of", "3", "in", "2", "s", "host:41"],
        ["s3", "test.echo", "dispatched"],
        ["s4", "test.echo", "pending"],
    ]


@pytest.mark.parametrize(("width", "height"), [(40, 8), (60, 15), (80, 24), (200, 60), (20, 3)])
def test_ten_thousand_steps_fit_any_terminal(width: int, height: int) -> None:
    steps = [step(index, "completed", took_ms=10) for index in range(10_000)]
    steps[5_000] = step(5_000, "failed", took_ms=10)
    steps[7_000] = step(7_000, "running", since_ms=10)
    run = Followed(*steps, errors={"s5000": "no stock " * 40})
    lines = drawn(run, width, height, remark="the store does not answer " * 5)
    assert max(map(len, lines)) <= width
    if height >= 15:
        assert len(lines) <= height
        shown = [line.split()[0] for line in lines if line.startswith("s")]
        assert {"s5000", "s7000"} <= set(shown)
    assert any(line.startswith(("9999 more", "9998 more", "9")) and "more" in line for line in lines)


def test_what_is_not_shown_is_counted() -> None:
    run = Followed(*(step(index, "pending") for index in range(50)))
    lines = drawn(run, height=20)
    assert len(lines) <= 20
    assert lines[-1] == f"{50 - len(board.chosen(list(run.steps.values()), 13, NOW))} more: 37 pending"


def test_where_there_is_no_room_what_is_wrong_comes_first_and_then_what_moves() -> None:
    words = ["completed", "pending", "dispatched", "running", "backoff", "failed", "skipped", "in_doubt"]
    steps = [step(index, word, since_ms=1_000) for index, word in enumerate(words)]
    for room, wanted in ((2, {"failed", "in_doubt"}), (3, {"running"}), (4, {"backoff"}), (5, {"dispatched"})):
        assert wanted <= {one.status for one in board.chosen(steps, room, NOW)}
    assert [one.index for one in board.chosen(steps, 5, NOW)] == [2, 3, 4, 5, 7]


def test_a_lapsed_lease_is_stale() -> None:
    lapsed = step(0, "running", since_ms=9_000, lease_ms=-1)
    assert board.word_of(lapsed, NOW) == "STALE"
    assert board.lapsed([lapsed, step(1, "running")], NOW) == [lapsed]
    assert "STALE" in drawn(Followed(lapsed))[-1]


def test_while_nothing_can_be_learned_no_lease_is_said_to_have_lapsed() -> None:
    out = io.StringIO()
    run = Followed(step(0, "running", since_ms=9_000, lease_ms=-1))
    picture = board.picture(run, 80, 20, "the store does not answer", NOW - 5_000)
    Console(file=out, width=80).print(picture)
    assert "STALE" not in out.getvalue()
    assert "age 0 s" in out.getvalue()
    assert "the store does not answer" in out.getvalue()


def test_the_last_errors_stand_below_on_one_line_each() -> None:
    run = Followed(step(0, "failed", took_ms=5), errors={"s0": "card\x1b[31m declined\n" + "x" * 200})
    lines = drawn(run, 60)
    assert lines[-1].startswith("s0: card\\x1b[31m declined\\n")
    assert lines[-1].endswith("…")


def test_nobody_there_is_told_after_a_while() -> None:
    assert board.lonely(Followed(state=None, age_ms=5_000)) is None
    assert "are the workers running?" in str(board.lonely(Followed(state=None, age_ms=20_000)))
    waiting = Followed(step(0, "dispatched", since_ms=20_000))
    assert "step workers" in str(board.lonely(waiting))
    assert board.lonely(Followed(step(0, "dispatched", since_ms=20_000), step(1, "running"))) is None


def test_a_paused_run_says_who_and_is_not_lonely() -> None:
    paused = replace(state(dispatched=1), paused_at=NOW - 90_000, paused_by="ann")
    run = Followed(step(0, "dispatched", since_ms=20_000), state=paused)
    assert "paused 1 min 30 s ago by ann" in drawn(run)[1]
    assert board.lonely(run) is None


def test_an_ended_run_says_when_and_after_how_long() -> None:
    run = Followed(step(0, "completed", took_ms=5), state=state("succeeded", ended_at=NOW, completed=1))
    lines = drawn(run)
    assert lines[0].endswith("succeeded")
    assert lines[1].startswith("ended ")
    assert lines[2] == "1 of 1 steps, after 5.0 s"


def test_colours_only_where_they_are_wanted() -> None:
    run = Followed(step(0, "failed", took_ms=5))
    assert "\x1b[31m" in "".join(drawn(run, force_terminal=True, color_system="standard"))
    assert "\x1b[31m" not in "".join(drawn(run, force_terminal=True, color_system="standard", no_color=True))


# ---- without a terminal


NEWS = [
    Event("1-0", 1, NOW - 4000, "run.accepted", ()),
    Event("2-0", 2, NOW - 3900, "plan.claimed", (), {"attempt": "1", "worker_id": "host:7:99"}),
    Event("3-0", 3, NOW - 3800, "plan.admitted", moved("s0=dispatched", "s1=dispatched"), {"fence": "1"}),
    Event("4-0", 4, NOW - 3700, "step.claimed", moved("s0=running"), {"step_id": "s0", "worker_id": "host:41:5"}),
    Event("5-0", 5, NOW - 2500, "step.failed", moved("s0=failed", "s1=skipped", "s2=skipped"), {"step_id": "s0"}),
    Event("6-0", 6, NOW, "run.failed", (), {"reason": "step_failed:s0"}),
]


def failed() -> Followed:
    ended = state("failed", ended_at=NOW, reason="step_failed:s0", failed=1, skipped=2)
    steps = (step(0, "failed", took_ms=1_200), step(1, "skipped"), step(2, "skipped"))
    return Followed(*steps, state=ended, errors={"s0": "no stock"})


def test_in_a_pipe_each_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    Lines().show(failed(), NEWS)
    lines = [" ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "run accepted",
        "plan claimed by host:7",
        "plan admitted",
        "s0 running attempt 1 by host:41",
        "s0 failed after 1.2 s: no stock",
        "2 steps skipped",
        "run failed 0 of 3 steps, 1 failed, 2 skipped, step_failed:s0, after 5.0 s",
    ]


def test_trouble_is_told_once_and_aside(capsys: pytest.CaptureFixture[str]) -> None:
    lines, run = Lines(), Followed()
    for _ in range(3):
        lines.trouble(run, "the store does not answer; trying again")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "the store does not answer; trying again\n")


def test_for_programs_each_transition_is_an_object_and_the_end_is_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    Objects().show(failed(), NEWS)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["event"] for one in found] == [*(event.event for event in NEWS), "end"]
    assert found[4]["moves"][0] == {"step_id": "s0", "status": "failed", "attempt": 1, "fence": 1}
    assert (found[-1]["status"], found[-1]["counts"]) == ("failed", {"failed": 1, "skipped": 2})
    assert found[-1]["at"].endswith("Z")
