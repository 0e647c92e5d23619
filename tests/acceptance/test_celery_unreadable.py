"""What is no message of ours becomes a dead letter, and the worker goes on."""

import base64
import json
from typing import Any
from uuid import uuid4

import pytest

from tests.support.installation import Installation
from tests.support.waiting import eventually

DEEP = "a value that is nested deep"


def put(ours: Installation, body: bytes, task: str | None, content_type: str = "application/json", **more: Any) -> str:
    """Lay a message on the control queue, as kombu's Redis transport writes it."""
    task_id = str(uuid4())
    queue = ours.queue("control")
    headers = {"lang": "py", "task": task, "id": task_id, **more} if task else {}
    properties = {
        "correlation_id": task_id,
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": str(uuid4()),
    }
    envelope = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": content_type,
        "headers": headers,
        "properties": properties,
    }
    ours.app.backend.client.lpush(queue, json.dumps(envelope).replace(f'"{DEEP}"', nested(900)))
    return task_id


ARGS = json.dumps([[], {}, {}]).encode()


def nested(levels: int) -> str:
    """JSON deeper than our own writer goes."""
    return '{"a":' * levels + "{}" + "}" * levels


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
