"""What `mandor run show` and `mandor up` say to people."""

import pytest

from orchestrator.cli.runs import _said
from orchestrator.cli.up import places
from schemas.run import ErrorView


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, None),
        (ErrorView(kind="timeout", message="too slow", path=None), "timeout: too slow"),
        (ErrorView(kind="invalid", message="no text", path="context.card"), "invalid: context.card: no text"),
    ],
)
def test_an_error_names_what_it_is_about(error: ErrorView | None, told: str | None) -> None:
    assert _said(error) == told


def test_another_terminal_is_told_the_actions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANDOR_ACTIONS", "shop.actions")
    assert "MANDOR_ACTIONS=shop.actions" in places()
