"""What dispatch puts on the wire, seen by a worker and a server that are real."""

import base64
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery

from orchestrator import dispatch, names
from orchestrator.store.replies import Dispatch
from schemas.dead_letter import Bell, DeadLetterKind
from schemas.ids import RunRef, group_id, run_id_for
from tests.support.installation import celery_app
from tests.support.processes import Processes
from tests.support.servers import Server
from tests.support.waiting import eventually

PARTS = ("-m", "celery", "-A", "tests.support.parts", "worker", "-n", "parts@%h", "-Q", "steps,control", "-c", "2")


@pytest.fixture
def ref() -> RunRef:
    return RunRef(run_id_for("celery", None, uuid4().hex))


@pytest.fixture
def app(redis_server: Server) -> Iterator[Celery]:
    """Our app on the shared server, with queues of this test alone."""
    with celery_app(redis_server.url, queue_prefix=f"t{uuid4().hex[:8]}.") as made:
        yield made


def steps(ref: RunRef, queue: str, *ids: str, generation: int = 1) -> tuple[Dispatch, ...]:
    return tuple(Dispatch("step", ref, generation, name, index, queue, 5000) for index, name in enumerate(ids))


def queue_of(app: Celery, name: str) -> str:
    return next(str(queue.name) for queue in app.conf.task_queues if queue.alias == name)


def waiting(server: Server, queue: str) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in reversed(server.client.lrange(queue, 0, -1))]


def test_a_message_carries_ids_and_little_else(app: Celery, ref: RunRef, redis_server: Server) -> None:
    queue = queue_of(app, "steps")
    assert dispatch.publish(app, steps(ref, queue, "a", "b")) == 2
    first, second = waiting(redis_server, queue)
    assert first["headers"]["id"] == f"{ref.run_id}.step.a"
    assert (first["headers"]["group"], first["headers"]["group_index"]) == (f"{ref.run_id}.g1", 0)
    assert second["headers"]["group_index"] == 1
    assert first["headers"]["timelimit"] == [17.0, None]
    assert first["headers"]["ignore_result"] is True
    args, kwargs, embed = json.loads(base64.b64decode(first["body"]))
    assert (args, kwargs) == ([], {"run_id": ref.run_id, "session": "-", "generation": 1, "step_id": "a"})
    assert embed["chord"]["task"] == names.SETTLE
    assert embed["chord"]["options"]["task_id"] == f"{ref.run_id}.settle"
    assert len(json.dumps(first)) < 8192


@pytest.mark.parametrize(
    ("kind", "task", "name"),
    [("undo", names.UNDO, "undo"), ("close", names.CLOSE, "close"), ("late", names.UNDO_LATE, "undo")],
)
def test_what_is_about_a_step_is_no_part_of_the_chord(
    app: Celery, ref: RunRef, redis_server: Server, kind: Any, task: str, name: str
) -> None:
    queue = queue_of(app, "steps")
    fence = 7 if kind == "late" else 0
    assert dispatch.publish(app, (Dispatch(kind, ref, 1, "a", 0, queue, 5000, fence),)) == 1
    (sent,) = waiting(redis_server, queue)
    headers = sent["headers"]
    assert (headers["task"], headers["id"]) == (task, f"{ref.run_id}.{name}.a")
    assert (headers["group"], headers["timelimit"], headers["ignore_result"]) == (None, [17.0, None], True)
    _, kwargs, embed = json.loads(base64.b64decode(sent["body"]))
    assert kwargs.get("fence", 0) == fence
    assert embed["chord"] is None


def test_a_wave_is_one_chord_of_the_run(app: Celery, ref: RunRef) -> None:
    chord = dispatch.run_chord(app, ref, 1, steps(ref, "q", "a", "b", "c"))
    assert chord.task == "celery.chord"
    assert [member.kwargs["step_id"] for member in chord.tasks] == ["a", "b", "c"]
    assert chord.body.task == names.SETTLE


def test_no_message_has_an_eta(app: Celery, ref: RunRef, redis_server: Server) -> None:
    queue = queue_of(app, "plan")
    about_steps: tuple[Any, ...] = ("step", "undo", "close", "late")
    steps_of_all = tuple(Dispatch(kind, ref, 1, "a", 0, queue, 1000) for kind in about_steps)
    dispatch.publish(app, (Dispatch("plan", ref, 1, None, 0, queue, 1000), *steps_of_all, Dispatch("settle", ref, 1)))
    sent = [message["headers"] for message in waiting(redis_server, queue)]
    sent += [message["headers"] for message in waiting(redis_server, queue_of(app, "control"))]
    every_kind = {names.PLAN, names.STEP, names.UNDO, names.CLOSE, names.UNDO_LATE, names.SETTLE}
    assert {headers["task"] for headers in sent} == every_kind
    assert {headers["id"] for headers in sent} >= {f"{ref.run_id}.plan", f"{ref.run_id}.settle"}
    assert [headers["task"] for headers in sent if headers["eta"] or headers["expires"]] == []


def test_a_queue_is_measured_without_making_it(app: Celery, ref: RunRef, redis_server: Server) -> None:
    queue = queue_of(app, "steps")
    assert dispatch.queue_depth(app, "t.nobody") == 0
    dispatch.publish(app, steps(ref, queue, "a", "b", "c"))
    assert dispatch.queue_depth(app, queue) == 3
    assert redis_server.client.exists("t.nobody") == 0


def test_a_broker_that_is_away_costs_a_fact_not_an_exception(ref: RunRef) -> None:
    with celery_app("redis://127.0.0.1:1/0", store_timeout_s=0.2) as app:
        assert dispatch.publish(app, steps(ref, "q", "a")) == 0
        assert not dispatch.ring(app, Bell(id="x", kind=DeadLetterKind.PLAN, run=ref.run_id, step=None, reason="no"))
        dispatch.open_chord(app, ref, 1, 3)
        dispatch.close_chord(app, ref, 1)


def test_bells_are_kept_short_in_number(app: Celery, redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "DLQ_LENGTH", 3)
    for number in range(5):
        assert dispatch.ring(app, Bell(id=f"l{number}", kind=DeadLetterKind.PLAN, run=None, step=None, reason="no"))
    bells = [json.loads(base64.b64decode(raw["body"])) for raw in waiting(redis_server, dispatch.dead_letter_queue())]
    assert [bell["id"] for bell in bells] == ["l2", "l3", "l4"]


class TestWithAWorker:
    @pytest.fixture
    def parts(self, processes: Processes) -> Iterator[Celery]:
        processes.python("parts", *PARTS, "--loglevel", "INFO", ready=r"\bready\.")
        with celery_app(processes.env["MANDOR_REDIS_URL"]) as app:
            yield app

    def settled(self, app: Celery, ref: RunRef) -> list[bytes]:
        found: list[bytes] = app.backend.client.lrange(f"settled:{ref.run_id}", 0, -1)
        return found

    def ran(self, app: Celery, ref: RunRef) -> int:
        return int(app.backend.client.llen(f"parts:{ref.run_id}:1"))

    def test_doubled_parts_count_once_and_the_body_runs_once(
        self, parts: Celery, ref: RunRef, processes: Processes
    ) -> None:
        wave = steps(ref, "mandor.steps", *(f"s{i}" for i in range(20)))
        dispatch.open_chord(parts, ref, 1, 20)
        for member in wave[:-1]:
            dispatch.publish(parts, (member, member) if member.index % 3 == 0 else (member,))
        eventually(lambda: self.ran(parts, ref) == 26)
        assert self.settled(parts, ref) == []
        dispatch.publish(parts, (wave[-1], wave[-1]))
        eventually(lambda: self.settled(parts, ref) != [])
        eventually(lambda: self.ran(parts, ref) == 28)
        dispatch.close_chord(parts, ref, 1)
        assert self.settled(parts, ref) == [b"1"]
        self.quiet(processes)

    def test_what_is_ignored_or_waits_reports_no_part(self, parts: Celery, ref: RunRef, processes: Processes) -> None:
        wave = steps(ref, "mandor.steps", "a", "ignore", "retry", "b")
        dispatch.open_chord(parts, ref, 1, 2)
        dispatch.publish(parts, wave[:3])
        eventually(lambda: self.ran(parts, ref) == 3)
        assert self.settled(parts, ref) == []
        dispatch.publish(parts, wave[3:])
        eventually(lambda: self.settled(parts, ref) == [b"1"])
        self.quiet(processes)

    def test_chord_keys_deleted_in_the_middle_end_in_silence(
        self, parts: Celery, ref: RunRef, processes: Processes
    ) -> None:
        wave = steps(ref, "mandor.steps", "a", "b", "c")
        dispatch.open_chord(parts, ref, 1, 3)
        dispatch.publish(parts, wave[:2])
        eventually(lambda: self.ran(parts, ref) == 2)
        dispatch.close_chord(parts, ref, 1)
        dispatch.publish(parts, wave[2:])
        eventually(lambda: self.ran(parts, ref) == 3)
        dispatch.publish(parts, (Dispatch("settle", ref, 1),))
        eventually(lambda: self.settled(parts, ref) == [b"1"])
        self.quiet(processes)
        keys = parts.backend.client.keys(f"*{group_id(ref.run_id, 1)}*")
        assert all(parts.backend.client.ttl(key) > 0 for key in keys)

    def quiet(self, processes: Processes) -> None:
        """No error and no warning of Celery's result backend."""
        processes.stop("parts")
        loud = [
            line for line in processes.lines("parts") if "ERROR" in line or "Traceback" in line or "WARNING" in line
        ]
        assert loud == []
