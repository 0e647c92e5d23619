"""Real servers for tests: each started by the test run itself, never one that is there already."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from redis import Redis
from redis.client import Monitor

from orchestrator.local import EmbeddedServer, guardian
from orchestrator.local.binary import candidates
from orchestrator.store import keys

KINDS = ("valkey", "redis")
INSTALL = {"valkey": "pip install 'mandor[local]'", "redis": "apt install redis-server"}


@dataclass(frozen=True)
class Server:
    """A running server; `client` answers in bytes."""

    url: str
    pid: int
    client: Redis


def server_binary(kind: str) -> Path:
    """The binary of this kind, or a skip that says what to install."""
    for path in candidates():
        if path.name.startswith(kind):
            return path
    pytest.skip(f"no {kind}-server here: {INSTALL[kind]}")


@contextmanager
def running_server(home: Path, kind: str) -> Iterator[Server]:
    """A server without a disk, which ends with this process even if that is killed."""
    with EmbeddedServer(home, binary=server_binary(kind)) as embedded, Redis.from_url(embedded.url) as client:
        pid = embedded.pid
        assert pid is not None
        client.config_set("appendonly", "no")
        with ended_with_us(pid):
            yield Server(embedded.url, pid, client)


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """It takes connections, and says nothing."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextmanager
def ended_with_us(group: int) -> Iterator[None]:
    """Guards a process group that would outlive a killed test run."""
    program = [sys.executable, "-IS", guardian.__file__, "0"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, text=True, start_new_session=True) as guard:
        assert guard.stdin is not None
        print(f"+{group}", file=guard.stdin, flush=True)
        try:
            yield
        finally:
            print(f"-{group}", file=guard.stdin, flush=True)


def keys_of(client: Redis, namespace: str) -> list[str]:
    """All keys of the store in one namespace."""
    return sorted(name.decode() for name in client.scan_iter(match=f"{{{namespace}:*}}:*", count=1000))


def immortal_keys(client: Redis, namespace: str) -> list[str]:
    """Keys that would live for ever though the store does not declare them permanent."""
    return [name for name in keys_of(client, namespace) if not is_permanent(name) and client.ttl(name) == -1]


def is_permanent(name: str) -> bool:
    """True for keys that the store declares to be kept."""
    part = name.partition("}:")[2]
    return any(fnmatchcase(part, pattern) for pattern in keys.PERMANENT)


@contextmanager
def sent_commands(server: Server) -> Iterator[list[str]]:
    """The commands that clients sent meanwhile, as the server saw them; what scripts call inside is left out."""
    seen: list[str] = []
    with server.client.monitor() as monitor:  # type: ignore[no-untyped-call]
        list(_until(monitor, server, "begin"))
        yield seen
        entries = _until(monitor, server, "end")
        seen += [entry["command"].split()[0].upper() for entry in entries if entry["client_type"] != "lua"]


def _until(monitor: Monitor, server: Server, word: str) -> Iterator[dict[str, str]]:
    """What the server saw up to a mark that is set now."""
    server.client.echo(word)
    for entry in monitor.listen():  # type: ignore[no-untyped-call]
        if entry["command"] == f"ECHO {word}":
            return
        yield entry
