"""Whom runs tell of their ends: a server on loopback that tells the witness under which id it hears of which."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from workers.faults import log
from workers.faults.installation import ON_LOOPBACK


class Handler(BaseHTTPRequestHandler):
    """Takes every callback."""

    folder: Path

    def do_POST(self) -> None:
        """One callback."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        told = {"id": self.headers["webhook-id"], "generation": body["data"]["generation"]}
        log.tell_at(self.folder, "called", body["data"]["run_id"], "", **told)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Not on the screen."""


@contextmanager
def receiving(folder: Path) -> Iterator[str]:
    """Inside the block somebody listens at this URL. folder: of the witness."""
    handler = type("OfThisFolder", (Handler,), {"folder": folder})
    with ThreadingHTTPServer((ON_LOOPBACK, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{ON_LOOPBACK}:{server.server_address[1]}/"
        finally:
            server.shutdown()
