"""What is in the repository, and what must not be: somebody's machine, somebody's mirror."""

import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, declared_dependencies, tracked_files

# written so that this file does not contain what it looks for
MACHINE_PATHS = re.compile(r"(?<![\w.$~{-])/(?:root|home/\w+|Users/\w+|work|opt)/[\w.-]")
MIRRORS = re.compile(
    r"files\.pythonhosted|pypi\.[a-z]+/simple|--(?:extra-)?index-url|--find-links|file://", re.IGNORECASE
)
LEFTOVERS = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
THIS = Path(__file__).resolve()


def text_of(path: Path) -> str:
    """The file's text; empty for one that is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def found(pattern: re.Pattern[str]) -> list[str]:
    """Every line of the repository that the pattern matches."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in tracked_files()
        if path != THIS
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, MIRRORS, LEFTOVERS], ids=["machine paths", "mirrors", "leftovers"])
def test_no_file_names_what_belongs_elsewhere(pattern: re.Pattern[str]) -> None:
    assert found(pattern) == []


def test_every_locked_release_is_hashed_and_none_has_an_address() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    assert not re.search(r"^-|@ ", lock, re.MULTILINE)
    releases = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE | re.IGNORECASE)[1:]
    assert releases
    assert [release.split()[0] for release in releases if "--hash=sha256:" not in release] == []


def test_the_lock_holds_every_declared_dependency() -> None:
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE))
    assert declared_dependencies() <= locked
