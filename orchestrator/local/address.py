"""Where an embedded server listens, and who answers there."""

import socket
from dataclasses import dataclass
from typing import Final

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from orchestrator.home import SERVER_HOST, server_url

HOST: Final = SERVER_HOST


@dataclass(frozen=True, slots=True)
class Address:
    """A loopback port and the password that the server there expects."""

    port: int
    password: str

    @property
    def url(self) -> str:
        """As Celery, kombu and redis-py read it."""
        return server_url(self.port, self.password)


@dataclass(frozen=True, slots=True)
class Answer:
    """The process that answered, and whether it still reads its file. A pid of None fits no process."""

    pid: int | None
    loading: bool


def ask(address: Address, timeout_s: float = 1.0) -> Answer | None:
    """Who answers at this address; None if nobody does, or not to this password."""
    client = Redis(
        host=HOST,
        port=address.port,
        password=address.password,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        with client:
            info = client.info("server", "persistence")
    except RedisError:
        return None
    return Answer(int(info["process_id"]), loading=bool(info["loading"]))


def is_free(port: int) -> bool:
    """True if nobody listens on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
