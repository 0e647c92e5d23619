"""Start-up refuses what would break a promise, naming the setting and the mend."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator import startup
from orchestrator.app import CONFIG_EXIT, or_refuse
from orchestrator.errors import ConfigError
from orchestrator.settings import Settings
from tests.support.environment import ROOT, clean_environment
from tests.support.installation import celery_app

TIMEOUTS = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0}
GOOD_CONF: dict[str, Any] = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_deduplicate_successful_tasks": False,
    "task_always_eager": False,
    "accept_content": ["json"],
    "broker_channel_error_retry": True,
    "worker_prefetch_multiplier": 1,
    "worker_eta_task_limit": 1000,
    "worker_soft_shutdown_timeout": 16.0,
    "result_expires": 3600.0,
    "result_chord_expires": 7200.0,
    "redis_socket_timeout": 5.0,
    "redis_socket_connect_timeout": 5.0,
    "broker_transport_options": {"visibility_timeout": 3600.0, **TIMEOUTS},
}
SOFT = {"REMAP_SIGTERM": "SIGQUIT"}


def launch(pool: str = "prefork", queues: tuple[str, ...] = ("mandor.steps",), **conf: Any) -> startup.Launch:
    return startup.Launch(pool, frozenset(queues), {**GOOD_CONF, **conf}, SOFT)


def refused(call: Callable[[], None]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        call()
    assert caught.value.path
    assert caught.value.hint
    return caught.value


def test_our_packages_are_ours() -> None:
    startup.check_packages()


@pytest.mark.parametrize("name", startup.PACKAGES)
@pytest.mark.parametrize("origin", ["/srv/app/{name}.py", "/srv/app/{name}/__init__.py", None])
def test_somebody_elses_package_is_refused(name: str, origin: str | None) -> None:
    found: dict[str, str | None] = {each: str(ROOT / each / "__init__.py") for each in startup.PACKAGES}
    found["celeryconfig"] = str(ROOT / "celeryconfig.py")
    startup.check_packages(found, ROOT)
    found[name] = origin.format(name=name) if origin else None
    error = refused(lambda: startup.check_packages(found, ROOT))
    assert error.path == name


@pytest.mark.parametrize("program", ["celery", "/venv/bin/celery", "/venv/site-packages/celery/__main__.py"])
def test_celerys_own_command_is_told_in_a_line(program: str) -> None:
    assert startup.is_celerys_command(program)


@pytest.mark.parametrize("program", ["", "-c", "/srv/celery/submit.py", "celery/worker.py", "/srv/shop/__main__.py"])
def test_somebodys_script_is_not_celerys_command(program: str) -> None:
    assert not startup.is_celerys_command(program)


def test_a_script_in_a_folder_called_celery_can_catch_a_refusal(tmp_path: Path) -> None:
    script = tmp_path / "celery" / "submit.py"
    script.parent.mkdir()
    script.write_text("try:\n    import orchestrator.client\nexcept Exception as refused:\n    print(refused)\n")
    env = {**clean_environment(), "MANDOR_STORE_TIMEOUT_S": "nonsense"}
    ended = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("MANDOR_STORE_TIMEOUT_S: ")


@pytest.mark.parametrize(
    ("field", "url", "name"),
    [
        ("redis_url", "rediscluster://h", "MANDOR_REDIS_URL"),
        ("redis_url", "localhost:6379", "MANDOR_REDIS_URL"),
        ("redis_url", "redis://:hunter2", "MANDOR_REDIS_URL"),
        ("redis_url", "redis://[::1:6379/0", "MANDOR_REDIS_URL"),
        ("broker_url", "sqs://", "MANDOR_BROKER_URL"),
        ("broker_url", "memory://", "MANDOR_BROKER_URL"),
        ("result_url", "rpc://", "MANDOR_RESULT_URL"),
        ("result_url", "db+sqlite:///x", "MANDOR_RESULT_URL"),
        ("result_url", "cache+memcached://h", "MANDOR_RESULT_URL"),
    ],
)
def test_services_we_cannot_build_on(field: str, url: str, name: str) -> None:
    fields: dict[str, Any] = {field: url}
    error = refused(lambda: startup.check_services(Settings(**fields)))
    assert error.path == name
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"redis_url": "rediss://h/0"},
        {"redis_url": "unix:///tmp/x.sock?db=1"},
        {"broker_url": "amqp://guest@h//"},
        {"broker_url": "amqps://h//"},
    ],
)
def test_services_we_build_on(fields: dict[str, Any]) -> None:
    startup.check_services(Settings(**fields))


@pytest.mark.parametrize("name", ["CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"])
def test_a_broker_url_of_celerys_own_must_be_ours(name: str) -> None:
    given = Settings(redis_url="redis://ours/0")
    startup.check_overrides(given, {name: "redis://ours/0"})
    startup.check_overrides(given, {name: ""})
    assert refused(lambda: startup.check_overrides(given, {name: "redis://theirs/0"})).path == name


def test_a_result_url_of_celerys_own_must_be_ours() -> None:
    given = Settings(redis_url="redis://ours/0", result_url="redis://results/0")
    startup.check_overrides(given, {"CELERY_RESULT_BACKEND": "redis://results/0"})
    refused(lambda: startup.check_overrides(given, {"CELERY_RESULT_BACKEND": "redis://ours/0"}))


@pytest.mark.parametrize("pool", ["solo", "threads", "thread", "gevent", "eventlet"])
@pytest.mark.parametrize("queue", ["mandor.steps", "mandor.plan", "gpu", "mandor.control", "mandor.supervise"])
def test_a_worker_needs_a_pool_that_kills(pool: str, queue: str) -> None:
    error = refused(lambda: startup.check_worker(Settings(), launch(pool, (queue,))))
    assert error.path == "worker_pool"
    assert pool in error.message


@pytest.mark.parametrize("environ", [{}, {"REMAP_SIGTERM": "SIGINT"}])
def test_sigterm_must_stop_softly(environ: dict[str, str]) -> None:
    error = refused(lambda: startup.check_soft_stop(environ))
    assert "REMAP_SIGTERM=SIGQUIT" in str(error)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task_acks_late", False),
        ("task_reject_on_worker_lost", None),
        ("worker_deduplicate_successful_tasks", True),
        ("task_always_eager", True),
        ("accept_content", ["json", "pickle"]),
        ("broker_channel_error_retry", False),
        ("worker_prefetch_multiplier", 0),
        ("worker_eta_task_limit", None),
        ("worker_soft_shutdown_timeout", 0),
        ("result_expires", None),
        ("result_chord_expires", 0),
        ("redis_socket_timeout", None),
        ("redis_socket_connect_timeout", None),
        ("broker_transport_options", {**TIMEOUTS, "visibility_timeout": 60}),
        ("broker_transport_options", {"visibility_timeout": 3600.0, "socket_connect_timeout": 5.0}),
    ],
)
def test_what_celery_does_must_be_what_we_say(name: str, value: Any) -> None:
    assert refused(lambda: startup.check_worker(Settings(), launch(**{name: value}))).path == name


def test_our_own_configuration_passes() -> None:
    with celery_app("redis://127.0.0.1:6379/0") as app:
        startup.check_configuration(Settings(), app.conf)


class Server:
    """A server that says what it is asked, and that others have spoken to."""

    def __init__(self, policy: str | None = "noeviction", cluster: str = "0", said: str | None = None) -> None:
        self.policy = policy
        self.cluster = cluster
        self.said = said

    def config(self, name: str) -> str | None:
        assert name == "maxmemory-policy"
        return self.policy

    def info(self, section: str) -> dict[str, str]:
        assert section == "cluster"
        return {"cluster_enabled": self.cluster}

    def agree(self, name: str, value: str, ttl_ms: int) -> str:
        assert (name, ttl_ms > 0) == ("visibility_timeout", True)
        return self.said or value


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl"])
def test_a_server_that_evicts_is_refused(policy: str) -> None:
    assert policy in refused(lambda: startup.check_server(Server(policy), Settings())).message


@pytest.mark.parametrize("policy", ["noeviction", None])
def test_a_server_that_keeps_or_will_not_say_passes(policy: str | None) -> None:
    startup.check_server(Server(policy), Settings())


def test_a_server_in_a_cluster_is_refused() -> None:
    assert "cluster" in refused(lambda: startup.check_server(Server(cluster="1"), Settings())).message


@pytest.mark.parametrize("server", [Server("allkeys-lru"), Server(cluster="1")])
def test_a_server_for_queues_alone_keeps_them_too(server: Server) -> None:
    assert refused(lambda: startup.check_keeper(server, "MANDOR_BROKER_URL")).path == "MANDOR_BROKER_URL"


def test_other_servers_are_those_that_are_named_and_speak_redis() -> None:
    assert startup.other_servers(Settings(redis_url="redis://h/0")) == []
    rabbit = Settings(broker_url="amqp://h//", result_url="redis+socket:///tmp/x.sock?virtual_host=2")
    assert startup.other_servers(rabbit) == [("MANDOR_RESULT_URL", "unix:///tmp/x.sock?db=2")]
    assert startup.other_servers(Settings(broker_url="rediss://b/0")) == [("MANDOR_BROKER_URL", "rediss://b/0")]


def test_a_visibility_timeout_of_its_own_is_refused() -> None:
    startup.check_server(Server(said="3600 s"), Settings())
    error = refused(lambda: startup.check_server(Server(said="60 s"), Settings()))
    assert (error.path, "60 s" in error.message, "3600 s" in error.message) == (
        "MANDOR_VISIBILITY_TIMEOUT_S",
        True,
        True,
    )


def test_an_action_that_outlasts_the_brokers_patience_is_refused() -> None:
    startup.check_time_limit(Settings(), "slow", 3000, 10)
    error = refused(lambda: startup.check_time_limit(Settings(), "slow", 3595, 10))
    assert error.path == "MANDOR_VISIBILITY_TIMEOUT_S"
    assert "slow" in error.message


def test_a_soft_stop_that_outlasts_the_grace_is_refused() -> None:
    error = refused(lambda: startup.check_worker(Settings(term_grace_s=10), launch()))
    assert error.path == "worker_soft_shutdown_timeout"


def test_refusals_name_a_folder_that_exists() -> None:
    assert Path(startup.__file__).parent.parent == ROOT


def test_a_start_that_breaks_off_ends_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Celery would log what nobody thought of, and let the worker work unchecked."""
    with pytest.raises(SystemExit) as ended, or_refuse():
        raise ZeroDivisionError("while at redis://:hunter2@host/0")
    assert ended.value.code == CONFIG_EXIT
    said = capsys.readouterr().err
    assert "ZeroDivisionError: while at redis://:***@host/0" in said
    assert "test_startup.py" in said
