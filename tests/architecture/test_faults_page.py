"""The page of faults names tests that exist."""

import re

from tests.architecture.sources import ROOT, text_of_tests

PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([a-z_/]+\.py)::(test_\w+)`", PAGE)


def test_every_test_it_names_is_there() -> None:
    assert NAMED
    gone = [f"{path}::{name}" for path, name in NAMED if f"def {name}(" not in text_of_tests(path)]
    assert gone == []
