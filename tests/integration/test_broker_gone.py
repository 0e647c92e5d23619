"""A worker's connection when the broker goes: its channels are closed, and what they have in hand is given back."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.entity import Queue

from orchestrator import envelopes
from tests.support.servers import Server

WORK, ORDERS = "gone.work", "gone.orders"
IN_HAND = 3


class Waiting:
    """A connection with messages in hand, both channels of which have asked for another, as a worker's two have."""

    def __init__(self, url: str) -> None:
        connect: Callable[..., Any] = Connection
        self.connection = connect(url, transport=envelopes.Transport)
        self.channels = [self.connection.default_channel, self.connection.channel()]
        self.taken: list[Any] = []

    def take(self, count: int) -> None:
        with self.connection.Producer() as producer:
            for number in range(count):
                producer.publish({"number": number}, routing_key=WORK, declare=[queue(WORK)])
        for name, channel in zip((WORK, ORDERS), self.channels, strict=True):
            consumer = self.connection.Consumer([queue(name)], channel=channel, callbacks=[self._take])
            consumer.qos(prefetch_count=count + 1)
            consumer.consume()
        while len(self.taken) < count:
            self.connection.drain_events(timeout=5)
        for channel in self.channels:
            if not channel._in_poll:
                channel._brpop_start()

    def _take(self, _: Any, message: Any) -> None:
        self.taken.append(message)

    def close_as_celery_does(self) -> None:
        self.connection.collect(socket_timeout=1)
        self.connection.close()


def queue(name: str) -> Any:
    make: Callable[..., Any] = Queue
    return make(name)


@pytest.fixture
def server(new_server: Callable[[], Server]) -> Server:
    return new_server()


@pytest.fixture
def waiting(server: Server) -> Iterator[Waiting]:
    made = Waiting(server.url)
    made.take(IN_HAND)
    yield made
    made.connection.close()


def test_a_broker_that_is_gone_is_no_error_of_its_own(server: Server, waiting: Waiting) -> None:
    """Kombu's own channel raises an AttributeError here, by which a worker ends."""
    os.kill(server.pid, signal.SIGKILL)
    waiting.close_as_celery_does()
    assert all(channel.closed for channel in waiting.channels)


def test_what_is_in_hand_goes_back_over_another_connection(server: Server, waiting: Waiting) -> None:
    server.client.client_kill_filter(skipme=True)
    waiting.close_as_celery_does()
    assert all(channel.closed for channel in waiting.channels)
    assert (server.client.llen(WORK), server.client.hlen("unacked")) == (IN_HAND, 0)
