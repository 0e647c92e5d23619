"""What is no message of ours becomes a dead letter, and the worker goes on."""

import base64
from typing import Any

import pytest

from orchestrator import names
from tests.support.installation import Installation
from tests.support.processes import Processes
from tests.support.strangers import ARGS, DEEP, nested, put
from tests.support.waiting import eventually

TICK = names.supervisor_task("settle-runs")


def submission(levels: int) -> bytes:
    return f'[[], {{"context": {nested(levels)}, "plan": "{{}}"}}, {{}}]'.encode()


@pytest.mark.parametrize(
    ("body", "task", "content_type", "reason"),
    [
        (b'{"cut":', "orchestrator.submit", "application/json", "decoded"),
        (ARGS, "orchestrator.submit", "application/x-python-serialize", "refused"),
        (ARGS, "nobody.knows.this", "application/json", "nobody.knows.this"),
        (b'{"hello": "there"}', None, "application/json", "not a Celery message"),
        (b"\xff\xfe", "orchestrator.submit", "application/json", "decoded"),
        (submission(900), "orchestrator.submit", "application/json", "nested more than"),
        (submission(5_000), "orchestrator.submit", "application/json", "decoded"),
    ],
)
def test_it_is_kept_with_its_reason(
    ours: Installation, body: bytes, task: str | None, content_type: str, reason: str
) -> None:
    before = {letter.id for letter in ours.ledger.letters(100)}
    put(ours, body, task, content_type)

    def found() -> list[Any]:
        return [letter for letter in ours.ledger.letters(100) if letter.id not in before]

    (letter,) = eventually(found, what="a letter")
    assert (letter.kind, letter.content["queue"]) == ("message", ours.queue("control"))
    assert reason in letter.reason
    assert letter.content["bytes"] == len(body)
    assert base64.b64decode(letter.content.get("body_base64", "")) or letter.content["body"].encode() == body


@pytest.mark.parametrize("task", ["orchestrator.settle", "workers.step", "workers.plan", TICK])
def test_arguments_without_names_are_kept(ours: Installation, task: str) -> None:
    before = {letter.id for letter in ours.ledger.letters(100)}
    put(ours, b'[["odd"], {}, {}]', task)

    def found() -> list[Any]:
        return [letter for letter in ours.ledger.letters(100) if letter.id not in before]

    (letter,) = eventually(found, what="a letter")
    assert letter.kind == "message"
    assert letter.reason == f"not a message for {task}: args: all of a message is in its fields"
    assert "odd" in letter.content["body"]


@pytest.mark.parametrize("task", ["orchestrator.settle", TICK])
def test_fields_of_nobody_s_are_kept(ours: Installation, running: Processes, task: str) -> None:
    """Celery calls a task with whatever a message carries: without a look before that ends in a stack."""
    before = {letter.id for letter in ours.ledger.letters(100)}
    task_id = put(ours, b'[[], {"sesame": 1, "self": 2}, {}]', task)

    def found() -> list[Any]:
        return [letter for letter in ours.ledger.letters(100) if letter.id not in before]

    (letter,) = eventually(found, what="a letter")
    assert letter.kind == "message"
    assert letter.reason.startswith(f"not a message for {task}: ")
    assert "sesame" in letter.content["body"]
    told = [line for line in running.lines("control") if task_id in line]
    assert [line for line in told if "TypeError" in line or "Traceback" in line] == []


def test_the_same_message_twice_is_one_letter(ours: Installation) -> None:
    before = {letter.id for letter in ours.ledger.letters(100)}
    for task in ("twice", "twice", "last"):
        put(ours, ARGS + b" " * 7, None if task == "twice" else task)
    eventually(lambda: any("last" in letter.reason for letter in ours.ledger.letters(100)))
    assert len([letter for letter in ours.ledger.letters(100) if letter.id not in before]) == 2


def test_headers_that_no_child_could_be_handed(ours: Installation) -> None:
    """Celery pickles them; the worker ended, and so did each that was given the message again."""
    before = {letter.id for letter in ours.ledger.letters(100)}
    put(ours, ARGS, "orchestrator.submit", theirs=DEEP)
    put(ours, ARGS, "nobody.after.it")

    def reasons() -> list[str]:
        return [letter.reason for letter in ours.ledger.letters(100) if letter.id not in before]

    eventually(lambda: len(reasons()) == 2, what="two letters")
    assert any("nested more than" in reason for reason in reasons())


def test_the_log_has_a_line_that_quotes_nothing_of_it(ours: Installation, running: Processes) -> None:
    put(ours, b'[["sesame"], {}, {}]', "nobody.hears.this", argsrepr="('sesame',)")
    put(ours, b'{"sesame":', "orchestrator.submit", argsrepr="sesame")
    put(ours, b'[["sesame"], {}, {}]', "orchestrator.submit", "application/x-python-serialize")
    put(ours, b'{"hello": "sesame"}', None)
    put(ours, ARGS, "nobody.ends.it")
    running.wait_for_line("nobody.ends.it", name="control")
    told = [line for line in running.lines("control") if '"a message ' in line]
    assert len(told) >= 5
    assert [line for line in told if "exception" in line] == []
    assert [line for line in running.lines("control") if "sesame" in line] == []
