"""The page of hostile plans speaks of every case, and names tests that exist."""

import re
from collections import Counter

from tests.architecture.sources import ROOT, text_of_tests
from tests.fenced.hostile_plans import NAMES
from tests.support.hostile import corpus

PAGE = (ROOT / "tests" / "corpora" / "hostile.md").read_text(encoding="utf-8")
SHOWN, _, LEFT_OUT = PAGE.partition("## Left out")
CASES = re.compile(r"`([a-z]+-\d+)`")
ROW = re.compile(r"^\| `(?P<path>[a-z_/]+\.py)::(?P<name>test_\w+)` \| (?P<cases>.+) \|$", re.MULTILINE)


def test_every_case_is_shown_or_left_out_for_a_reason() -> None:
    shown, left_out = set(CASES.findall(SHOWN)), Counter(CASES.findall(LEFT_OUT))
    assert shown | set(left_out) == set(corpus())
    assert not shown & set(left_out)
    assert max(left_out.values()) == 1


def test_every_test_it_names_is_there_and_speaks_of_its_cases() -> None:
    rows = [row.groupdict() for row in ROW.finditer(SHOWN)]
    assert len(rows) == SHOWN.count(".py::")
    gone = [row for row in rows if f"def {row['name']}(" not in text_of_tests(row["path"])]
    assert gone == []
    silent = [
        (row["path"], case)
        for row in rows
        for case in CASES.findall(row["cases"])
        if "/test_hostile_" in row["path"] and not re.search(rf"\b{case}\b", text_of_tests(row["path"]))
    ]
    assert silent == []


def test_every_case_that_it_does_not_leave_out_is_played_by_whole_workers() -> None:
    """But those about callbacks and dead letters: what is wrong there is no plan."""
    (row,) = (row for row in ROW.finditer(SHOWN) if row["path"] == "faults/test_fenced.py")
    played = (
        set(corpus()) - set(CASES.findall(LEFT_OUT)) - {case for case in corpus() if case.startswith(("wh-", "dlq-"))}
    )
    assert set(CASES.findall(row["cases"])) == set(NAMES) == played
