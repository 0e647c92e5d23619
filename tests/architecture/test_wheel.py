"""What is built from the repository is what runs from it."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.architecture.sources import PACKAGES, ROOT, tracked_files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files inside the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with ZipFile(built) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_everything_the_packages_need(wheel: set[str]) -> None:
    """Scripts and migrations included: they are read at run time, and no import would miss them."""
    wanted = {path.relative_to(ROOT).as_posix() for path in tracked_files() if shipped(path)}
    assert wanted <= wheel
    assert {"celeryconfig.py", "workers/py.typed"} <= wanted
    assert {path for path in wanted if path.endswith(".lua")}


def test_the_wheel_holds_nothing_else(wheel: set[str]) -> None:
    roots = {name.partition("/")[0] for name in wheel}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"celeryconfig.py", *PACKAGES}


def shipped(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return parts[0] in PACKAGES or parts == ("celeryconfig.py",)
