"""A real PostgreSQL server for tests: started by the test run itself, never one that is there already."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from orchestrator.ledger import open_ledger
from tests.support.servers import ended_with_us

INSTALL = "apt-get install -y postgresql"
USER, PASSWORD = "mandor", "a-password-nobody-may-see"
TEMPLATE = "upgraded"


@dataclass
class Postgres:
    """A running server on a port of this host. folder: its data, its socket, its log."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    limits: dict[str, str] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)  # empty ledgers that a test has given back

    def url(self, database: str) -> str:
        """A ledger URL, password and all."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template1") -> str:
        """The name of a database of one test alone."""
        name = f"t{uuid.uuid4().hex[:16]}"
        self.execute("CREATE DATABASE {} TEMPLATE {}", name, template)
        return name

    def drop(self, database: str) -> None:
        """Away with it, whoever is still connected."""
        self.execute("DROP DATABASE {} WITH (FORCE)", database)

    def empty(self, database: str, tables: list[str]) -> None:
        """Take every row out of a ledger."""
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + database + "'")
        names = ", ".join("{}" for _ in tables)
        self.execute(f"TRUNCATE {names} CASCADE", *tables, database=database)

    def execute(self, statement: str, *names: str, database: str = "postgres") -> list[Any]:
        """A statement in a transaction of its own; names fill its {}."""
        known: Any = statement
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql.SQL(known).format(*map(sql.Identifier, names)))
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        arguments = [str(binary("postgres")), "-D", str(self.folder / "data"), "-p", str(self.port)]
        options = {"unix_socket_directories": str(self.folder), "listen_addresses": "127.0.0.1", **self.limits}
        given = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*arguments, *given], stdout=log, stderr=log, start_new_session=True, cwd=self.folder, **as_somebody()
            )
        self._await()

    def stop(self, how: int) -> None:
        """End it by a signal, and wait."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(30)

    def _await(self) -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres"), connect_timeout=2):
                return
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)
        raise TimeoutError((self.folder / "log").read_text())


def binary(name: str) -> Path:
    """A program of the newest PostgreSQL that is installed, or a skip that says what to install."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which(name)
    if not versions and on_path is None:
        pytest.skip(f"no PostgreSQL here: {INSTALL}")
    return versions[-1] if versions else Path(str(on_path))


def as_somebody() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as the user that its package made, or as nobody."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    found = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


@contextmanager
def running_postgres(**limits: str) -> Iterator[Postgres]:
    """A server whose data lies in a folder of its own; it ends with this process even if that is killed.

    limits: settings of the server. What is committed need not survive a crash of the machine: no fsync.
    """
    initdb = binary("initdb")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # the path of a socket must be short
    server = Postgres(folder, free_port(), limits={"fsync": "off", "max_connections": "200", **limits})
    try:
        make_data(initdb, folder)
        server.start()
        assert server.process is not None
        with ended_with_us(server.process.pid):
            yield server
            server.stop(2)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_data(initdb: Path, folder: Path) -> None:
    """A cluster that lets nobody in without a password."""
    secret = folder / "password"
    secret.write_text(PASSWORD)
    somebody = as_somebody()
    if somebody:
        for path in (folder, secret):
            os.chown(path, somebody["user"], somebody["group"])
    options = ["-U", USER, "-A", "scram-sha-256", "--pwfile", str(secret), "-E", "UTF8", "--locale=C", "--no-sync"]
    made = subprocess.run(
        [initdb, "-D", folder / "data", *options], check=False, capture_output=True, text=True, cwd=folder, **somebody
    )
    assert made.returncode == 0, made.stderr


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_template(server: Postgres) -> None:
    """A database that holds an empty ledger, of which others are copies."""
    server.execute("CREATE DATABASE {}", TEMPLATE)
    made = open_ledger(server.url(TEMPLATE))
    made.upgrade()
    made.close()
