"""Is anybody there? Asked before a message is sent: client libraries take long to find out, and tell it badly."""

import socket
from typing import Final
from urllib.parse import SplitResult, urlsplit

from orchestrator.errors import BrokerUnavailable, ConfigError, StoreUnavailable
from orchestrator.settings import Settings, is_named

WAIT_S: Final = 3.0
SPEAK_REDIS: Final = {"redis", "unix", "redis+socket"}  # in the clear
PORTS: Final = {"redis": 6379, "rediss": 6379, "amqp": 5672, "pyamqp": 5672, "amqps": 5671}


def check_reach(settings: Settings) -> None:
    """Return if broker and result store are there; BrokerUnavailable or StoreUnavailable within seconds."""
    fault = knock(settings.broker, "MANDOR_BROKER_URL" if settings.broker_url else "MANDOR_REDIS_URL")
    if fault:
        raise BrokerUnavailable(f"the broker at {fault}", hint=_hint(settings))
    fault = knock(settings.results, "MANDOR_RESULT_URL" if settings.result_url else "MANDOR_REDIS_URL")
    if fault:
        raise StoreUnavailable(f"the result store at {fault}", hint=_hint(settings))


def knock(url: str, setting: str) -> str | None:
    """None if somebody is at the URL, else where and why not. ConfigError: the URL cannot be read."""
    where = _parts(url, setting)
    try:
        with _connect(where) as line:
            if where.scheme in SPEAK_REDIS:
                _speak(line)
    except OSError as wrong:
        reason = "no answer" if isinstance(wrong, TimeoutError) else wrong.strerror or str(wrong)
        return f"{where.path if _is_local(where) else _address(where)} cannot be reached: {reason}"
    return None


def check_url(url: str, setting: str) -> None:
    """ConfigError: the URL names nobody who could be reached."""
    _parts(url, setting)


def _parts(url: str, setting: str) -> SplitResult:
    try:
        where = urlsplit(url)
        if _is_local(where) or (where.hostname and (where.port or where.scheme in PORTS)):
            return where
    except ValueError:  # told below; its words may be half a password
        pass
    raise ConfigError("names no host", path=setting, hint=f"set {setting} to something like redis://host:6379/0")


def _is_local(where: SplitResult) -> bool:
    return where.scheme in {"unix", "redis+socket"}


def _address(where: SplitResult) -> str:
    return f"{where.hostname}:{where.port or PORTS[where.scheme]}"


def _connect(where: SplitResult) -> socket.socket:
    if not _is_local(where):
        return socket.create_connection((where.hostname, where.port or PORTS[where.scheme]), WAIT_S)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(WAIT_S)
    try:
        connection.connect(where.path)
    except OSError:
        connection.close()
        raise
    return connection


def _speak(line: socket.socket) -> None:
    """A kernel takes connections for a server that is frozen. Any answer will do, also that a password is missing."""
    line.sendall(b"PING\r\n")
    if not line.recv(1):
        raise ConnectionError("it closes the connection")


def _hint(settings: Settings) -> str:
    if settings.embedded and not is_named("redis_url"):
        return "it is this home's own server; start it with `mandor up`"
    named = "redis_url" in settings.model_fields_set or "broker_url" in settings.model_fields_set
    return (
        "is it running? `mandor config` shows where it is looked for" if named else "start it, or set MANDOR_REDIS_URL"
    )
