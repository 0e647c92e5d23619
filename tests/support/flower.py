"""Flower as a process of a test's own, and what it answers."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any

FLOWER = ("-m", "workers.cli", "flower")
READY = r"service\.ready"


class Flower:
    """A running Flower, and what it answers."""

    def __init__(self, port: int, secret: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.credentials = f"mandor:{secret}"

    def ask(self, path: str, *, method: str = "GET", credentials: str | None = None) -> tuple[int, str]:
        """Status and body; credentials: `user:password`, empty for none."""
        request = urllib.request.Request(self.url + path, b"{}" if method == "POST" else None, method=method)
        given = self.credentials if credentials is None else credentials
        if given:
            request.add_header("Authorization", f"Basic {base64.b64encode(given.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def tasks(self) -> dict[str, Any]:
        return dict(json.loads(self.ask("/api/tasks")[1]))

    def state(self, task_id: str) -> str | None:
        task = self.tasks().get(task_id)
        return task["state"] if task else None
