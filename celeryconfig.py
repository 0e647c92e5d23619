"""Celery as Mandor uses it: in Celery's own names, what differs from Celery's defaults, and why.

What an operator may change is a MANDOR_* setting and is read here. What the promises of the project depend on is
written out; orchestrator/startup.py refuses to start a process in which another source has changed it.
"""

from typing import Any

from kombu.entity import Queue

from orchestrator import names
from orchestrator.settings import settings

_set = settings()
_Queue: Any = Queue  # kombu has no types
_on_rabbitmq = _set.broker.startswith("amqp")


def _as_kombu_url(url: str) -> str:
    """redis-py says unix:///path?db=0, kombu and Celery say redis+socket:///path?virtual_host=0."""
    if not url.startswith("unix://"):
        return url
    return "redis+socket://" + url.removeprefix("unix://").replace("db=", "virtual_host=")


def _queue(name: str) -> Any:
    """A queue that `-Q` also knows by its name without the prefix. On RabbitMQ it survives the loss of a node."""
    arguments = {
        "x-queue-type": "quorum",
        "x-consumer-timeout": int(_set.visibility_timeout_s * 1000),
        # RabbitMQ 4 drops what came back 20 times; ours comes back each second while the ledger or the store is away
        "x-delivery-limit": 1_000_000,
    }
    full = names.queue(_set.prefix, name)
    queue_arguments = arguments if _on_rabbitmq else None
    return _Queue(full, routing_key=full, alias=name, queue_arguments=queue_arguments)


def _route(name: str) -> dict[str, str]:
    return {"queue": names.queue(_set.prefix, name)}


# ---- where

broker_url = _as_kombu_url(_set.broker)
result_backend = _as_kombu_url(_set.results)
include = ["orchestrator.tasks", "orchestrator.pulse", "workers.tasks"]

# ---- messages

# One of ours carries ids, a submission carries JSON. Whatever arrives as pickle or YAML was not sent by a friend.
accept_content = ["json"]
# The worker that dies with a message in hand gives it back; the guard makes the second delivery harmless.
task_acks_late = True
# Also when only the child dies. Without our own count of attempts this would loop for ever.
task_reject_on_worker_lost = True
# A broker that stays away is left to the `due` index: a worker must not hang in a publish.
task_publish_retry_policy = {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2, "interval_max": 0.5}

# ---- queues

# Supervisors have a queue of their own: behind a burst of steps their ticks would wait, and nobody would watch.
# `mandor.dlq` is not here: a worker started without -Q must not consume it.
task_queues = [
    *(_queue(name) for name in ("plan", "steps", "control", "supervise", "deliver")),
    _Queue("celery", routing_key="celery"),
]
task_routes = {
    names.SUBMIT: _route("control"),
    names.SETTLE: _route("control"),
    names.PLAN: _route("plan"),
    names.STEP: _route("steps"),
    names.UNDO: _route("steps"),
    names.UNDO_LATE: _route("steps"),
    names.CLOSE: _route("steps"),
    names.DELIVER: _route("deliver"),
    "orchestrator.supervise.*": _route("supervise"),
}
# A queue that an action names for itself is made on first use, of the same kind as ours.
task_create_missing_queue_type = "quorum" if _on_rabbitmq else "classic"

# ---- the connection

broker_connection_retry_on_startup = True
# Celery's 100 tries end a beat or worker after a longer outage. Ours wait for the broker as long as it takes.
broker_connection_max_retries = None
# After a failover the old server answers "read only" for a while; by default that ends the worker for good.
broker_channel_error_retry = True


def _broker_options() -> dict[str, Any]:
    """Redis: how long a message may stay unacknowledged; no call without a time limit. RabbitMQ: confirms."""
    if _on_rabbitmq:
        return {"confirm_publish": True}
    return {
        # the same in every process that shares the server: the shortest one gives back everybody's messages
        "visibility_timeout": _set.visibility_timeout_s,
        # what a lost worker held comes back within 30 s of its time, not 100 s
        "unacked_restore_interval": 10,
        "unacked_restore_throttle": 3,
        # 20,000 messages given back in one go would keep the worker that does it from everything else
        "unacked_restore_limit": 500,
        "socket_timeout": max(_set.store_timeout_s, 2.0),
        "socket_connect_timeout": _set.store_timeout_s,
        "socket_keepalive": True,
    }


broker_transport_options = _broker_options()

# ---- results

# Only answers to submissions and the chord's bookkeeping live here; what a step produced is in the store.
result_expires = 3600.0
# Refreshed by every part; a run whose parts are further apart is settled by the store alone.
result_chord_expires = _set.deadline_s + 3600.0
redis_socket_timeout = _set.store_timeout_s
redis_socket_connect_timeout = _set.store_timeout_s
redis_socket_keepalive = True
# A worker that cannot store an answer gives up after these tries instead of waiting without end.
result_backend_transport_options = {"retry_policy": {"max_retries": 3, "interval_start": 0, "interval_max": 0.5}}

# ---- workers

# With late acknowledgement: a worker holds what it runs and nothing else, so a long step keeps no short one waiting.
worker_prefetch_multiplier = 1
# Celery drops what it cannot read after logging it; ours keeps it as a dead letter.
worker_consumer = "orchestrator.tasks:Reader"
# For Flower. A task shows what its message carries: ids; ticks are left out (orchestrator/tasks.py), and what happens
# within 50 ms is told in one message.
worker_send_task_events = True
# Messages with an ETA are held in memory; ours carry none, somebody else's may not fill it.
worker_eta_task_limit = 1000
# SIGTERM (REMAP_SIGTERM=SIGQUIT) stops softly: running steps have this long to finish or hand back, then children end.
# Less than the grace itself, so that the worker's own end is orderly.
worker_soft_shutdown_timeout = _set.term_grace_s * 0.8

# ---- beat: one entry per supervisor

# No `expires`: under load or with a clock that is off, every tick would be dropped. A pass that finds another one
# younger than half its interval returns at once, so a pile of ticks costs a round trip each.
_slow = {"prune-ledger": _set.prune_s}
beat_schedule = {
    name: {
        "task": names.supervisor_task(name),
        "schedule": _slow.get(name, _set.sweep_s),
        "options": {"ignore_result": True},
    }
    for name in names.SUPERVISORS
}
# The schedule is this table, and no entry that has to be on time is longer than a few seconds: nothing worth keeping in
# a file.
beat_scheduler = "celery.beat:Scheduler"
beat_max_loop_interval = min(_set.sweep_s, 5.0)
