"""celeryconfig.py says what Celery does, and the Procfile starts what it describes."""

import re
from typing import Any

import pytest
from celery.app import trace
from celery.app.defaults import DEFAULTS
from celery.beat import Scheduler
from celery.exceptions import Reject

from orchestrator import names
from orchestrator.settings import settings
from orchestrator.terse import of_beat, of_rejections
from tests.support.environment import ROOT
from tests.support.installation import celery_app

LOCAL = "redis://127.0.0.1:6379/0"


def procfile() -> dict[str, str]:
    lines = (ROOT / "Procfile").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line)


def test_nothing_listed_is_celerys_default_already() -> None:
    with celery_app(LOCAL) as app:
        listed = {name: value for name, value in vars(configuration()).items() if name in DEFAULTS}
        same = [name for name, value in listed.items() if DEFAULTS[name] == value]
        assert same == ["task_create_missing_queue_type"]  # differs on RabbitMQ only
        assert set(listed) >= {"task_acks_late", "task_reject_on_worker_lost", "beat_schedule", "task_queues"}
        assert app.conf.task_acks_late is True


def configuration() -> Any:
    from tests.support import installation

    return installation._configuration()


def test_every_supervisor_has_an_entry_that_never_expires() -> None:
    with celery_app(LOCAL, sweep_s=3, prune_s=90) as app:
        schedule = app.conf.beat_schedule
        assert set(schedule) == set(names.SUPERVISORS)
        for name, entry in schedule.items():
            assert entry["task"] == names.supervisor_task(name)
            assert entry["schedule"] == (90.0 if name == "prune-ledger" else 3.0)
            assert "expires" not in entry["options"]


@pytest.mark.parametrize(
    ("given", "prefix"),
    [
        ({}, "mandor."),
        ({"queue_prefix": "shop-"}, "shop-"),
        ({"namespace": "shop"}, "shop."),
        ({"namespace": "shop", "queue_prefix": "mandor."}, "mandor."),
    ],
)
def test_tasks_go_to_the_queue_of_their_kind(given: dict[str, str], prefix: str) -> None:
    with celery_app(LOCAL, **given) as app:
        for task, queue in [
            (names.SUBMIT, "control"),
            (names.SETTLE, "control"),
            (names.PLAN, "plan"),
            (names.STEP, "steps"),
            (names.UNDO, "steps"),
            (names.UNDO_LATE, "steps"),
            (names.CLOSE, "steps"),
            (names.DELIVER, "deliver"),
            (names.supervisor_task("settle-runs"), "supervise"),
        ]:
            assert app.amqp.router.route({}, task)["queue"].name == prefix + queue


def test_queues_are_selected_by_their_short_names_whatever_the_prefix() -> None:
    with celery_app(LOCAL, queue_prefix="shop-") as app:
        app.amqp.queues.select(["steps", "plan"])
        assert set(app.amqp.queues.consume_from) == {"shop-steps", "shop-plan"}


def test_a_worker_without_q_leaves_the_bells_alone() -> None:
    with celery_app(LOCAL) as app:
        assert "mandor.dlq" not in app.amqp.queues.consume_from


def test_rabbitmq_gets_quorum_queues_whose_consumers_may_take_their_time() -> None:
    with celery_app(LOCAL, broker_url="amqp://guest@127.0.0.1//", visibility_timeout_s=7200) as app:
        queue = app.amqp.queues["mandor.steps"]
        assert queue.queue_arguments == {
            "x-queue-type": "quorum",
            "x-consumer-timeout": 7_200_000,
            "x-delivery-limit": 1_000_000,
        }
        assert app.conf.broker_transport_options == {"confirm_publish": True}
        assert app.conf.result_backend == LOCAL


def test_a_socket_is_named_as_kombu_names_it() -> None:
    with celery_app("unix:///tmp/s/redis.sock?db=2") as app:
        assert app.conf.broker_url == "redis+socket:///tmp/s/redis.sock?virtual_host=2"


def test_no_call_to_a_server_is_without_a_time_limit() -> None:
    with celery_app(LOCAL) as app:
        options = app.conf.broker_transport_options
        limits = [options["socket_timeout"], options["socket_connect_timeout"]]
        limits += [app.conf.redis_socket_timeout, app.conf.redis_socket_connect_timeout]
        assert all(0 < limit <= 5 for limit in limits)
        assert app.conf.result_expires
        assert app.conf.result_chord_expires > settings().deadline_s


def test_every_worker_of_the_procfile_stops_softly_and_alone() -> None:
    workers = {name: line for name, line in procfile().items() if " worker " in line}
    assert set(workers) == {"planner", "steps", "control", "supervise", "deliver"}
    for line in workers.values():
        # soft stop; and no revocation, which would stick to a step's id, is remembered for longer than an outage
        assert line.startswith(
            "env REMAP_SIGTERM=SIGQUIT CELERY_WORKER_REVOKE_EXPIRES=10 celery -q -A orchestrator.app worker "
        )
        assert "--without-gossip --without-mingle" in line
    queues = {name: re.findall(r"-Q (\S+)", line) for name, line in workers.items()}
    own = {name: [name] for name in ("steps", "control", "supervise", "deliver")}
    assert queues == {"planner": ["plan"], **own}
    assert procfile()["beat"] == "celery -q -A orchestrator.app beat"
    assert procfile()["flower"] == "mandor flower"


def test_a_tick_that_cannot_be_sent_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A stack and two tracebacks with each of many ticks would bury what else is said of an outage."""
    with celery_app("redis://127.0.0.1:1/0") as app:
        scheduler = Scheduler(app, lazy=True)
        scheduler.setup_schedule()
        caplog.handler.addFilter(of_beat)
        scheduler.apply_entry(scheduler.schedule["settle-runs"])
    (told,) = caplog.records
    assert told.getMessage().startswith("Couldn't apply scheduled task settle-runs: ")
    assert "\n" not in told.getMessage()
    assert told.exc_info is None


def test_a_message_that_is_given_back_has_no_stack(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(of_rejections)
    for error in (Reject("store_moved", requeue=True), ValueError("ours")):
        try:
            raise error
        except (Reject, ValueError):
            trace.logger.warning("told", exc_info=True)
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]


def test_what_is_wrong_with_a_tick_itself_is_told_in_full(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("no word of the broker")

    with celery_app(LOCAL) as app:
        scheduler = Scheduler(app, lazy=True)
        scheduler.setup_schedule()
        scheduler.apply_async = broken
        caplog.handler.addFilter(of_beat)
        scheduler.apply_entry(scheduler.schedule["settle-runs"])
    (told,) = caplog.records
    assert told.exc_info
