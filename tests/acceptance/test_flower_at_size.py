"""Flower while 100,000 steps go by: it remembers so many and no more, and its memory does not grow."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from celery import Celery

from orchestrator.flower import MAX_TASKS, password
from orchestrator.local.address import free_port
from schemas.ids import step_task_id
from tests.support.environment import clean_environment
from tests.support.flower import FLOWER, READY, Flower
from tests.support.processes import Processes, rss_kb
from tests.support.servers import Server
from tests.support.waiting import eventually

STEPS, BATCH = 100_000, 2_000
SETTLED = 2 * MAX_TASKS  # from here on each task takes the place of another
MOST_GROWTH = 1.1
MOST_KB = 300 * 1024
RUN_STEPS = 50


class Workers:
    """Tells on the broker what workers tell of their tasks, as many at a time as they do."""

    def __init__(self, app: Celery) -> None:
        self.told: list[str] = []
        self._events = app.events.Dispatcher(app.connection_for_write(), hostname="steps@host", buffer_group={"task"})

    def run_step(self, run_id: str, step_id: str) -> None:
        """A step is received, started, and succeeds."""
        task_id = step_task_id(run_id, step_id)
        kwargs = {"run_id": run_id, "session": None, "generation": 0, "step_id": step_id}
        self._events.send(
            "task-received", uuid=task_id, name="workers.step", args="()", kwargs=repr(kwargs), root_id=task_id,
            parent_id=None, retries=0, eta=None, expires=None,
        )  # fmt: skip
        self._events.send("task-started", uuid=task_id)
        self._events.send("task-succeeded", uuid=task_id, result=repr({"step": step_id, "fence": 7}), runtime=0.01)
        self.told.append(task_id)

    def run_steps(self, count: int) -> None:
        """So many steps, of runs of fifty."""
        for _ in range(count // RUN_STEPS):
            run_id = new_run_id()
            for number in range(RUN_STEPS):
                self.run_step(run_id, f"step-{number}")
        self._events.flush()


@pytest.mark.soak
@pytest.mark.full
@pytest.mark.timeout(300)
def test_its_memory_is_bounded_however_many_steps_there_are(new_server: Callable[[], Server], tmp_path: Path) -> None:
    server, home, port = new_server(), tmp_path / "home", free_port()
    env = clean_environment(home=home, redis_url=server.url, flower_port=port)
    with Processes(env, tmp_path) as processes:
        child = processes.python("flower", *FLOWER, ready=READY)
        flower, workers = Flower(port, password(home).text), Workers(Celery(broker=server.url))
        memory: dict[int, int] = {}
        for done in range(BATCH, STEPS + 1, BATCH):
            workers.run_steps(BATCH)
            # only ever the newest is asked for: a task that is asked for is remembered for longer
            eventually(lambda: knows(flower, workers.told[-1]), timeout_s=30, what="the newest task in Flower")
            memory[done] = rss_kb(child.pid)
        assert memory[STEPS] < MOST_GROWTH * memory[SETTLED], memory
        assert memory[STEPS] < MOST_KB, memory
        assert knows(flower, workers.told[-MAX_TASKS])
        assert not knows(flower, workers.told[0])
        assert not knows(flower, workers.told[-MAX_TASKS - 1])


def new_run_id() -> str:
    """Of the form that runs' ids have."""
    text = str(uuid.uuid4())
    return f"{text[:14]}8{text[15:]}"


def knows(flower: Flower, task_id: str) -> bool:
    """Whether Flower remembers the task, with its end."""
    status, body = flower.ask(f"/api/task/info/{task_id}")
    return status == 200 and '"SUCCESS"' in body
