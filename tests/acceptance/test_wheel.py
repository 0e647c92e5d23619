"""What a person has who installs Mandor instead of cloning it."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.local import procfile
from tests.support.environment import ROOT, clean_environment
from tests.support.up import processes_in, running_up
from tests.support.wheels import installed_wheel

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("ensurepip", reason="no pip for a new environment: apt install python3-venv")
    return installed_wheel(tmp_path_factory.mktemp("wheel"))


def environment() -> dict[str, str]:
    """Nothing in it leads back to the checkout or to the environment that runs the tests."""
    env = clean_environment()
    del env["PYTHONPATH"]
    return {**env, "PATH": os.defpath}


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
