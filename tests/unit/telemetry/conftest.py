"""What one test hides is hidden in no other."""

from collections.abc import Iterator

import pytest

from orchestrator.telemetry import text


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(text, "_hidden", [])
    text.hide_names(())
    yield
    text.hide_names(())
