"""`./dev` where something is missing, and in a fresh clone at an awkward path."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.environment import ROOT, clean_environment

TOOLS = ("cat", "cksum", "date", "dirname", "rm", "sh")
COMMAND = ROOT / "dev"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs that is all there is: no Python of any kind."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `./dev` needs of a clone to look for an interpreter."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("dev", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    return folder


def interpreter(machine: Path, name: str, version: str, *, venv: bool = True) -> None:
    """One that says its version, and whether it could make an environment; no more is asked before that."""
    answer = "exit 0" if venv else "exit 1"
    program = machine / name
    program.write_text(f'#!/bin/sh\ncase "$2" in *version_info*) echo {version} ;; *) {answer} ;; esac\n')
    program.chmod(0o755)


def said(checkout: Path, machine: Path, **env: str) -> str:
    """What a call that cannot succeed tells; it fails with 1, and makes nothing."""
    done = subprocess.run(
        [str(checkout / "dev"), "run", "true"],
        env={"PATH": str(machine), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert not (checkout / ".venv").exists()
    return done.stderr


def test_without_a_python_it_says_what_to_install(checkout: Path, machine: Path) -> None:
    text = said(checkout, machine)
    assert "found: none of them" in text
    assert "sudo apt install python3 python3-venv" in text


def test_an_old_python_is_named(checkout: Path, machine: Path) -> None:
    interpreter(machine, "python3", "3.9")
    text = said(checkout, machine)
    assert "python3 is 3.9" in text
    assert "CPython 3.11 to 3.14" in text


def test_a_python_without_venv_gets_its_line_for_apt(checkout: Path, machine: Path) -> None:
    interpreter(machine, "python3", "3.9")
    interpreter(machine, "python3.12", "3.12", venv=False)
    assert "sudo apt install python3.12-venv" in said(checkout, machine)


def test_the_python_that_was_asked_for_is_the_only_one(checkout: Path, machine: Path) -> None:
    interpreter(machine, "python3", "3.12")
    text = said(checkout, machine, DEV_PYTHON="python3.99")
    assert "looked for: python3.99" in text


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_fresh_clone_at_an_awkward_path_runs_the_demo(tmp_path: Path) -> None:
    folder = tmp_path / ("a path " + "x" * max(0, 113 - len(str(tmp_path)))) / "clone"
    assert len(str(folder)) >= 120
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    first, again = _call(folder, "run", "mandor", "--version"), _call(folder, "run", "mandor", "--version")
    assert first.stdout.startswith("mandor")
    assert "dev: ready after" in first.stderr
    assert (again.stdout, again.stderr) == (first.stdout, "")
    demo = _call(folder, "demo")
    assert "50 of 50" in demo.stdout
    assert len(list((folder / "demo-out").iterdir())) >= 50


def _call(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [str(folder / "dev"), *arguments],
        env=clean_environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
