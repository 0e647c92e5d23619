"""Somebody who is told of the ends of runs: an HTTP server on loopback that answers as it is told to."""

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes....").decode()
OLD_SECRET = "whsec_" + base64.b64encode(b"the one that it takes the place.").decode()


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: str

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def said(self) -> Any:
        return json.loads(self.body)


# what a request is answered with: a status, a status with headers, or whatever is done with the handler
Reply = int | tuple[int, dict[str, str]] | Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Receiver:
    """replies: to the first requests, in their order; all others are answered with `then`."""

    port: int
    replies: list[Reply] = field(default_factory=list)
    then: Reply = 204
    received: list[Received] = field(default_factory=list)
    leaving: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/hook", scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def stay_silent(self, _: BaseHTTPRequestHandler) -> None:
        """Take the request and say nothing, until the test is over."""
        self.leaving.wait()


def is_signed(one: Received, secret: str = SECRET) -> bool:
    """Whether one of the signatures is by this secret, as Standard Webhooks has receivers check it."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{one.id}.{one.headers['webhook-timestamp']}.{one.body}".encode()
    wanted = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(wanted, given) for given in one.headers["webhook-signature"].split(" "))


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.receiver.received.append(Received(self.path, headers, body))
        replies = self.receiver.replies
        reply = replies.pop(0) if replies else self.receiver.then
        if callable(reply):
            reply(self)
        else:
            self._answer(*(reply if isinstance(reply, tuple) else (reply, {})))

    def _answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Not on the screen."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Callers hang up; that is what they are tested for."""


@contextmanager
def receiving(certificate: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver that listens on a free port, by TLS if it has a certificate."""
    handler = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    if certificate is not None:
        server.socket = certificate.wrap_socket(server.socket, server_side=True)
    receiver = Receiver(server.server_address[1])
    handler.receiver = receiver  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.leaving.set()
        server.shutdown()
        server.server_close()
        thread.join()
