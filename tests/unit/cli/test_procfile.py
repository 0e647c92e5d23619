"""`mandor procfile`: the processes, whatever is to start them."""

import json

import pytest

from orchestrator.cli.command import run
from orchestrator.local import procfile
from tests.support.environment import ROOT
from workers.cli import mandor


def test_it_is_what_honcho_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mandor, ["procfile"]) == 0
    assert capsys.readouterr().out == (ROOT / "Procfile").read_text()


def test_programs_are_told_each_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mandor, ["procfile", "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out).values()
    wanted = procfile.lines((ROOT / "Procfile").read_text())
    assert [(one["name"], one["command"]) for one in said] == list(wanted)
