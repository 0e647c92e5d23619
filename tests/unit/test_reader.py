"""What a message that cannot be acknowledged does to the connection it came over, and to a later one."""

import logging
from typing import Any

import pytest
from celery.worker.consumer import Consumer
from kombu.message import Message

from orchestrator.tasks import Reader


class Lost:
    """A channel whose connection is gone."""

    no_ack_consumers = frozenset[str]()

    def basic_ack(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("gone")

    basic_reject = basic_ack


class Hub:
    def call_soon(self, call: Any) -> None:
        call()


@pytest.fixture
def reader() -> Reader:
    """Of a connection with one channel, without the rest of a worker."""
    made: Reader = Reader.__new__(Reader)
    made.hub, made.task_consumer = Hub(), type("Consumer", (), {"channel": Lost()})()
    return made


def answers(channel: Lost) -> list[tuple[Any, ...]]:
    message = Message(channel=channel, delivery_tag="1")  # type: ignore[no-untyped-call]
    given = (logging.getLogger("test"), (ConnectionError,))
    return [(message.ack_log_error, *given), (message.reject_log_error, *given, True)]


def test_celery_still_acknowledges_so() -> None:
    assert callable(Consumer.call_soon_ack)


@pytest.mark.parametrize("answer", [0, 1], ids=["acknowledged", "rejected"])
def test_what_is_held_ends_the_connection(reader: Reader, answer: int) -> None:
    with pytest.raises(ConnectionError):
        reader.call_soon_ack(*answers(reader.task_consumer.channel)[answer])


@pytest.mark.parametrize("answer", [0, 1], ids=["acknowledged", "rejected"])
def test_what_came_over_an_earlier_connection_leaves_this_one_alone(reader: Reader, answer: int) -> None:
    """It went back with that one. With two busy children each would end the other's connection without end."""
    reader.call_soon_ack(*answers(Lost())[answer])


def test_nor_is_anything_ended_between_two_connections(reader: Reader) -> None:
    reader.task_consumer = None
    reader.call_soon_ack(*answers(Lost())[0])
