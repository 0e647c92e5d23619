"""The README's example works as it is quoted there, in a home that nobody has used."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.environment import ROOT, clean_environment
from tests.support.processes import Processes

README = (ROOT / "README.md").read_text()
SHOP = ROOT / "examples" / "quickstart" / "shop.py"
OURS = f"{shlex.quote(sys.executable)} -m workers.cli"
UP_S = 60.0


def blocks(language: str) -> list[str]:
    """The README's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The quoted commands, called in the environment of this test instead of the one that ./dev makes."""
    lines = [line for block in blocks("sh") for line in block.splitlines() if "./dev run mandor" in line]
    return [line.replace("./dev run mandor", OURS) for line in lines]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The first command, running; answers the environment of the other two."""
    env = clean_environment(home=tmp_path / "home")
    with Processes(env, ROOT) as processes:
        processes.start("up", "sh", "-c", f"exec env {commands()[0]}")  # the signal to stop goes to mandor itself
        processes.wait_for_line(r"ready after", timeout_s=UP_S)
        yield env
        processes.stop("up")


def sh(command: str, env: dict[str, str], code: int = 0) -> str:
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_the_file_is_quoted_whole() -> None:
    assert SHOP.read_text() in blocks("python")


def test_three_commands_run_it(up: dict[str, str]) -> None:
    _, submit, result = commands()
    said = sh(submit, up)
    assert re.search(r"^status +succeeded$", said, re.MULTILINE)
    run_id = said.split()[0]
    shown = sh(result.replace("ID", run_id) + " --json", up)
    receipts = [step["receipt"] for step in json.loads(shown)["results"].values()]
    assert receipts == [f"idem:{run_id}:s0:0", f"idem:{run_id}:s1:0"]


def test_what_was_charged_is_refunded_when_the_bank_declines(up: dict[str, str]) -> None:
    _, submit, _ = commands()
    said = sh(submit.replace("1200", "100001"), up, code=1)
    assert re.search(r"^status +compensated$", said, re.MULTILINE)
