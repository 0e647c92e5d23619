"""A Redis or Valkey server of our own, for one machine.

One folder holds all of it: `server.conf` (port and password, 0600), `server.lock`, `server.pid`, `server.log` and the
append-only file. The lock is an flock whose descriptor the server inherits, so the kernel itself says whether a server
of this folder lives: it is held from before the server exists until its last process is gone, whatever happens to the
starter, and no recycled process id can fake it. The server writes `server.pid` itself, and the file is removed before
each start while the lock is held; so a pid file under a held lock names that server, and one
under a free lock is stale.

The server runs in its own session, away from the terminal's Ctrl-C, and finds its files relative to its working
directory, so the folder's path may be long and contain spaces.
"""

import contextlib
import fcntl
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from orchestrator.home import SERVER_CONFIG, make_private, server_address
from orchestrator.local.address import HOST, Address, Answer, ask, free_port, is_free
from orchestrator.local.binary import find_server
from orchestrator.local.errors import EmbeddedServerError

TRIES: Final = 5  # a free port may be taken by somebody else between looking and listening
POLL_S: Final = 0.02

# The append-only file is kept in plain commands: what one server wrote, another version can read.
CONFIG_TEXT: Final = """\
bind {host}
port {port}
requirepass {password}
dir .
pidfile server.pid
logfile server.log
daemonize no
appendonly yes
appendfsync everysec
aof-use-rdb-preamble no
save ""
maxmemory-policy noeviction
"""


class EmbeddedServer:
    """The server of one folder. `start` adopts the one that runs there already; `stop` ends it, whoever started it.

    home: a folder for nothing but its files, made if absent. port: a server that is not there yet listens on this one
    or fails; None takes the folder's last port again if it is free, else any. binary: the server program; None looks
    for one. start_s: how long a start may take, reading a large file included. deaf_s: how long a living server may
    keep silent before it is replaced. stop_s: what it has between SIGTERM and SIGKILL.
    Every method may raise EmbeddedServerError.
    """

    def __init__(
        self,
        home: Path,
        *,
        port: int | None = None,
        binary: Path | None = None,
        start_s: float = 60.0,
        deaf_s: float = 10.0,
        stop_s: float = 10.0,
    ) -> None:
        self.home = home.absolute()
        self._wanted_port = port
        self._binary = binary
        self._start_s = start_s
        self._deaf_s = deaf_s
        self._stop_s = stop_s
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """redis://:password@127.0.0.1:port/0 of the server as it was last started."""
        return self._last_address().url

    @property
    def pid(self) -> int | None:
        """Process id of the living server, which is its process group too; None unless it is known and alive."""
        if self._child is not None and self._child.poll() is None:
            return self._child.pid
        return self._recorded_pid() if self.running() else None

    def running(self) -> bool:
        """True while any process of this folder's server, or somebody who is just starting it, is alive."""
        if not self.home.is_dir():
            return False
        with self._lock(fcntl.LOCK_SH) as held:
            return held is None

    def start(self) -> None:
        """Returns when the server answers and has read its file."""
        self._make_home()
        began = time.monotonic()
        while not self._try_start():
            silence_s = time.monotonic() - began
            if silence_s > self._deaf_s and self.pid is not None and ask(self._last_address()) is None:
                self.stop()
            if silence_s > self._start_s:
                raise self._failure(f"no answer within {self._start_s:g} s")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """SIGTERM, upon which the server writes everything out; then, if it must be, SIGKILL. The data stays."""
        pid = self.pid
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if not self._wait_gone(self._stop_s):
            self._kill(pid)
        self._reap()

    def _make_home(self) -> None:
        try:
            make_private(self.home)
            self.home.chmod(0o700)
        except OSError as wrong:
            raise EmbeddedServerError(
                f"cannot use {self.home}: {wrong.strerror}", path="MANDOR_HOME", hint="name a folder of your own"
            ) from wrong

    def _try_start(self) -> bool:
        """Starts a server if none lives here, else adopts it if it answers."""
        with self._lock(fcntl.LOCK_EX) as held:
            if held is not None:
                self._launch(held)
                return True
        return self._answers()

    def _answers(self) -> bool:
        with contextlib.suppress(EmbeddedServerError):
            return ask(self._last_address()) == Answer(self._recorded_pid(), loading=False)
        return False

    def _launch(self, lock: int) -> None:
        self._reap()
        binary = self._binary or find_server()
        for _ in range(TRIES):
            (self.home / "server.pid").unlink(missing_ok=True)
            address = self._choose_address()
            self._write_config(address)
            self._child = self._spawn(binary, lock)
            if self._wait_answer(self._child, address):
                return
        raise self._failure("the server ends as soon as it is started")

    def _spawn(self, binary: Path, lock: int) -> subprocess.Popen[bytes]:
        with (self.home / "server.log").open("ab") as log:
            return subprocess.Popen(
                [binary, SERVER_CONFIG],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                start_new_session=True,
            )

    def _wait_answer(self, child: subprocess.Popen[bytes], address: Address) -> bool:
        """False if the child ended before it answered, for example because its port was taken."""
        deadline = time.monotonic() + self._start_s
        while child.poll() is None:
            if ask(address) == Answer(child.pid, loading=False):
                return True
            if time.monotonic() > deadline:
                raise self._failure(f"the server started, but is not ready after {self._start_s:g} s")
            time.sleep(POLL_S)
        return False

    def _choose_address(self) -> Address:
        """The last address if its port is free. A new port comes with a new password: a client that returns to the
        old port tells the old password to whoever listens there now."""
        with contextlib.suppress(EmbeddedServerError):
            last = self._last_address()
            if self._wanted_port in (None, last.port) and is_free(last.port):
                return last
        if self._wanted_port is not None and not is_free(self._wanted_port):
            raise EmbeddedServerError(f"port {self._wanted_port} is taken", hint="name another, or none")
        return Address(self._wanted_port or free_port(), secrets.token_hex(24))

    def _write_config(self, address: Address) -> None:
        text = CONFIG_TEXT.format(host=HOST, port=address.port, password=address.password)
        draft = self.home / f"{SERVER_CONFIG}.new"
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text)
        draft.replace(self.home / SERVER_CONFIG)

    def _last_address(self) -> Address:
        found = server_address(self.home)
        if found is None:
            raise EmbeddedServerError(f"no server was started in {self.home}", hint="start it first")
        return Address(*found)

    def _recorded_pid(self) -> int | None:
        try:
            return int((self.home / "server.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    @contextlib.contextmanager
    def _lock(self, kind: int) -> Iterator[int | None]:
        """Descriptor of the lock if it can be had now; None if a living server, or a starter, has it."""
        descriptor = os.open(self.home / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            held: int | None = descriptor
        except BlockingIOError:
            held = None
        try:
            yield held
        finally:
            os.close(descriptor)

    def _kill(self, pid: int) -> None:
        """Ends the whole group: a child that rewrites the file holds the lock as well."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if not self._wait_gone(self._stop_s):
            raise self._failure(f"process {pid} outlives SIGKILL")

    def _wait_gone(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.running():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _reap(self) -> None:
        if self._child is not None:
            self._child.wait()
            self._child = None

    def _failure(self, message: str) -> EmbeddedServerError:
        log = self.home / "server.log"
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:] if log.exists() else []
        return EmbeddedServerError("; ".join([message, *last]), hint=f"see {log}")
