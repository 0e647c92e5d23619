"""One run is one chord: members start when what they need is done, and the body runs where every part was reported."""

import time
from collections.abc import Iterator

import pytest

from orchestrator import dispatch
from orchestrator.errors import SubmissionRefused
from schemas.ids import settle_task_id, step_task_id
from tests.support.system import System, result_of, step
from tests.support.task_events import TaskEvents, task_events
from tests.support.waiting import eventually


@pytest.fixture
def heard(system: System) -> Iterator[TaskEvents]:
    with task_events(system.installed.app) as events:
        yield events


def settles(heard: TaskEvents, run_id: str) -> int:
    """How many `settle` tasks of a run control has had: one from its last step, one from its chord's body."""
    return heard.count(settle_task_id(run_id))


def settled_since(system: System, heard: TaskEvents) -> None:
    """Return when control has had what lay in its queue: it takes one after the other, and this run's comes last."""
    run_id = system.submit(step("test.echo", value="x"))
    assert system.wait(run_id).status == "succeeded"
    eventually(lambda: settles(heard, run_id) == 2, what="both settles of a later run")


def quiet(system: System) -> bool:
    """Celery's backend has complained of nothing."""
    return not [line for line in system.processes.lines() if "celery.backends" in line or "Traceback" in line]


def chord_keys(system: System, run_id: str) -> list[bytes]:
    """What is left of the chord's bookkeeping; its claim key turns late parts away and goes by itself."""
    keys: list[bytes] = system.installed.app.backend.client.keys(f"celery-taskset-meta-{run_id}*")
    return [key for key in keys if not key.endswith(b".c")]


def test_a_diamond_starts_its_middle_together(system: System) -> None:
    system.start_steps(concurrency=4)
    run_id = system.submit(
        step("test.note", "a", value="a"),
        step("test.note", "b", ["a"], value="b", hold_s=1.5),
        step("test.note", "c", ["a"], value="c", hold_s=1.5),
        step("test.note", "d", ["b", "c"], value=result_of("b")),
    )
    assert system.wait(run_id).status == "succeeded"
    at = {(line["step_id"], line["what"]): line["at"] for line in system.effects(run_id=run_id)}
    assert max(at["b", "began"], at["c", "began"]) < min(at["b", "noted"], at["c", "noted"])
    assert at["a", "noted"] < min(at["b", "began"], at["c", "began"])
    assert max(at["b", "noted"], at["c", "noted"]) < at["d", "began"]
    assert quiet(system)


def test_a_slow_step_holds_up_only_what_needs_it(system: System) -> None:
    system.start_steps(concurrency=2)
    run_id = system.submit(
        step("test.note", "slow", [], value="slow", hold_s=600),
        step("test.note", "after-slow", ["slow"], value="x"),
        *(step("test.note", f"q{i}", [f"q{i - 1}"] if i else [], value=str(i)) for i in range(5)),
    )
    eventually(lambda: system.effects(run_id=run_id, step_id="q4", what="noted"))
    statuses = {one.id: one.status for one in system.view(run_id).steps}
    assert (statuses["slow"], statuses["after-slow"]) == ("running", "pending")


def test_the_body_runs_when_every_part_was_reported(system: System, heard: TaskEvents) -> None:
    """Also where a step was retried; and it comes on top of the last step's own message."""
    system.start_steps(concurrency=2)
    run_id = system.submit(
        step("test.flaky", "s", failures=1), *(step("test.echo", f"e{i}", [], value="x") for i in range(4))
    )
    view = system.wait(run_id)
    assert view.status == "succeeded"
    assert {one.id: one.attempt for one in view.steps}["s"] == 2
    eventually(lambda: settles(heard, run_id) == 2, what="the last step's and the chord's settle")
    eventually(lambda: not chord_keys(system, run_id))
    settled_since(system, heard)
    assert settles(heard, run_id) == 2
    assert quiet(system)


def test_a_failed_step_ends_its_run_and_leaves_no_chord(system: System, heard: TaskEvents) -> None:
    system.start_steps(concurrency=2)
    run_id = system.submit(
        step("test.echo", "before", value="x"),
        step("test.flaky", "bad", failures=9, for_good=True),
        step("test.echo", "after", value="x"),
    )
    view = system.wait(run_id)
    assert (view.status, view.reason) == ("failed", "step_failed:bad")
    assert [one.status for one in view.steps] == ["completed", "failed", "skipped"]
    assert view.steps[1].error is not None
    assert view.steps[1].error.message == "it will never work"
    eventually(lambda: not chord_keys(system, run_id))
    settled_since(system, heard)
    assert settles(heard, run_id) == 1  # the step's own; the chord's body did not run
    assert quiet(system)


def test_a_step_revoked_in_celery_is_sent_again(system: System) -> None:
    """Revoking is nobody's way to stop a run: the message is lost, and a lost message is sent again."""
    system.start_steps("deaf", concurrency=1)
    run_id = system.submit(
        step("test.note", "first", [], value="x", hold_s=600), step("test.note", "second", ["first"], value="y")
    )
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    system.installed.app.control.revoke(step_task_id(run_id, "second"))
    system.processes.wait_for_line("second.*revoked|Tasks flagged as revoked", name="deaf")
    assert system.view(run_id).status == "running"
    system.start_steps("other", concurrency=1)
    system.processes.kill("deaf")
    view = system.wait(run_id, timeout_s=60)
    assert view.status == "succeeded"
    assert quiet(system)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.full
def test_ten_thousand_steps_run(new_system: object) -> None:
    system: System = new_system(max_steps=10_000, max_parallel=500)  # type: ignore[operator]
    system.start_control()
    system.start_steps("first", concurrency=2)
    steps = [step("test.echo", f"s{i}", [], value="x") for i in range(10_000)]
    run_id = system.submit(*steps)
    state = eventually(lambda: finished(system, run_id), timeout_s=500, what="10,000 steps")
    assert state == {"completed": 10_000}
    assert quiet(system)


def finished(system: System, run_id: str) -> dict[str, int] | None:
    state = system.view(run_id)
    if state.status not in ("succeeded", "failed"):
        time.sleep(0.5)
        return None
    counts: dict[str, int] = {}
    for one in state.steps:
        counts[one.status] = counts.get(one.status, 0) + 1
    return counts


def test_a_plan_beyond_the_limits_is_refused_by_name(system: System) -> None:
    run_id = system.submit(*(step("test.echo", value="x") for _ in range(1001)))
    assert system.wait(run_id).status == "dead_lettered"
    (letter,) = system.installed.ledger.letters(5, run_id=run_id)
    assert "1000" in letter.reason
    assert "MANDOR_MAX_STEPS" in letter.reason


def test_a_plan_over_the_byte_cap_is_refused_at_the_submission(system: System) -> None:
    fields = {"plan": " " * (1024 * 1024 + 1), "context": {}}
    result = dispatch.send_submission(system.installed.app, fields, "too-large")
    with pytest.raises(SubmissionRefused, match="MANDOR_PLAN_BYTES"):
        dispatch.await_answer(result, 20)
