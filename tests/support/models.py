"""A model's server on the loopback whose answers are written down beforehand, in OpenAI's or Anthropic's form.

It bills like a provider that heeds idempotency keys: a request repeated under its key gets the same answer and is not
billed again, and one with the same key but another body is refused.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-secret-of-the-tests-0123456789"


@dataclass(frozen=True)
class Says:
    """A good answer. cut: the body breaks off; wait_s: silence first; drip_s: between the bytes of the body."""

    text: str = ""
    finish_reason: str | None = None
    cut: bool = False
    wait_s: float = 0.0
    drip_s: float = 0.0


@dataclass(frozen=True)
class Refuses:
    """A bad status, or (200) a body that is no answer."""

    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = '{"error": {"message": "no", "type": "none", "code": null}}'


Turn = Says | Refuses
REUSED = Refuses(422, body='{"error": {"message": "this key was used for another request"}}')


def told_again(turn: Turn) -> Turn:
    """An answer that was paid for arrives in full the second time."""
    return replace(turn, cut=False, wait_s=0.0, drip_s=0.0) if isinstance(turn, Says) else turn


@dataclass
class ModelServer:
    """script: what is answered, in order; the last one over and over. requests: headers and bodies as they came.
    listing: what whoever asks for a list of models is answered; a good answer has none.
    """

    dialect: str
    script: list[Turn]
    url: str = ""
    requests: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    bills: dict[str, tuple[Any, Turn]] = field(default_factory=dict)
    honours_keys: bool = True
    listing: Turn = field(default_factory=Says)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next_turn(self, headers: dict[str, str], body: Any) -> Turn:
        """What this request is answered."""
        with self._lock:
            self.requests.append((headers, body))
            key = headers.get("idempotency-key", str(len(self.requests)))
            known = self.bills.get(key) if self.honours_keys else None
            if known is not None:
                return told_again(known[1]) if known[0] == body else REUSED
            turn = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            if isinstance(turn, Says):
                self.bills[key if self.honours_keys else str(len(self.requests))] = (body, turn)
            return turn

    def answer(self, turn: Says) -> dict[str, Any]:
        """The turn in the provider's form."""
        if self.dialect == "openai":
            choice = {"index": 0, "message": {"role": "assistant", "content": turn.text}}
            return {
                "id": "x",
                "model": "stub-1",
                "choices": [choice | {"finish_reason": turn.finish_reason or "stop"}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
            }
        return {
            "id": "x",
            "model": "stub-1",
            "content": [{"type": "text", "text": turn.text}],
            "stop_reason": turn.finish_reason or "end_turn",
            "usage": {"input_tokens": 11, "output_tokens": 7},
        }

    def prompts(self) -> list[str]:
        """All text of each request, system first."""
        return [json.dumps(body, ensure_ascii=False) for _, body in self.requests]


class Handler(BaseHTTPRequestHandler):
    """Answers for one server."""

    stub: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        turn = self.stub.next_turn({name.lower(): value for name, value in self.headers.items()}, body)
        try:
            self._refuse(turn) if isinstance(turn, Refuses) else self._say(turn)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_GET(self) -> None:
        turn = self.stub.listing
        self._refuse(turn) if isinstance(turn, Refuses) else self._list()

    def _list(self) -> None:
        body = b'{"object": "list", "data": []}'
        self._head(200, len(body), {})
        self.wfile.write(body)

    def _refuse(self, turn: Refuses) -> None:
        self._head(turn.status, len(turn.body), turn.headers)
        self.wfile.write(turn.body.encode())

    def _say(self, turn: Says) -> None:
        time.sleep(turn.wait_s)
        body = json.dumps(self.stub.answer(turn)).encode()
        self._head(200, len(body), {})
        if turn.cut:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif turn.drip_s:
            self._drip(body, turn.drip_s)
        else:
            self.wfile.write(body)

    def _drip(self, body: bytes, pause_s: float) -> None:
        for byte in body:
            self.wfile.write(bytes([byte]))
            time.sleep(pause_s)

    def _head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (its parent's name)
        """Say nothing."""


@contextmanager
def model_server(dialect: str, *script: Turn, honours_keys: bool = True, port: int = 0) -> Iterator[ModelServer]:
    """A server that follows the script, on a port of the loopback; 0: any that is free."""
    made = ModelServer(dialect, list(script), honours_keys=honours_keys)
    http = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (Handler,), {"stub": made}))
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{http.server_address[1]}" + ("/v1" if dialect == "openai" else "")
    try:
        yield made
    finally:
        http.shutdown()
        http.server_close()
