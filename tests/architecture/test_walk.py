"""docs/walk.md names files and functions that are there, and every supervisor."""

import re

from orchestrator import names
from tests.support.environment import ROOT

TEXT = (ROOT / "docs" / "walk.md").read_text()
FILE = re.compile(r"`((?:[\w.]+/)+[\w.]+\.(?:py|lua))`")
NAMED = re.compile(r"`((?:[\w.]+/)+[\w.]+\.(?:py|lua))`\s+`(\w+)`")


def defines(path: str, name: str) -> bool:
    """Whether the file declares a function, class, constant or Lua function of that name."""
    declared = rf"^\s*(?:def|class|local function) {name}\b|^{name}\b.*="
    return re.search(declared, (ROOT / path).read_text(), re.MULTILINE) is not None


def test_every_file_is_there() -> None:
    assert sorted({path for path in FILE.findall(TEXT) if not (ROOT / path).is_file()}) == []


def test_every_name_is_declared_where_it_is_said_to_be() -> None:
    pairs = set(NAMED.findall(TEXT))
    assert len(pairs) > 30
    assert sorted(pair for pair in pairs if not defines(*pair)) == []


def test_every_supervisor_is_named() -> None:
    files = {f"orchestrator/supervisors/{name.replace('-', '_')}.py" for name in names.SUPERVISORS}
    assert {path for path, name in NAMED.findall(TEXT) if name == "run_once"} == files
