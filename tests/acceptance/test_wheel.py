"""What a person has who installs Mandor instead of cloning it, by the commands of docs/running.md."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from orchestrator.local import procfile
from orchestrator.local.address import free_port
from tests.support.environment import ROOT, clean_environment
from tests.support.processes import Processes
from tests.support.servers import Server
from tests.support.up import processes_in, running_up
from tests.support.wheels import locked_versions

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
BLOCK: Final = re.compile(r"(?:^ {4}\S.*\n)+", re.MULTILINE)
CLONE: Final = "git clone <this repository> mandor"


def documented(command: str) -> list[str]:
    """The block of docs/running.md that has this command, without remarks."""
    blocks = BLOCK.findall((ROOT / "docs" / "running.md").read_text())
    (found,) = (block for block in blocks if command in block)
    return [line.partition("  #")[0].strip() for line in found.splitlines()]


def typed(lines: Iterable[str], folder: Path, env: dict[str, str]) -> None:
    """A shell in the folder runs them, up to the first that fails."""
    argv = ["/bin/sh", "-ec", "\n".join(lines)]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of an environment to which both documented ways have led, that with a wheel last."""
    pytest.importorskip("ensurepip", reason="no pip for a new environment: apt install python3-venv")
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "mandor").symlink_to(ROOT)
    (folder / "constraints.txt").write_text(locked_versions())
    clone, make, *install = documented(CLONE)
    assert clone == CLONE
    lines = [make.replace("python3", shlex.quote(sys.executable)), *install]
    lines += ["pip uninstall --yes mandor", *documented("pip wheel")]
    scripts = folder / "env" / "bin"
    typed(lines, folder, environment() | constrained(scripts))
    return scripts


def constrained(scripts: Path) -> dict[str, str]:
    """Has pip take the versions of the lock."""
    return {"PIP_CONSTRAINT": str(scripts.parents[1] / "constraints.txt")}


def environment(path: str = os.defpath, **settings: object) -> dict[str, str]:
    """Nothing in it leads back to the checkout or to the environment that runs the tests."""
    env = clean_environment(**settings)
    del env["PYTHONPATH"]
    return {**env, "PATH": path}


def test_the_wheel_runs_from_its_version_to_a_finished_run(scripts: Path, tmp_path: Path) -> None:
    folder, env, mandor = tmp_path / "somewhere else", environment(), str(scripts / "mandor")
    version = subprocess.run([mandor, "--version"], env=env, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"mandor \d+\.\d+\.\d+\n", version.stdout)
    with running_up(folder, env, mandor=[mandor]) as up:
        up.wait_ready()
        command = next(line.strip() for line in up.said() if " run submit " in line)
        tried = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert tried.returncode == 0, tried.stderr
        assert "succeeded" in tried.stdout
        run_id = tried.stdout.split()[0]
        assert set(up.answer("run", "result", run_id)["results"]) == {"hello", "checksum"}
        assert str(ROOT) not in up.text
        up.signal(signal.SIGINT)
        assert up.wait() == 0, up.text
    assert processes_in(folder / ".mandor") == {}


def test_the_wheel_has_the_procfile_of_the_checkout(scripts: Path) -> None:
    shown = "from orchestrator.local.procfile import procfile; print(procfile())"
    found = subprocess.run(
        [scripts / "python", "-I", "-c", shown], env=environment(), capture_output=True, text=True, check=True
    )
    path = Path(found.stdout.strip())
    assert path.is_relative_to(scripts.parent)
    assert path.read_text() == procfile.procfile().read_text() == (ROOT / "Procfile").read_text()


def test_an_extra_is_added_by_its_name(scripts: Path) -> None:
    assert "pip install 'mandor[postgres]'" in (ROOT / "docs" / "running.md").read_text()
    env = environment() | constrained(scripts)
    typed([". bin/activate", "pip install 'mandor[postgres]'", "python -c 'import psycopg'"], scripts.parent, env)


def test_the_processes_start_as_documented(scripts: Path, redis_server: Server, namespace: str, tmp_path: Path) -> None:
    given = {"redis_url": redis_server.url, "namespace": namespace, "home": tmp_path / "home"}
    env = environment(f"{scripts}:{os.defpath}", **given, flower_port=free_port()) | constrained(scripts)
    pip, export, *prepare, start = documented("honcho start")
    assert (pip.partition(" ")[0], export.partition(" ")[0], start) == ("pip", "export", "honcho start")
    assert "\n".join([*prepare, start]) in (ROOT / "README.md").read_text()
    typed([pip, *prepare], tmp_path, env)
    with Processes(env, tmp_path) as processes:
        honcho = processes.start("honcho", str(scripts / "honcho"), "start")
        for name, _ in procfile.lines((ROOT / "Procfile").read_text()):
            processes.wait_for_line(rf"{name}\.\d+ .*{procfile.READY}", timeout_s=90)
        honcho.signal(signal.SIGTERM)
        assert honcho.wait(30) is not None
