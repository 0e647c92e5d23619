"""The code in docs/undoing.md is run here as it stands there."""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from schemas.policy import Policy
from workers.registry import Registry
from workers.testing import context

PAGE = Path(__file__).parents[2] / "docs" / "undoing.md"


@pytest.fixture
def bank(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The page's blocks, imported as one module."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "undoing_page.py").write_text("\n".join(blocks))
    yield import_module("undoing_page")
    del sys.modules["undoing_page"]


def test_what_was_charged_is_refunded(registry: Registry, bank: ModuleType) -> None:
    spec = registry.catalogue().actions["bank.charge"]
    assert (spec.has_compensation, spec.has_probe) == (True, True)
    params, ctx = bank.Charge(card="4242", cents=990), context()
    assert bank.find(params, ctx) is None
    charged = bank.charge(params, ctx)
    assert bank.find(params, ctx) == charged
    bank.refund(params, charged, ctx)
    assert bank.BANK == {}


def test_a_refund_in_doubt_looks_what_there_is(registry: Registry, bank: ModuleType) -> None:
    ctx = context(in_doubt=True)
    bank.refund(bank.Charge(card="4242", cents=990), None, ctx)
    assert (ctx.in_doubt, bank.BANK) == (True, {})


def test_what_only_writes_files_is_undone_without_a_compensation(
    registry: Registry, bank: ModuleType, tmp_path: Path
) -> None:
    spec = registry.catalogue().actions["pages.render"]
    assert (spec.has_compensation, spec.is_undone(Policy(require_compensation=True))) == (False, True)
    ctx = context(workspace=tmp_path / "workspace")
    bank.render(bank.Page(name="a.html"), ctx)
    assert (ctx.workspace.path / "a.html").exists()
