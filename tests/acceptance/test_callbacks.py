"""Callbacks from a whole installation to a receiver that has its troubles: told under one id, and never lost."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.environment import clean_environment
from tests.support.receiver import SECRET, Receiver, is_signed, receiving
from tests.support.shell import Shell, shell_in
from tests.support.up import Up, running_up
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]
ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
GIVEN = {
    "sweep_s": 0.5,
    "webhook_secrets": SECRET,
    "webhook_allowed": "127.0.0.1/32",
    "webhook_attempts": 3,
    "webhook_backoff_s": 0.1,
    "webhook_backoff_max_s": 0.5,
    "webhook_timeout_s": 1,
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with running_up(tmp_path / "work", clean_environment(actions="tests.support.drifting", **GIVEN)) as started_up:
        yield started_up.wait_ready()


@pytest.fixture
def shell(up: Up) -> Iterator[Shell]:
    with shell_in(up.folder, up.env) as opened:
        yield opened


def submitted(shell: Shell, receiver: Receiver) -> str:
    """A run that has ended well, and wants that told."""
    said = shell.run(f"mandor run submit --planner drift.careful --callback {receiver.url()} --wait")
    assert said.code == 0, said
    (run_id, *_) = re.findall(ID, said.text)
    return str(run_id)


def shows(shell: Shell, run_id: str, words: str) -> None:
    def found() -> bool:
        return words in " ".join(shell.run(f"mandor run show {run_id}").text.split())

    eventually(found, timeout_s=30, what=f"{words!r} in {run_id}")


def test_a_callback_reaches_whoever_fails_and_is_silent_first_or_is_replayed(
    up: Up, shell: Shell, receiver: Receiver
) -> None:
    receiver.replies = [500, receiver.stay_silent, 204]
    heard = submitted(shell, receiver)
    shows(shell, heard, "delivered: ")
    assert len(receiver.received) == 3

    receiver.then = 503
    unheard = submitted(shell, receiver)
    shows(shell, unheard, "given up: ")
    listed = shell.run("mandor dlq list --each --kind delivery")
    (letter,) = re.findall(rf"(?m)^({ID}) ", listed.text)
    receiver.then = 200
    assert shell.run(f"mandor dlq replay {letter}").code == 0
    shows(shell, unheard, "delivered: ")

    of_runs = [one.said["data"]["run_id"] for one in receiver.received]
    assert of_runs == [heard] * 3 + [unheard] * 4
    assert len({one.id for one in receiver.received}) == 2
    assert all(is_signed(one) and one.said["type"] == "run.succeeded" for one in receiver.received)
    assert shell.run("mandor doctor").text.count("none waits") == 2
