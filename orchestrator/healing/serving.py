"""A small HTTP server in a thread of its own, in a process that forks.

A child would inherit the listening socket and every open connection, and hold the port beyond its parent's end: it
closes them before it does anything else. Whoever says nothing for a while is hung up on.
"""

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from orchestrator.errors import ConfigError
from orchestrator.healing.forks import GATE
from orchestrator.home import make_private

SILENCE_S: Final = 5.0
MOST_AT_ONCE: Final = 32
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
        """Who asks every few seconds is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._open: set[socket.socket] = set()
        self._room = threading.Semaphore(MOST_AT_ONCE)
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        """Without the look-up of this machine's name, which may take as long as it likes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Not more at once than that."""
        return self._room.acquire(blocking=False)

    def get_request(self) -> tuple[socket.socket, Any]:
        """No fork between the connection and our knowing of it."""
        with GATE.inside():
            request, address = super().get_request()
            self._open.add(request)
        return request, address

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection, from its beginning to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def shutdown_request(self, request: Any) -> None:
        """It is over."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is none of our business."""

    def let_go(self) -> None:
        """In a child: none of this is ours. A plain close would wait for files that threads of the parent had on it."""
        for held in (self.socket, *self._open):
            with suppress(OSError):
                os.close(held.detach())


def serve(application: Application, address: str, port: int, *, named: bool) -> str:
    """Serve until this process ends; answers the URL. named: this very port, else any if it is taken.

    ConfigError: it cannot be listened there.
    """
    server = _listening(address, port, named)
    server.set_app(application)
    os.register_at_fork(after_in_child=server.let_go)
    threading.Thread(target=server.serve_forever, name="health pages", daemon=True).start()
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{server.server_port}"


def _listening(address: str, port: int, named: bool) -> _Server:
    try:
        return _Server(address, port)
    except OSError as wrong:
        if named or wrong.errno != errno.EADDRINUSE:
            said = wrong.strerror or str(wrong)
            raise ConfigError(f"cannot listen on {address}:{port}: {said}", hint="name another port, or 0") from wrong
    try:
        return _Server(address, 0)
    except OSError as wrong:
        raise ConfigError(f"cannot listen on {address}: {wrong}", hint="name another address") from wrong


# ---- where it is


def remember(home: Path, role: str, url: str) -> None:
    """For `mandor health` on the same host. ConfigError: it cannot be written down."""
    path = _place(home, role)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        make_private(path.parent)
        draft.write_text(url, encoding="ascii")
        draft.replace(path)
    except OSError as wrong:
        message = f"cannot write {path}: {wrong.strerror or wrong}"
        raise ConfigError(message, path="MANDOR_HOME", hint="make it writable, or name another folder") from wrong


def remembered(home: Path, role: str) -> str | None:
    """Where this host's process of that role was last told to listen; None: it never was."""
    try:
        return _place(home, role).read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _place(home: Path, role: str) -> Path:
    return home / "health" / f"{socket.gethostname()}.{role}.url"
