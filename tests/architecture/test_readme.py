"""What the documentation points at is there."""

import re
from itertools import chain
from pathlib import Path

import pytest

from tests.support.environment import ROOT

PAGES = sorted(chain(ROOT.glob("*.md"), ROOT.glob("docs/**/*.md")))
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
WIDEST = 130  # but for tables
INTO = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    folder = page.parent
    broken = [link for link in LINK.findall(page.read_text()) if not (folder / link).exists()]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_into_a_page_lead_to_a_heading(page: Path) -> None:
    links = ((page.parent / name if name else page, heading) for name, heading in INTO.findall(page.read_text()))
    assert [(str(target), heading) for target, heading in links if heading not in headings(target)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_text_is_wrapped(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), 1)
    assert [number for number, line in lines if len(line) > WIDEST and not line.startswith("|")] == []


def headings(page: Path) -> set[str]:
    """As a browser finds them: in small letters, with dashes between the words."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
