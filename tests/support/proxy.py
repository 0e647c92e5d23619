"""A TCP proxy before a real server, which loses replies, delays them or goes away when a test says so."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards to the server of `url`. swallow(n): the next n answers to scripts are lost with their connections,
    after the server has done what was asked. delay_s: before whatever it answers, as if it were far away. close_all():
    every connection breaks; refuse: new ones break at once. silence(): nothing breaks, and nothing is answered."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = _place(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        host = f"{parts.username or ''}:{parts.password}@" if parts.password else ""
        self.url = urlunsplit((parts.scheme, f"{host}127.0.0.1:{port}", parts.path, "", ""))
        self._to_swallow = 0
        self.swallowed = 0
        self.refuse = False
        self.delay_s = 0.0
        self._speaks = threading.Event()
        self._speaks.set()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self, count: int = 1) -> None:
        self._to_swallow = count

    def turn_to(self, url: str) -> None:
        """From here on another server answers, as after a failover."""
        self._target = _place(url)
        self.close_all()

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Inside the block connections are taken, and whatever is said on any of them is kept back."""
        self._speaks.clear()
        try:
            yield
        finally:
            self._speaks.set()

    def close_all(self) -> None:
        for sock in list(self._open):
            _shut(sock)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _shut(self._listener)
        self.close_all()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuse:
                    _shut(client)
                    continue
                server = socket.create_connection(self._target)
                self._open |= {client, server}
                asked = threading.Event()
                for pump in (self._requests, self._replies):
                    threading.Thread(target=pump, args=(client, server, asked), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if b"EVAL" in data and self._to_swallow:
                    asked.set()
                server.sendall(data)
        _shut(client)
        _shut(server)

    def _replies(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if asked.is_set() and self._to_swallow:
                    self._to_swallow -= 1
                    self.swallowed += 1
                    break
                time.sleep(self.delay_s)
                self._speaks.wait()
                client.sendall(data)
        _shut(client)
        _shut(server)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 6379


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
