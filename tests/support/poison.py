"""What nobody of ours sends, and what is laid into our queues all the same."""

import ast
import base64
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

ARGS: list[Any] = [[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
STEP = "workers.step"
DEEP = 100_000
NAMED = "stranger"


def envelope(queue: str, body: bytes | None = None, *, changes: Any = None, **headers: Any) -> dict[str, Any]:
    """A message as kombu writes it, of a step of ours; `changes` go into the envelope itself."""
    task_id = str(uuid4())
    said = {"lang": "py", "task": STEP, "id": task_id, **headers}
    made = {
        "body": base64.b64encode(json.dumps(ARGS).encode() if body is None else body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {name: value for name, value in said.items() if value != "(none)"},
        "properties": {
            "correlation_id": task_id,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid4()),
        },
    }
    return {**made, **(changes or {})}


def properties(queue: str, **changes: Any) -> dict[str, Any]:
    """The envelope's properties, some of them changed or (None) left out."""
    whole = {**envelope(queue)["properties"], **changes}
    return {"properties": {name: value for name, value in whole.items() if value is not None}}


def garbage(queue: str) -> Iterator[tuple[str, bytes]]:
    """Entries that cannot be a message, each with a name."""
    whole = json.dumps(envelope(queue)).encode()
    yield "empty", b""
    yield "no JSON", b"hello there"
    yield "binary", bytes(range(256))
    yield "no UTF-8", b'{"body": "\xff\xfe"}'
    yield "cut", whole[: len(whole) // 2]
    yield "cut by one", whole[:-1]
    yield "deep", b"[" * DEEP
    yield "null", b"null"
    yield "a number", b"42"
    yield "a string", b'"hello"'
    yield "a list", b"[1, 2, 3]"
    yield "no properties", b"{}"
    yield "foreign", json.dumps({"job": "resize", "args": [1]}).encode()
    yield "kombu's own types", json.dumps({"properties": {"__type__": "uuid", "__value__": 1}}).encode()
    bodies = {
        "properties of another kind": {"properties": "none"},
        "no delivery tag": properties(queue, delivery_tag=None),
        "a delivery tag of another kind": properties(queue, delivery_tag=["x"]),
        "no delivery info": properties(queue, delivery_info=None),
        "half a delivery info": properties(queue, delivery_info={"exchange": ""}),
        "an unknown encoding": properties(queue, body_encoding="rot13"),
        "no base64": {"body": "abc"},
        "a body of another kind": {"body": {"task": STEP}},
        "headers of another kind": {"headers": ["task", STEP]},
    }
    for name, changes in bodies.items():
        yield name, json.dumps(envelope(queue, changes=changes)).encode()


def strangers(queue: str) -> Iterator[tuple[str, bytes]]:
    """Messages that kombu can read and that are no tasks of ours, each with a name, which is its id too."""
    made = {
        "no headers": envelope(queue, changes={"headers": None}),
        "no id": envelope(queue, id="(none)"),
        "an id of another kind": envelope(queue, id=7),
        "a task of another kind": envelope(queue, task=["workers.step"]),
        "a task that is an object": envelope(queue, task={"name": STEP}),
        "a task of somebody else": envelope(queue, task="shop.tasks.resize"),
        "a time limit of one": envelope(queue, timelimit=[5]),
        "a time limit in words": envelope(queue, timelimit=["soon", "later"]),
        "an ETA in words": envelope(queue, eta="tomorrow"),
        "an ETA of another kind": envelope(queue, eta=12),
        "an expiry in words": envelope(queue, expires="never"),
        "an unknown compression": envelope(queue, compression="application/x-nothing"),
        "a wrong compression": envelope(queue, b"plain", compression="application/x-gzip"),
        "retries in words": envelope(queue, retries="many"),
        "a group of another kind": envelope(queue, group={"a": 1}),
        "another content type": envelope(queue, changes={"content-type": "application/x-python-serialize"}),
        "no content type": envelope(queue, changes={"content-type": None}),
        "another encoding": envelope(queue, changes={"content-encoding": "klingon"}),
        "a body that is cut": envelope(queue, b'[[], {"run_id": '),
        "a body that is an object": envelope(queue, b'{"run_id": 1}'),
        "a body of two": envelope(queue, b"[[], {}]"),
        "a body of four": envelope(queue, b"[[], {}, {}, {}]"),
        "arguments of another kind": envelope(queue, b"[{}, [], {}]"),
        "an embed of another kind": envelope(queue, b"[[], {}, 5]"),
        "no body": envelope(queue, b""),
        "none of our fields": envelope(queue),
        "a run id that is none": envelope(queue, step_body(run_id="../../etc/passwd")),
        "a step id that is none": envelope(queue, step_body(step_id="x" * 5000)),
        "protocol 1": envelope(
            queue, json.dumps({"task": STEP, "id": "protocol 1", "args": []}).encode(), task="(none)", id="(none)"
        ),
    }
    for name, message in made.items():
        headers = message["headers"]
        if headers is not None:
            headers["id" if isinstance(headers.get("id"), str) else NAMED] = name
        yield name, json.dumps(message).encode()


def stranger_of(headers: str) -> str:
    """Which of them has these headers, as a dead letter shows them."""
    found = ast.literal_eval(headers)
    return str(found.get(NAMED) or found.get("id") or "no headers")


def step_body(**changes: Any) -> bytes:
    """The body of a step's message, some of it changed."""
    fields = {"run_id": "01890aa6-5f1c-8a3e-9d5b-2f6c1d7e8a90", "session": "-", "generation": 1, "step_id": "s0"}
    return json.dumps([[], {**fields, **changes}, {}]).encode()
