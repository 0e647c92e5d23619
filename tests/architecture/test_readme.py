"""What the documentation points at is there."""

import re
from itertools import chain
from pathlib import Path

import pytest

from tests.support.environment import ROOT

PAGES = sorted(chain(ROOT.glob("*.md"), ROOT.glob("docs/**/*.md")))
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    folder = page.parent
    broken = [link for link in LINK.findall(page.read_text()) if not (folder / link).exists()]
    assert not broken
