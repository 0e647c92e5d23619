"""Every process restarted in turn under load, as a new release would: nothing is lost, fails, or is done twice."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from uuid import uuid4

import pytest

from orchestrator import dispatch
from schemas.ids import run_id_for
from tests.support.system import System, plan_text, step
from tests.support.waiting import eventually

PAUSE_S = 1.0
# what listens is handed back; what does not listen is short, and ends within the worker's grace
STEPS = (
    step("test.echo", "a", value="x", delay_s=0.5),
    step("test.note", "b", ["a"], value="b", hold_s=0.5),
    step("test.order", "c", ["a"], value="c", hold_s=0.5),
    step("test.send", "d", ["a"], value="d", hold_s=0.5, deaf=True),
    step("test.book", "e", ["b", "c", "d"], value="e", hold_s=0.5),
)


def submit_until(system: System, stop: Event) -> list[str]:
    """One run after another, whoever is there to take them; answers the ids that they will have."""
    runs: list[str] = []
    while not stop.wait(PAUSE_S):
        task_id = str(uuid4())
        dispatch.send_submission(system.installed.app, {"plan": plan_text(*STEPS), "context": {}}, task_id).forget()
        runs.append(run_id_for("celery", None, task_id))
    return runs


@pytest.mark.full
@pytest.mark.timeout(300)
def test_every_process_is_restarted_under_load(new_system: Callable[..., System]) -> None:
    system = new_system()
    system.start_control()
    system.start_steps("steps-1")
    system.start_steps("steps-2")
    stop = Event()
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(submit_until, system, stop)
        try:
            for name, start in restarts(system).items():
                system.processes.stop(name)
                start(f"new-{name}")
        finally:
            stop.set()
    runs = load.result()
    assert len(runs) > 5
    for run_id in runs:
        eventually(lambda run_id=run_id: system.installed.ledger.run(run_id), what="a run that was sent")  # type: ignore[misc]
        view = system.wait(run_id, timeout_s=120)
        assert (view.status, view.dead_letters) == ("succeeded", ())
        assert [one.attempt for one in view.steps] == [1] * len(STEPS)
        assert sorted(line["value"] for line in system.effects(run_id=run_id, what="noted")) == ["b", "c", "d", "e"]


def restarts(system: System) -> dict[str, Callable[[str], object]]:
    """Each process, and how another one takes its place."""
    processes = system.processes

    def worker(queues: str) -> Callable[[str], object]:
        return lambda name: processes.worker(name, queues=queues, concurrency=1)

    return {
        "steps-1": system.start_steps,
        "steps-2": system.start_steps,
        "planner": worker("plan"),
        "control": worker("control"),
        "supervise": worker("supervise"),
        "beat": processes.beat,
    }
