"""Undoing on real workers: killed, frozen, woken when all is over. What a failed run did is undone, once, in order."""

import os
import signal
import time
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from orchestrator import dispatch
from schemas.ids import RunRef, session_key
from tests.support.accounts import ACTION_OF, ONE_TRY, assert_every_effect_is_accounted_for
from tests.support.system import LEASE_S, SWEEP_S, System, step
from tests.support.waiting import eventually

RECOVERY_S = 2 * (LEASE_S + 2 * SWEEP_S)
BAD = step("test.flaky", "bad", failures=0, for_good=True)


def undone(system: System, run_id: str) -> list[str]:
    return [line["step_id"] for line in system.effects(run_id=run_id, what="undone")]


def test_what_a_failed_run_did_is_undone_backwards(system: System) -> None:
    system.start_steps(concurrency=4)
    run_id = system.submit(*(step(action, f"s{i}", value=str(i)) for i, action in enumerate(ACTION_OF.values())), BAD)
    view = system.wait(run_id)
    assert (view.status, view.reason) == ("compensated", "step_failed:bad")
    assert undone(system, run_id) == ["s3", "s2", "s1", "s0"]
    assert [one.step_id for one in view.compensations] == ["s3", "s2", "s1", "s0"]
    assert {one.status for one in view.compensations} == {"compensated"}
    assert view.dead_letters == ()
    assert_every_effect_is_accounted_for(system, view)


def test_a_worker_killed_in_the_middle_of_an_undo(system: System) -> None:
    system.start_steps("first", concurrency=1)
    run_id = system.submit(step("test.order", "s", value="x", undo_hold_s=600), BAD)
    eventually(lambda: system.effects(run_id=run_id, what="undoing"))
    system.start_steps("second", concurrency=1)
    system.processes.kill("first")
    view = system.wait(run_id, timeout_s=RECOVERY_S)
    assert view.status == "compensated"
    assert [one.attempt for one in view.compensations] == [2]
    assert_every_effect_is_accounted_for(system, view)


def test_a_child_killed_in_the_middle_of_an_undo_is_noticed_at_once(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.note", "s", value="x", undo_hold_s=600), BAD)
    first = eventually(lambda: system.effects(run_id=run_id, what="undoing"))[0]
    os.kill(first["pid"], signal.SIGKILL)
    second = eventually(lambda: system.effects(run_id=run_id, what="undoing", attempt=2), timeout_s=RECOVERY_S)[0]
    assert second["at"] - first["at"] < RECOVERY_S
    view = system.wait(run_id)
    assert view.status == "compensated"
    ends = [event.event for event in system.events(run_id) if event.event in ("undo.claim_ended", "undo.expired")]
    assert ends == ["undo.claim_ended", "undo.expired"]


def test_an_undo_that_fails_twice_and_then_works(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.order", "s", value="x", undo_failures=2), BAD)
    view = system.wait(run_id)
    assert view.status == "compensated"
    assert [line["attempt"] for line in system.effects(run_id=run_id, what="undoing")] == [1, 2, 3]
    assert view.dead_letters == ()


def test_an_undo_that_is_given_up_is_a_letter_and_the_others_go_on(system: System) -> None:
    system.start_steps(concurrency=2)
    stuck = step("test.order", "stuck", value="y", undo_failures=100)
    run_id = system.submit(step("test.order", "s", value="x"), stuck, BAD, policy={"limits": {"attempts": 2}})
    view = system.wait(run_id)
    assert view.status == "compensation_failed"
    assert undone(system, run_id) == ["s"]
    (letter,) = view.dead_letters
    assert (letter.kind, letter.step_id) == ("undo", "stuck")
    assert letter.reason == "stuck (test.order, keyed) could not be undone: RuntimeError: not yet"
    assert_every_effect_is_accounted_for(system, view)


@pytest.mark.full
def test_a_lost_message_that_undoes_is_sent_again(new_system: Any) -> None:
    system = new_system(dispatch_check_s=1)
    system.start_control()
    system.start_steps("first", concurrency=1)
    run_id = system.submit(step("test.order", "s", value="x"), step("test.order", "t", value="y", hold_s=600))
    eventually(lambda: system.effects(run_id=run_id, what="began", step_id="t"))
    system.processes.kill("first")
    cancel(system, run_id)
    redis = system.installed.app.backend.client
    eventually(lambda: system.view(run_id).status == "compensating", timeout_s=RECOVERY_S)
    eventually(lambda: redis.delete("mandor.steps"), what="the message in its queue")
    system.start_steps("second", concurrency=1)
    view = system.wait(run_id)
    assert (view.status, view.reason) == ("compensated", "cancelled")
    assert any(event.event == "undo.republished" for event in system.events(run_id))


# ---- ended from outside


def cancel(system: System, run_id: str) -> None:
    reply = system.installed.store.runs.cancel(RunRef(run_id, session_key(None)), 1)
    dispatch.publish(system.installed.app, reply.publish)  # type: ignore[union-attr]


def test_a_cancelled_run_is_undone_its_running_step_too(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.order", "s", value="x"), step("test.order", "t", value="y", hold_s=600))
    eventually(lambda: system.effects(run_id=run_id, what="began", step_id="t"))
    cancel(system, run_id)
    view = system.wait(run_id)
    assert (view.status, view.reason) == ("compensated", "cancelled")
    assert [one.step_id for one in view.compensations] == ["t", "s"]
    assert_every_effect_is_accounted_for(system, view)


def test_a_run_whose_time_is_up_is_undone(system: System) -> None:
    system.start_steps(concurrency=1)
    slow = step("test.order", "t", value="y", hold_s=600)
    run_id = system.submit(step("test.order", "s", value="x"), slow, deadline_s=4)
    view = system.wait(run_id)
    assert (view.status, view.reason) == ("compensated", "deadline")
    assert undone(system, run_id) == ["s"]
    assert_every_effect_is_accounted_for(system, view)


# ---- frozen, and woken when all is over


@pytest.mark.full
@pytest.mark.parametrize("effect", list(ACTION_OF))
def test_a_zombie_that_looks_before_it_acts_does_nothing(system: System, effect: str) -> None:
    system.start_steps("first", concurrency=1)
    run_id = system.submit(step(ACTION_OF[effect], "s", value="x", hold_s=600), policy=ONE_TRY)
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    system.processes.freeze("first")
    system.start_steps("second", concurrency=1)
    view = system.wait(run_id, timeout_s=RECOVERY_S + 10)
    assert view.status == ("failed" if effect == "transactional" else "compensated")
    system.processes.thaw("first")
    system.processes.wait_for_line('lease.lost|effect.refused|"reply": "stop"', name="first")
    if effect == "transactional":
        time.sleep(1)  # for whatever it would do
        assert system.view(run_id) == view
    else:  # it has acted or it has not: nobody else can know, so its compensation is asked to look once more
        eventually(lambda: len(system.effects(run_id=run_id, what="undoing")) == 2, what="the compensation asked again")
    assert (system.effects(run_id=run_id, what="noted"), undone(system, run_id)) == ([], [])


@pytest.mark.full
def test_what_zombies_do_when_all_is_over_is_undone_once_more(system: System, tmp_path: Path) -> None:
    """They were frozen behind their last guard: nobody can keep them from acting. What they report is refused, and half
    of them report an error, so that nobody hears of an effect.
    """
    gate = tmp_path / "gate"
    cases = list(product(("idempotent", "keyed", "once"), (False, True)))
    system.start_steps("first", concurrency=len(cases))
    deaf = {case: step(ACTION_OF[case[0]], "s", value="x", gate=str(gate), deaf=True, raises=case[1]) for case in cases}
    runs = {case: system.submit(deaf[case], policy=ONE_TRY) for case in cases}
    eventually(lambda: all(system.effects(run_id=run_id, what="began") for run_id in runs.values()))
    system.processes.freeze("first")
    system.start_steps("second", concurrency=2)
    ended = {case: system.wait(run_id, timeout_s=RECOVERY_S + 10) for case, run_id in runs.items()}
    assert {view.status for view in ended.values()} == {"compensated"}
    assert not [line for line in system.effects(what="noted") if line["run_id"] in runs.values()]
    gate.touch()
    system.processes.thaw("first")
    for case, run_id in runs.items():
        eventually(lambda run_id=run_id: undone(system, run_id), what=f"the late effect of {case} undone")  # type: ignore[misc]
    for (effect, raises), run_id in runs.items():
        assert_every_effect_is_accounted_for(system, system.view(run_id))
        before, after = ended[effect, raises], system.view(run_id)
        assert (after.status, after.version, after.steps) == (before.status, before.version, before.steps)
        told = [letter.reason for letter in after.dead_letters if letter.reason == "late_effect"]
        sure = [] if effect == "idempotent" else ["late_effect"]
        assert told in ([sure, []] if raises else [sure]), (effect, raises)  # of what nobody is sure it need not tell


def test_a_zombies_transaction_is_refused(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    system.start_steps("first", concurrency=1)
    run_id = system.submit(step("test.book", "s", value="x", gate=str(gate), deaf=True), policy=ONE_TRY)
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    system.processes.freeze("first")
    view = system.wait(run_id, timeout_s=RECOVERY_S + 10)
    gate.touch()
    system.processes.thaw("first")
    system.processes.wait_for_line("effect.refused", name="first")
    assert (view.status, system.view(run_id)) == ("failed", view)
    assert system.effects(run_id=run_id, what="noted") == []


# ---- asked what became of it


def test_a_once_step_whose_child_died_before_its_effect_is_run_again(system: System) -> None:
    system.start_steps(concurrency=1)
    run_id = system.submit(step("test.post", "s", value="x", hold_s=600))
    first = eventually(lambda: system.effects(run_id=run_id, what="began"))[0]
    os.kill(first["pid"], signal.SIGKILL)
    view = system.wait(run_id, timeout_s=RECOVERY_S + 10)
    assert (view.status, view.steps[0].attempt) == ("succeeded", 2)
    assert len(system.effects(run_id=run_id, what="noted")) == 1
    assert system.effects(run_id=run_id, what="asked")


def test_a_once_step_whose_worker_died_after_its_effect_is_completed(system: System) -> None:
    system.start_steps("first", concurrency=1)
    run_id = system.submit(step("test.post", "s", value="x", linger_s=600))
    eventually(lambda: system.effects(run_id=run_id, what="noted"))
    system.start_steps("second", concurrency=1)
    system.processes.kill("first")
    view = system.wait(run_id, timeout_s=RECOVERY_S + 10)
    assert (view.status, view.steps[0].attempt, view.steps[0].result) == ("succeeded", 1, {"value": "x"})
    assert len(system.effects(run_id=run_id, what="noted")) == 1


# ---- what is built in


def test_a_record_that_somebody_else_has_changed_is_left_to_a_person(system: System) -> None:
    system.start_steps(concurrency=2)
    box = str(uuid4())
    change = step("mutate_record", "mine", entity_id=box, changes={"lid": "open"})
    run_id = system.submit(change, step("test.note", "slow", value="x", hold_s=600))
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    other = system.submit(step("mutate_record", "theirs", entity_id=box, changes={"lid": "shut"}))
    assert system.wait(other).status == "succeeded"
    cancel(system, run_id)
    view = system.wait(run_id)
    assert view.status == "compensation_failed"
    (letter,) = view.dead_letters
    assert "is at version 2; this step made version 1" in letter.reason
    record = system.installed.ledger.record(box)
    assert record is not None
    assert (record.version, record.data_text) == (2, '{"lid":"shut"}')


def test_files_and_records_of_a_failed_run_are_put_back(system: System) -> None:
    system.start_steps(concurrency=1)
    box = str(uuid4())
    changes = [step("mutate_record", f"r{i}", entity_id=box, changes={"n": i}) for i in range(2)]
    run_id = system.submit(step("create_file", "f", path="a/b.txt", content="x"), *changes, BAD)
    view = system.wait(run_id)
    assert view.status == "compensated"
    record = system.installed.ledger.record(box)
    assert record is not None
    assert (record.version, record.data_text) == (4, "{}")
    assert not list((system.installed.settings.home / "workspaces").rglob("b.txt"))
