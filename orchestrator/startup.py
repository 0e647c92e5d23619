"""What is checked before a process takes work: each refusal names the setting that is wrong and the mend.

    check_packages()            when orchestrator.app is imported: our top-level packages are ours
    check_environment(…)        the settings and variables that Celery would read past us
    check_worker(…)             what a worker was started with
    check_server(…)             the state store's server
    check_keeper(…)             the same of a server for queues or results alone; other_servers names them

All are functions of what they are given, but for the module finder and the environment.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from orchestrator.errors import ConfigError
from orchestrator.settings import Settings

PACKAGES: Final = ("celeryconfig", "schemas", "orchestrator", "workers")
REDIS_SCHEMES: Final = frozenset({"redis", "rediss", "unix", "redis+socket"})
BROKER_SCHEMES: Final = REDIS_SCHEMES | {"amqp", "amqps", "pyamqp"}
# pools with children, of which each may be killed at any time
KILLABLE: Final = frozenset({"prefork", "processes"})
SAFE_POLICY: Final = "noeviction"
VISIBILITY: Final = "visibility_timeout"
AGREED_MS: Final = 60_000  # every pass over lost messages says it again
SOFT_STOP: Final = ("REMAP_SIGTERM", "SIGQUIT")
# Celery reads these before its configuration: name, the setting of ours that they would override
OVERRIDES: Final = (
    ("CELERY_BROKER_URL", "broker"),
    ("CELERY_BROKER_READ_URL", "broker"),
    ("CELERY_BROKER_WRITE_URL", "broker"),
    ("CELERY_RESULT_BACKEND", "results"),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """What a worker was started with: its pool's name, the queues it consumes, and Celery's effective configuration."""

    pool: str
    queues: frozenset[str]
    conf: Mapping[str, Any]
    environ: Mapping[str, str]


class Server(Protocol):
    """What is asked of the state store's server: one of its settings (None where it does not tell), a section of what
    it says about itself, and what processes agreed upon."""

    def config(self, name: str) -> str | None: ...

    def info(self, section: str) -> dict[str, str]: ...

    def agree(self, name: str, value: str, ttl_ms: int) -> str: ...


# ---- packages


def check_packages(found: Mapping[str, str | None] | None = None, home: Path | None = None) -> None:
    """ConfigError if one of our top-level names would import a file that is not beside this package."""
    home = home or Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        origin = _origin(name) if found is None else found[name]
        if not _lies_in(origin, name, home):
            raise ConfigError(
                f"`import {name}` gives {origin or 'nothing'}, not the one that came with Mandor in {home}",
                path=name,
                hint="start from another directory, or rename that file",
            )


def is_celerys_command(program: str) -> bool:
    """Whether `celery …`, or `python -m celery …`, was started: sys.argv[0] says so."""
    path = Path(program)
    return path.name == "celery" or (path.name == "__main__.py" and path.parent.name == "celery")


def _origin(name: str) -> str | None:
    spec = find_spec(name)
    return spec.origin if spec else None


def _lies_in(origin: str | None, name: str, home: Path) -> bool:
    if origin is None:
        return False
    ours = (home / f"{name}.py", home / name / "__init__.py")
    return Path(origin).resolve() in ours


# ---- settings and environment


def check_environment(given: Settings, environ: Mapping[str, str] | None = None) -> None:
    """ConfigError for a variable that Celery would obey against our settings, and for services we cannot build on."""
    environ = os.environ if environ is None else environ
    check_services(given)
    check_overrides(given, environ)


def check_services(given: Settings) -> None:
    """The broker is Redis or RabbitMQ, results lie in Redis: other result stores cannot join a chord by themselves."""
    _scheme("MANDOR_REDIS_URL", given.redis_url, REDIS_SCHEMES, "a redis:// URL")
    _scheme("MANDOR_BROKER_URL", given.broker, BROKER_SCHEMES, "a redis:// or amqp:// URL")
    _scheme("MANDOR_RESULT_URL", given.results, REDIS_SCHEMES, "a redis:// URL")


def _scheme(name: str, url: str, allowed: frozenset[str], wanted: str) -> None:
    scheme = _scheme_of(url, name, wanted)
    if scheme not in allowed:
        found = f"{scheme}://" if scheme else "a URL without a scheme"
        raise ConfigError(f"{found} is no service we can build on", path=name, hint=f"set {name} to {wanted}")


def _scheme_of(url: str, name: str, wanted: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises what a connection would: a port that is none
    except ValueError:  # its words may be half a password
        raise ConfigError("names no host and port", path=name, hint=f"set {name} to {wanted}") from None
    return parts.scheme


def check_overrides(given: Settings, environ: Mapping[str, str]) -> None:
    """A CELERY_*_URL left over from another project would send our messages to its server."""
    for name, field in OVERRIDES:
        value = environ.get(name)
        if value and value != getattr(given, field):
            raise ConfigError(
                f"it beats MANDOR_{'BROKER' if field == 'broker' else 'RESULT'}_URL and names another server",
                path=name,
                hint=f"unset {name}, or set both to the same URL",
            )


# ---- a worker


def check_worker(given: Settings, launch: Launch) -> None:
    """ConfigError for a worker whose options or environment would break a promise."""
    check_pool(launch)
    check_soft_stop(launch.environ)
    check_configuration(given, launch.conf)


def check_pool(launch: Launch) -> None:
    """Work is done in child processes: one that hangs can be killed. Elsewhere Celery knows no soft stop, and SIGTERM
    would end what is under way with an error of its own and take it off the queue, submissions too.
    """
    if launch.pool not in KILLABLE:
        raise ConfigError(
            f"the {launch.pool} pool cannot kill what hangs, nor hand its work back at SIGTERM",
            path="worker_pool",
            hint="start it with `--pool prefork`",
        )


def check_soft_stop(environ: Mapping[str, str]) -> None:
    """Without the variable SIGTERM waits for running steps without end, until something kills the whole worker."""
    name, value = SOFT_STOP
    if environ.get(name) != value:
        raise ConfigError(
            "SIGTERM would not stop this worker within its grace",
            path=name,
            hint=f"start it with {name}={value} in its environment, as the Procfile does",
        )


def check_configuration(given: Settings, conf: Mapping[str, Any]) -> None:
    """What celeryconfig.py says must be what Celery does, whoever else has spoken."""
    for name, wanted in _REQUIRED:
        if _plain(conf.get(name)) != wanted:
            raise ConfigError(f"it is {conf.get(name)!r} here", path=name, hint=f"leave it at {wanted!r}")
    for name, why in _POSITIVE.items():
        if not _is_positive(conf.get(name)):
            raise ConfigError(f"it is {conf.get(name)!r} here: {why}", path=name, hint="leave it to celeryconfig.py")
    _check_soft_shutdown(given, conf)
    _check_visibility(given, conf)
    if not given.broker.startswith("amqp"):
        _check_sockets(conf)


_REQUIRED: Final = (
    ("task_acks_late", True),
    ("task_reject_on_worker_lost", True),
    ("worker_deduplicate_successful_tasks", False),
    ("task_always_eager", False),
    ("broker_channel_error_retry", True),
    ("accept_content", ["json"]),
)
_POSITIVE: Final = {
    "worker_prefetch_multiplier": "a worker would take in more than it can start",
    "worker_eta_task_limit": "somebody's messages with an ETA would fill a worker's memory",
    "worker_soft_shutdown_timeout": "SIGTERM would wait for running steps without end",
    "result_expires": "answers would be kept for ever, or not at all",
    "result_chord_expires": "what Celery keeps of a run would stay for ever",
    "redis_socket_timeout": "a call to a server that is gone would never return",
    "redis_socket_connect_timeout": "connecting to a server that is gone would never end",
}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple | set | frozenset) else bool(value)


def _is_positive(value: Any) -> bool:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    return isinstance(number, int | float) and number > 0


def _check_soft_shutdown(given: Settings, conf: Mapping[str, Any]) -> None:
    wait = conf["worker_soft_shutdown_timeout"]
    if wait >= given.term_grace_s:
        raise ConfigError(
            f"it is {wait:g} s, MANDOR_TERM_GRACE_S is {given.term_grace_s:g}: a worker would be killed while it waits",
            path="worker_soft_shutdown_timeout",
            hint="raise MANDOR_TERM_GRACE_S, and what your supervisor of processes allows",
        )


def _check_sockets(conf: Mapping[str, Any]) -> None:
    options = conf.get("broker_transport_options") or {}
    for name in ("socket_timeout", "socket_connect_timeout"):
        if not _is_positive(options.get(name)):
            raise ConfigError(
                f"{name} is {options.get(name)!r} here: a publish to a server that is gone would never return",
                path="broker_transport_options",
                hint="leave it to celeryconfig.py",
            )


def check_time_limit(given: Settings, action: str, timeout_s: float, grace_s: float) -> None:
    """A step that may run longer than the broker waits for its acknowledgement would be given to a second worker."""
    if timeout_s + grace_s >= given.visibility_timeout_s:
        raise ConfigError(
            f"{action} may take {timeout_s:g} s and {grace_s:g} s to stop, the broker gives its message back after "
            f"{given.visibility_timeout_s:g} s",
            path="MANDOR_VISIBILITY_TIMEOUT_S",
            hint=f"raise it above {timeout_s + grace_s:g}, in every process, or lower the action's timeout_s",
        )


def _check_visibility(given: Settings, conf: Mapping[str, Any]) -> None:
    options = conf.get("broker_transport_options") or {}
    found = options.get("visibility_timeout", given.visibility_timeout_s)
    if found != given.visibility_timeout_s:
        raise ConfigError(
            f"visibility_timeout is {found} here, MANDOR_VISIBILITY_TIMEOUT_S is {given.visibility_timeout_s}",
            path="broker_transport_options",
            hint="the smallest one in any process gives back the messages of all; set MANDOR_VISIBILITY_TIMEOUT_S",
        )


# ---- the server


def check_server(server: Server, given: Settings) -> None:
    """What the state store's server must be: it keeps what it is given, is one and no cluster, and is told the same by
    every process. One that will not say (None) is taken at its word.
    """
    check_keeper(server, "MANDOR_REDIS_URL")
    check_agreement(given, agree_on_visibility(server, given))


def check_keeper(server: Server, name: str) -> None:
    """ConfigError for a server that throws away what it is given, or is part of a cluster. name: the setting of it."""
    policy = server.config("maxmemory-policy")
    if policy not in (None, SAFE_POLICY):
        raise ConfigError(
            f"the server's maxmemory-policy is {policy}: it would throw away leases, queues and results",
            path=name,
            hint=f"set maxmemory-policy to {SAFE_POLICY} on that server, or name another",
        )
    if server.info("cluster").get("cluster_enabled") == "1":
        raise ConfigError(
            "the server is part of a cluster, which neither Celery's broker nor its chords can use",
            path=name,
            hint="name a server of its own, with a replica if you like",
        )


def other_servers(given: Settings) -> list[tuple[str, str]]:
    """Servers that speak Redis and keep queues or results alone: setting, and URL as redis-py writes it."""
    named = (("MANDOR_BROKER_URL", given.broker_url), ("MANDOR_RESULT_URL", given.result_url))
    return [(name, _as_redis_url(url)) for name, url in named if url and urlsplit(url).scheme in REDIS_SCHEMES]


def _as_redis_url(url: str) -> str:
    """kombu and Celery say redis+socket:///path?virtual_host=0, redis-py says unix:///path?db=0."""
    if not url.startswith("redis+socket://"):
        return url
    return "unix://" + url.removeprefix("redis+socket://").replace("virtual_host=", "db=")


def agree_on_visibility(server: Server, given: Settings) -> str:
    """Say how long our broker waits for an acknowledgement, and hear what the others say."""
    return server.agree(VISIBILITY, _said(given), AGREED_MS)


def check_agreement(given: Settings, stands: str | None) -> None:
    """On Redis the process with the shortest visibility timeout gives back the messages of all the others."""
    if stands not in (None, _said(given)):
        raise ConfigError(
            f"this process would give messages back after {_said(given)}, the running ones do after {stands}",
            path="MANDOR_VISIBILITY_TIMEOUT_S",
            hint="set it alike everywhere; to change it, stop all workers for a minute",
        )


def _said(given: Settings) -> str:
    return f"{given.visibility_timeout_s:g} s"
