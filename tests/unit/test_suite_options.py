"""The suite's own options: what --full adds, and what it no longer forgives."""

import pytest

OURS = "from tests.conftest import pytest_addoption, pytest_collection_modifyitems, pytest_runtest_makereport\n"
SUITE = """
import pytest

def test_short(): pass

@pytest.mark.full
def test_long(): pass

def test_skipped(): pytest.skip("no such server")

@pytest.mark.may_skip
def test_rightly_skipped(): pytest.skip("another platform")

@pytest.mark.may_skip(True)
def test_rightly_skipped_here(): pytest.skip("this user cannot")

@pytest.mark.may_skip(False)
def test_skipped_though_it_could(): pytest.skip("this user could")
"""
INI = "[pytest]\nmarkers =\n    full: x\n    may_skip: x\n"


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(OURS)
    pytester.makeini(INI)
    pytester.makepyfile(SUITE)
    return pytester


def test_usually_long_tests_are_left_out_and_skips_are_forgiven(suite: pytest.Pytester) -> None:
    suite.runpytest("-p", "no:randomly").assert_outcomes(passed=1, skipped=4, deselected=1)


def test_a_full_run_leaves_nothing_out_and_fails_on_a_skip(suite: pytest.Pytester) -> None:
    result = suite.runpytest("--full", "-p", "no:randomly")
    result.assert_outcomes(passed=2, failed=2, skipped=2)
    result.stdout.fnmatch_lines(["*skipped, which --full does not allow: *no such server*"])
    result.stdout.fnmatch_lines(["*skipped, which --full does not allow: *this user could*"])
