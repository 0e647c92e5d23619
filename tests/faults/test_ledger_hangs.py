"""The ledger is there, and does not answer: what needs none goes on, and the rest when it speaks again."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from schemas.ids import RunRef, session_key
from tests.support.ledgers import databases
from tests.support.postgres import Postgres
from tests.support.proxy import Proxy
from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually

pytestmark = pytest.mark.full

# of the pass that finds it out, a third is spent on waiting, half a lease without passes brings a rest of one lease
GOES_ON_S = 45


@dataclass(frozen=True)
class Hanging:
    """A system, and how its ledger is made to hang."""

    system: System
    hang: Callable[[], AbstractContextManager[None]]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody has begun to write, and does not end."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


@contextmanager
def on_sqlite(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[str, Callable[..., object]]]:
    path = folder / "ledger.db"
    yield f"sqlite:///{path}", lambda: locked(path)


@contextmanager
def on_postgres(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[str, Callable[..., object]]]:
    server: Postgres = request.getfixturevalue("postgres")
    with databases(server) as made, Proxy(made.made()) as proxy:
        yield proxy.url, proxy.silence


@pytest.fixture(params=[on_sqlite, on_postgres], ids=["locked", "silent"])
def hanging(request: pytest.FixtureRequest, server_kind: str, tmp_path: Path) -> Iterator[Hanging]:
    with (
        request.param(request, tmp_path) as (url, hang),
        running_server(tmp_path / "server", server_kind) as server,
        running_system(server.url, tmp_path, ledger_url=url) as system,
        system.installed.in_force(),
    ):
        system.start_control()
        yield Hanging(system, hang)
        system.installed.ledger.close()


def test_what_needs_no_ledger_is_recovered_while_it_hangs(hanging: Hanging) -> None:
    system = hanging.system
    system.start_steps("first", concurrency=6)
    need_it = [step("test.order", f"k{i}", [], value="x", hold_s=600) for i in range(5)]
    pure = step("test.ponder", "pure", [], value="x", hold_s=600)
    run_id = system.submit(*need_it, pure, step("test.flaky", "flaky", ["pure"], failures=1))
    eventually(lambda: len(system.effects(run_id=run_id, what="began")) == 6, what="six steps begun")
    system.start_steps("second", concurrency=2)

    def standing(name: str) -> tuple[str, int]:
        found = system.installed.store.views.step(RunRef(run_id, session_key(None)), name)
        return (found.status, found.attempt) if found else ("", 0)

    with hanging.hang():
        system.processes.kill("first")
        for name in ("pure", "flaky"):
            eventually(lambda name=name: standing(name) == ("completed", 2), timeout_s=GOES_ON_S, what=name)  # type: ignore[misc]
        assert {standing(f"k{i}") for i in range(5)} == {("running", 1)}
    view = system.wait(run_id, timeout_s=60)
    assert (view.status, {one.attempt for one in view.steps}) == ("succeeded", {2})
