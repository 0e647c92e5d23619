"""The wheel, and environments that have it and nothing of this checkout.

python -m tests.support.wheels [ARGUMENTS OF PYTEST]    runs tests on the installed wheel
"""

import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.environment import ROOT, clean_environment

COPIED: Final = ("tests", "examples", "pyproject.toml", "README.md")
OF_THE_CHECKOUT: Final = ("wheel", "dev", "bench")  # acceptance tests of what no wheel holds


def build_wheel(folder: Path) -> Path:
    """Build the wheel from this checkout; answers the file."""
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def locked_versions() -> str:
    """What the lock says, as constraints for pip: a wheel of our own has no hash there."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^[a-z0-9][^\s;]*==[^\s;]+", lock, re.MULTILINE)) + "\n"


def installed_with_everything(folder: Path) -> Path:
    """The same with all that the lock has, the tools of the tests included."""
    wheel, scripts = build_wheel(folder), new_environment(folder)
    pip_install(scripts, "--require-hashes", "--requirement", str(ROOT / "requirements.lock"))
    pip_install(scripts, "--no-deps", str(wheel))
    return scripts


def new_environment(folder: Path) -> Path:
    """An empty environment with pip; answers its folder of scripts."""
    venv.create(folder / "venv", with_pip=True)
    return folder / "venv" / "bin"


def pip_install(scripts: Path, *arguments: str) -> None:
    argv = [str(scripts / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(argv, cwd=scripts, check=True)


def copy_tests(folder: Path) -> Path:
    """The tests without the packages, so that only the installed ones can be imported."""
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def main(arguments: Sequence[str]) -> int:
    """Run pytest on the wheel. What builds or reads the checkout itself is left out."""
    with tempfile.TemporaryDirectory(prefix="mandor-wheel-") as name:
        scripts = installed_with_everything(Path(name))
        tree = copy_tests(Path(name) / "tree")
        left_out = [f"--ignore=tests/acceptance/test_{name}.py" for name in OF_THE_CHECKOUT]
        argv = [str(scripts / "python"), "-m", "pytest", *left_out, *arguments]
        return subprocess.run(argv, cwd=tree, env=clean_environment() | {"PYTHONPATH": ""}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
