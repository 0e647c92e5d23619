"""The sign of life: after a while, on a terminal only, and gone without a trace."""

import io
import sys
import threading
from collections.abc import Iterator

import pytest

from orchestrator.cli.waiting import CLEAR, PLAIN_SIGNS, waiting_for


class Screen(io.StringIO):
    """A terminal that tells when something is written."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self.written = threading.Event()
        self._terminal = terminal
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TERM", "xterm")
    yield
    assert [thread for thread in threading.enumerate() if "_tell" in thread.name] == []


def test_what_takes_long_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    with waiting_for("asking the oracle", quiet_s=0.01):
        assert screen.written.wait(10)
    text = screen.getvalue()
    assert "asking the oracle, 0 s" in text
    assert text.endswith(CLEAR)


def test_a_terminal_without_these_signs_gets_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True, encoding="ascii")
    monkeypatch.setattr(sys, "stderr", screen)
    with waiting_for("x", quiet_s=0.01):
        assert screen.written.wait(10)
    assert f"{CLEAR}{PLAIN_SIGNS[0]} x" in screen.getvalue()


@pytest.mark.parametrize(("is_terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_where_nothing_can_move_nothing_is_written(
    is_terminal: bool, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", term)
    with waiting_for("x", quiet_s=0):
        pass
    assert screen.getvalue() == ""


def test_what_is_quick_stays_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    with waiting_for("x", quiet_s=60):
        pass
    assert screen.getvalue() == ""
