"""Connections to the state store: one for each thread of each process, made at first use, never shared over a fork.

The client library's own retries are off: it would send a script again without our knowing. Retrying is the business
of orchestrator.store.scripts, where a repeat is known to be safe.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    InvalidResponse,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import TimeoutError as TimedOut
from redis.retry import Retry

from orchestrator.errors import ConfigError

NoScript = NoScriptError
# the server answered that it will not do it: tried again by nobody
Refused = ResponseError
# the server is away, starting, full or demoted: the call may be tried again
LOST = (ConnectionLost, TimedOut, InvalidResponse, BusyLoadingError, ReadOnlyError, OutOfMemoryError, OSError)
# a new connection may find a better server: another one behind the same name, after a failover
BROKEN = (ConnectionLost, TimedOut, InvalidResponse, ReadOnlyError, OSError)


class Link:
    """One connection, and the name its server gave itself at its start (`run_id` of INFO): a restart is another."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        connection.connect()
        self.server = _server_name(self.command("INFO", "server"))

    def command(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()

    def commands(self, many: Sequence[Sequence[Any]]) -> list[Any]:
        """All of them in one round trip. Every answer is read, also behind one that refuses, which is raised then."""
        self._connection.send_packed_command(self._connection.pack_commands(many))
        answers = [self._answer() for _ in many]
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        return answers

    def _answer(self) -> Any:
        try:
            return self._connection.read_response()
        except Refused as refused:
            return refused

    def close(self) -> None:
        self._connection.disconnect()


def _server_name(info: Any) -> str:
    text = info if isinstance(info, str) else bytes(info).decode()
    for line in text.splitlines():
        if line.startswith("run_id:"):
            return line.removeprefix("run_id:").strip()
    raise RedisError("the server does not say its run_id")


def _pool(url: str, timeout_s: float) -> ConnectionPool:
    try:
        return ConnectionPool.from_url(
            url,
            decode_responses=True,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError:  # its words may be half a password
        hint = "for example redis://host:6379/0"
        raise ConfigError("names no server that speaks Redis", path="MANDOR_REDIS_URL", hint=hint) from None


class Links:
    """The connections of this process. After a fork the child makes its own."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._pool = _pool(url, timeout_s)
        kwargs = self._pool.connection_kwargs
        there = f"Redis at {kwargs.get('host') or 'localhost'}:{kwargs.get('port') or 6379}"
        self.address = str(kwargs.get("path") or there)
        self._own = threading.local()

    @contextmanager
    def link(self) -> Iterator[Link]:
        """This thread's connection. A broken one is closed; the next call makes a new one."""
        if getattr(self._own, "pid", None) != os.getpid():
            self._own.pid, self._own.link = os.getpid(), None
        if self._own.link is None:
            self._own.link = Link(self._pool.make_connection())
        try:
            yield self._own.link
        except BROKEN:
            self.close()
            raise

    def close(self) -> None:
        """Close this thread's connection."""
        link, self._own.link = getattr(self._own, "link", None), None
        if link is not None:
            link.close()
