"""Messages that no producer of ours would send, laid on our queues as kombu's Redis transport writes them."""

import base64
import json
from typing import Any, Final
from uuid import uuid4

from tests.support.installation import Installation

ARGS: Final = json.dumps([[], {}, {}]).encode()
DEEP: Final = "a value that is nested deep"  # in a header: stands for JSON deeper than our own writer goes


def put(ours: Installation, body: bytes, task: str | None, content_type: str = "application/json", **more: Any) -> str:
    """Lay a message on the control queue; answers its task id."""
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


def nested(levels: int) -> str:
    """JSON deeper than our own writer goes."""
    return '{"a":' * levels + "{}" + "}" * levels
