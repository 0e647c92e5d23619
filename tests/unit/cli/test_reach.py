import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.cli import reach
from orchestrator.cli.reach import check_reach, knock
from orchestrator.errors import BrokerUnavailable, ConfigError, StoreUnavailable
from orchestrator.settings import Settings


@contextmanager
def answering(server: socket.socket, word: bytes = b"-NOAUTH Authentication required.\r\n") -> Iterator[None]:
    """Whoever connects is told this word, once something was asked, and that is all."""

    def answer() -> None:
        with suppress(OSError):
            while True:
                line, _ = server.accept()
                with line:
                    line.recv(99)
                    line.sendall(word)

    threading.Thread(target=answer, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server, answering(server):
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_somebody_listens(listening: int) -> None:
    check_reach(Settings(redis_url=f"redis://:pw@127.0.0.1:{listening}/0"))


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        with answering(server):
            assert knock(f"unix://{path}?db=0", "X") is None
    path.unlink()
    assert "No such file" in str(knock(f"unix://{path}", "X"))


def test_nobody_listens_and_the_password_is_not_told(closed: int) -> None:
    with pytest.raises(BrokerUnavailable) as caught:
        check_reach(Settings(redis_url=f"redis://:hunter2@127.0.0.1:{closed}/0"))
    assert f"127.0.0.1:{closed} cannot be reached" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_one_that_takes_connections_and_says_nothing_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen server: its kernel answers for it."""
    monkeypatch.setattr(reach, "WAIT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert knock(f"redis://127.0.0.1:{port}/0", "X") == f"127.0.0.1:{port} cannot be reached: no answer"
        assert knock(f"amqp://127.0.0.1:{port}//", "X") is None  # there nobody speaks before who has come
        with answering(server, b""):
            assert "closes the connection" in str(knock(f"redis://127.0.0.1:{port}/0", "X"))


def test_the_result_store_is_looked_for_too(listening: int, closed: int) -> None:
    given = Settings(redis_url=f"redis://127.0.0.1:{listening}/0", result_url=f"redis://127.0.0.1:{closed}/0")
    with pytest.raises(StoreUnavailable, match="result store"):
        check_reach(given)


@pytest.mark.parametrize("url", ["redis:host", "host:6379", "redis://host:port/0", "redis://[::1", "amqp://"])
def test_a_url_that_names_no_host_is_refused_with_its_setting(url: str) -> None:
    with pytest.raises(ConfigError, match="MANDOR_X"):
        knock(url, "MANDOR_X")
