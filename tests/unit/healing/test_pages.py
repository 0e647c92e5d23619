"""The pages over a real socket, in a process that forks."""

import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from orchestrator.errors import ConfigError, LedgerUnavailable
from orchestrator.healing import serving
from orchestrator.healing.checks import SHOWN, Fault, Memory, State, looked
from orchestrator.healing.forks import Gate
from orchestrator.healing.looker import STALE, Looker
from orchestrator.healing.looks import of_points
from orchestrator.healing.pages import Pages
from orchestrator.healing.watchdog import Watchdog
from tests.support.waiting import eventually

GOOD = State("store", None, 0.0)
BAD = State("ledger", Fault("no answer", "start it"), 1_770_000_000.0)
STUCK = State("loop", Fault("stands still"), 0.0)


def ask(url: str, path: str, method: str = "GET") -> tuple[int, Any]:
    request = urllib.request.Request(f"{url}{path}", method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=5)
    except urllib.error.HTTPError as bad:
        answer = bad
    with answer:
        body = answer.read()
    return answer.status, json.loads(body) if body.startswith(b"{") else body.decode()


def served(live: list[State], ready: list[State]) -> str:
    registry = CollectorRegistry()
    Gauge("here", "x", registry=registry).set(1)
    return serving.serve(Pages("steps", lambda: live, lambda: ready, registry), "127.0.0.1", 0, named=False)


def test_what_fails_is_named_with_its_time_and_mend() -> None:
    live, ready = [State("loop", None, 0.0)], [GOOD, BAD]
    url = served(live, ready)
    assert ask(url, "/livez") == (200, {"status": "ok", "role": "steps"})
    status, said = ask(url, "/readyz")
    assert (status, said["status"]) == (503, "failing")
    assert said["failing"] == [
        {"check": "ledger", "ok": False, "since": "2026-02-02T02:40:00Z", "text": "no answer", "mend": "start it"}
    ]
    assert [one["check"] for one in ask(url, "/health")[1]["checks"]] == ["loop", "store", "ledger"]
    ready[:] = [GOOD]
    assert ask(url, "/readyz")[0] == 200
    live[:] = [STUCK]
    assert [ask(url, path)[0] for path in ("/livez", "/readyz", "/health")] == [503, 200, 503]


def test_what_else_there_is_to_know_is_on_the_page_for_people() -> None:
    about = {"sandbox": "none"}
    pages = Pages("steps", list, list, CollectorRegistry(), about)
    url = serving.serve(pages, "127.0.0.1", 0, named=False)
    about["sandbox"] = "bubblewrap"  # found after the page is served
    assert ask(url, "/health")[1]["about"] == {"sandbox": "bubblewrap"}
    assert "about" not in ask(url, "/readyz")[1]


def test_metrics_and_whatever_else_is_asked_for() -> None:
    url = served([], [])
    assert "here 1.0" in ask(url, "/metrics")[1]
    assert ask(url, "/")[0] == 404
    assert ask(url, "/livez", "POST")[0] == 405
    assert ask(url, "/livez", "HEAD") == (200, "")


def test_a_port_that_is_taken() -> None:
    url = served([], [])
    port = int(url.rpartition(":")[2])
    pages = Pages("steps", list, list, CollectorRegistry())
    other = serving.serve(pages, "127.0.0.1", port, named=False)
    assert other != url
    assert ask(other, "/livez")[0] == ask(url, "/livez")[0] == 200
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        serving.serve(pages, "127.0.0.1", port, named=True)


def test_a_child_holds_neither_the_port_nor_a_connection() -> None:
    url = served([], [])
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))):
        ask(url, "/livez")  # by now the connection before it has been taken
        ours = sockets_at(int(port))
        hear, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(tell, json.dumps(sorted(sockets_at(int(port)))).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        inherited = json.loads(os.read(hear, 65_536))
        os.close(hear)
        os.close(tell)
    assert (len(ours), inherited) == (2, [])


def sockets_at(port: int) -> set[str]:
    """This process's sockets that are bound to the port: who listens there, and the near ends of connections."""
    bound = set()
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if int(words[1].partition(":")[2], 16) == port:
            bound.add(f"socket:[{words[9]}]")
    return bound & set(open_files())


def open_files() -> Iterator[str]:
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            yield str(file.readlink())


def test_who_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving._Handler, "timeout", 0.2)
    url = served([], [])
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as silent:
        assert silent.recv(1) == b""


def test_a_look_that_hangs_fails_its_check() -> None:
    gate = threading.Event()

    def hang() -> None:
        gate.wait(30)

    looker = Looker("hangs", hang, every_s=5, slow_s=0.1)
    assert not looker.state().ok
    looker.start()
    eventually(lambda: "no answer for" in str(looker.state().fault))
    gate.set()
    eventually(lambda: looker.state().ok)
    looker.stop()


def test_what_was_seen_long_ago_says_nothing_of_now() -> None:
    looker = Looker("good", lambda: None, every_s=0.05, slow_s=0.05)
    began = time.time()
    looker.start()
    eventually(lambda: looker.state().ok)
    looker.stop()
    eventually(lambda: "not looked at for" in str(looker.state().fault))
    stale = looker.state()
    assert stale.fault is not None
    assert stale.fault.mend == STALE
    assert began - 1 <= stale.since <= time.time() - 3 * 0.05


def test_a_check_remembers_since_when() -> None:
    now = [100.0]
    memory = Memory(lambda: now[0])
    first, before = memory.note("store", None)
    assert (first.since, before) == (100.0, None)
    now[0] = 200.0
    bad, before = memory.note("store", Fault("away"))
    assert (bad.since, before) == (200.0, first)
    now[0] = 300.0
    still, before = memory.note("store", Fault("away, in other words"))
    assert (still.since, before) == (200.0, None)
    assert memory.note("store", None)[0].since == 300.0


def test_what_a_look_raises_is_its_fault_without_secrets() -> None:
    def away() -> Fault | None:
        raise LedgerUnavailable("redis://:hunter2@host is away", hint="start it")

    def odd() -> Fault | None:
        raise ZeroDivisionError("password=hunter2 \x1b")

    found = looked(away)
    assert found == Fault("redis://:***@host is away", "start it")
    assert looked(odd) == Fault("ZeroDivisionError: password=*** \\x1b")


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_whatever_a_look_raises_is_a_fault() -> None:
    def raising(error: BaseException) -> Callable[[], Fault | None]:
        def look() -> Fault | None:
            raise error

        return look

    assert looked(raising(Wordless())) == Fault("Wordless")
    assert looked(raising(SystemExit(3))) == Fault("SystemExit: 3")
    assert looked(raising(CancelledError("by its loop"))) == Fault("CancelledError: by its loop")


def wordy() -> str:
    """A check of a user's own, who thinks of nobody."""
    return "postgresql://me:hunter2@db is away\x1b[2J\n" + "because " * 10_000


def test_what_a_plugin_says_is_cut_and_shows_neither_secrets_nor_tricks() -> None:
    (name, look), *others = of_points([EntryPoint("vectors", f"{__name__}:wordy", "mandor.health")])
    found = looked(look)
    assert (name, others) == ("vectors", [])
    assert found is not None
    assert found.text.startswith(r"postgresql://me:***@db is away\x1b[2J\nbecause ")
    assert len(found.text) == SHOWN


def test_a_fork_waits_for_those_inside_the_gate_but_not_for_ever() -> None:
    gate = Gate(patience_s=0.3)
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with gate.inside():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(5)
    started = time.monotonic()
    gate._close()
    waited = time.monotonic() - started
    gate._open()
    leave.set()
    thread.join()
    assert waited >= 0.3
    started = time.monotonic()
    gate._close()
    gate._open()
    assert time.monotonic() - started < 0.2


def test_systemd_is_told(tmp_path: Any) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        hears.bind(str(path))
        hears.settimeout(5)
        dog = Watchdog({"NOTIFY_SOCKET": str(path)})
        dog.ready()
        dog.alive()
        assert [hears.recv(100), hears.recv(100)] == [b"READY=1", b"WATCHDOG=1"]
    dog.alive()  # nobody hears it any more, which harms nobody
    Watchdog({}).alive()
