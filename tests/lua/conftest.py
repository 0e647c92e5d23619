"""A scene of a test's own, and the server below it."""

import pytest
from redis import Redis

from tests.support.servers import Server
from tests.support.stores import Scene, clocked_store, ref_of


@pytest.fixture
def client(redis_server: Server) -> Redis:
    return Redis.from_url(redis_server.url)


@pytest.fixture
def scene(redis_server: Server, namespace: str) -> Scene:
    store, clock = clocked_store(redis_server.url, namespace)
    return Scene(store, clock, ref_of("scene"))
