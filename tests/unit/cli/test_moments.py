"""Times as they are written after --since."""

import time

import pytest

from orchestrator.cli.command import run
from orchestrator.cli.moments import moment
from orchestrator.cli.output import iso
from workers.cli import mandor

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("90s", NOW - 90_000),
        ("15m", NOW - 900_000),
        ("2h", NOW - 7_200_000),
        ("7d", NOW - 604_800_000),
        ("2026-02-01T08:00Z", 1_769_932_800_000),
        ("2026-02-01T08:00:00.250+02:00", 1_769_925_600_250),
    ],
)
def test_a_moment_is_so_long_ago_or_then(text: str, at: int) -> None:
    assert moment(text, NOW) == at


def test_a_moment_without_a_zone_is_the_reader_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-3")
    time.tzset()
    at = moment("2026-02-01T11:00", NOW)
    monkeypatch.undo()
    time.tzset()
    assert at == 1_769_932_800_000


def test_what_is_printed_can_be_given_again() -> None:
    assert moment(iso(1_769_932_800_123), NOW) == 1_769_932_800_123


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 h", "yesterday", "2026-13-01", "99999999999999d"])
def test_what_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mandor, ["run", "list", "--since", text]) == 2
    assert "is no time" in capsys.readouterr().err
