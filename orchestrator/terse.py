"""What Celery logs, in short: no stack where one line says it, and nothing of what a message carries."""

import logging
from typing import Final

from celery.app import trace
from celery.exceptions import Reject
from celery.worker.consumer import consumer

from orchestrator.app import app
from orchestrator.dispatch import broker_errors

TICK_NOT_SENT: Final = "Message Error"
# Celery's words about a message that no task can be made of; the message itself lies in its dead letter
NO_MESSAGE: Final = {
    consumer.UNKNOWN_FORMAT: "a message that is no task",
    consumer.UNKNOWN_TASK_ERROR: "a message for a task that is not known here: %s",
    consumer.INVALID_TASK_ERROR: "a message that is no task: %s",
    consumer.MESSAGE_DECODE_ERROR: "a message that cannot be read: %s",
}


def install() -> None:
    """For this process, whatever else its logs are like."""
    logging.getLogger("celery.beat").addFilter(of_beat)
    consumer.logger.addFilter(of_messages)
    trace.logger.addFilter(of_rejections)


def of_beat(record: logging.LogRecord) -> bool:
    """Beat tells of every tick, several a second; the supervisors tell when they found something. A tick that could not
    be sent, for the broker is away, is a line: the stack and two tracebacks with each would bury all others.
    """
    said = str(record.msg)
    if said.startswith(TICK_NOT_SENT) and (away := _of_broker(record)):
        record.msg, record.args, record.exc_info = str(away), None, None
    return "Sending due task" not in said


def _of_broker(record: logging.LogRecord) -> BaseException | None:
    error = record.exc_info[1] if record.exc_info else None
    return error if error and isinstance(error.__context__, broker_errors(app)) else None


def of_messages(record: logging.LogRecord) -> bool:
    """Celery quotes body and headers of what it refuses, a goal or params among them, below a stack of its own."""
    said = NO_MESSAGE.get(str(record.msg))
    if said is not None:
        record.args = record.args[:1] if isinstance(record.args, tuple) and "%" in said else None
        record.msg, record.exc_info = said, None
    return True


def of_rejections(record: logging.LogRecord) -> bool:
    """A message that is given back, as all are while the store is another one: its word says why, no stack does."""
    if record.exc_info and isinstance(record.exc_info[1], Reject):
        record.exc_info = None
    return True
