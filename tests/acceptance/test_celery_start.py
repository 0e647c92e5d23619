"""How processes of ours start: alone from the Procfile, or not at all, saying why."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.local import procfile
from orchestrator.local.address import free_port
from tests.support.environment import clean_environment
from tests.support.installation import installation
from tests.support.processes import Processes
from tests.support.servers import Server

SOFT = {"REMAP_SIGTERM": "SIGQUIT"}
WORKER = ("worker", "-Q", "steps", "-c", "1", "--without-mingle", "--without-gossip")


@pytest.fixture
def env(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """An installation that is ready, and its environment."""
    names = {"namespace": namespace, "home": tmp_path / "home", "log_format": "json"}
    with installation(redis_server.url, **names):  # type: ignore[arg-type]
        yield clean_environment(redis_url=redis_server.url, **names)


def celery(env: Mapping[str, str], cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """A process that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "celery", "-A", "orchestrator.app", *argv],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def refusal(env: Mapping[str, str], cwd: Path, *argv: str) -> str:
    """What a process says that does not start."""
    ended = celery(env, cwd, *argv)
    assert ended.returncode != 0, ended.stderr
    return ended.stderr


@pytest.mark.full
def test_every_line_of_the_procfile_starts_alone(env: dict[str, str], tmp_path: Path) -> None:
    port = {"MANDOR_FLOWER_PORT": str(free_port())}
    with Processes({**env, **port}, tmp_path) as processes:
        for command in procfile.commands({}):
            processes.start(command.name, *command.argv, ready=command.ready)
        assert processes.running() == [command.name for command in procfile.commands({})]


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder for PATH with the commands that the Procfile names, whatever this environment has installed."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name, module in procfile.MODULES.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        script.chmod(0o755)
    return folder


def test_the_procfile_runs_under_honcho(env: dict[str, str], tmp_path: Path, scripts: Path) -> None:
    given = {"PATH": f"{scripts}:{env['PATH']}", "MANDOR_FLOWER_PORT": str(free_port())}
    with Processes({**env, **given}, tmp_path) as processes:
        file = str(procfile.procfile())
        honcho = processes.python("honcho", "-m", "honcho", "-d", str(tmp_path), "-f", file, "start")
        for name, _ in procfile.lines(Path(file).read_text()):
            processes.wait_for_line(rf"{name}\.\d+ .*{procfile.READY}", timeout_s=90)
        honcho.signal(signal.SIGTERM)
        assert honcho.wait(30) is not None


def test_without_the_soft_stop_a_worker_does_not_start(env: dict[str, str], tmp_path: Path) -> None:
    said = refusal(env, tmp_path, *WORKER)
    assert "REMAP_SIGTERM=SIGQUIT" in said


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_a_pool_that_cannot_kill_is_refused(env: dict[str, str], tmp_path: Path, pool: str) -> None:
    assert "worker_pool" in refusal({**env, **SOFT}, tmp_path, *WORKER, "-P", pool)


@pytest.mark.parametrize("argv", [WORKER, ("beat",)])
def test_another_broker_in_the_environment_is_refused(
    env: dict[str, str], tmp_path: Path, argv: tuple[str, ...]
) -> None:
    said = refusal({**env, **SOFT, "CELERY_BROKER_URL": "redis://127.0.0.1:1/0"}, tmp_path, *argv)
    assert "CELERY_BROKER_URL" in said


def test_a_celeryconfig_in_the_working_directory_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "celeryconfig.py").write_text("task_acks_late = False\n")
    said = refusal({**env, **SOFT}, tmp_path, *WORKER)
    assert "celeryconfig" in said
    assert str(tmp_path) in said


@pytest.mark.parametrize(
    ("name", "value"), [("MANDOR_SWEEP_S", "100"), ("MANDOR_LEASE_S", "long"), ("MANDOR_REDIS_URL", "nonsense")]
)
def test_a_setting_that_cannot_be_is_told_in_a_line(env: dict[str, str], tmp_path: Path, name: str, value: str) -> None:
    said = refusal({**env, **SOFT, name: value}, tmp_path, *WORKER)
    assert [line for line in said.splitlines() if line.strip()] == [said.strip()]
    assert said.startswith(f"mandor: {name}: ")


def test_without_an_epoch_it_says_what_to_run(env: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    said = refusal({**env, **SOFT, "MANDOR_HOME": str(other)}, tmp_path, *WORKER)
    assert "mandor ledger upgrade" in said


def test_a_home_that_cannot_be_counted_in_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    folder = Path(env["MANDOR_HOME"]) / "metrics"
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("somebody's file")
    said = refusal({**env, **SOFT}, tmp_path, *WORKER)
    assert "MANDOR_HOME: cannot count in" in said


def test_a_server_that_evicts_is_refused(env: dict[str, str], tmp_path: Path, redis_server: Server) -> None:
    redis_server.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert "noeviction" in refusal({**env, **SOFT}, tmp_path, *WORKER)
    finally:
        redis_server.client.config_set("maxmemory-policy", "noeviction")


def test_another_server_for_queues_that_evicts_is_refused(
    env: dict[str, str], tmp_path: Path, new_server: Callable[[], Server]
) -> None:
    other = new_server()
    other.client.config_set("maxmemory-policy", "volatile-lru")
    assert "MANDOR_BROKER_URL" in refusal({**env, **SOFT, "MANDOR_BROKER_URL": other.url}, tmp_path, *WORKER)


def test_a_process_started_during_an_outage_waits(env: dict[str, str], tmp_path: Path) -> None:
    with Processes({**env, **SOFT, "MANDOR_REDIS_URL": "redis://127.0.0.1:1/0"}, tmp_path) as processes:
        processes.python("steps", "-m", "celery", "-A", "orchestrator.app", *WORKER)
        processes.wait_for_line(r"service\.waiting.*store_unavailable")
        assert processes.running() == ["steps"]
        processes.kill("steps")


def test_a_misspelt_setting_is_reported(env: dict[str, str], tmp_path: Path) -> None:
    with Processes({**env, **SOFT, "MANDOR_LEESE_S": "3"}, tmp_path) as processes:
        processes.python("steps", "-m", "celery", "-A", "orchestrator.app", *WORKER, ready=r"\bready\.")
        processes.wait_for_line(r"setting\.unknown.*MANDOR_LEESE_S")
