"""Options and fixtures that every part of the suite shares."""

import os
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.ledger import Ledger, open_ledger
from tests.support.environment import clean_environment, is_foreign
from tests.support.ledgers import DATABASES, Files, Places, databases
from tests.support.postgres import Postgres, make_template, running_postgres
from tests.support.processes import Processes
from tests.support.servers import KINDS, Server, immortal_keys, keys_of, running_server


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our own options; ./dev test and .ci/run pass them through."""
    parser.addoption("--full", action="store_true", help="run what takes long too; a skipped test is a failure")
    parser.addoption("--real-model", action="store_true", help="also run what asks a real small model; takes minutes")
    parser.addoption("--server", choices=KINDS, default=KINDS[0], help="kind of server that the tests start")
    parser.addoption("--meeting-it", action="store_true", help="run only what meets a server of that kind")


def pytest_configure(config: pytest.Config) -> None:
    """Settings of the caller's shell must not reach a test, nor a server that they name; nor a deaf ear for Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background; children would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in filter(is_foreign, list(os.environ)):
        del os.environ[name]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long is left out, unless it is asked for; and all that meets no server, if that is asked for."""
    unwanted = [marker for marker in ("full", "real_model") if not config.getoption(f"--{marker.replace('_', '-')}")]
    left_out = [item for item in items if any(item.get_closest_marker(marker) for marker in unwanted)]
    if config.getoption("--meeting-it"):
        left_out += [item for item in items if "server_kind" not in getattr(item, "fixturenames", ())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With --full, what did not run was not shown to work."""
    report = yield
    expected = hasattr(report, "wasxfail") or _may_skip(item)
    if report.skipped and item.config.getoption("--full") and not expected:
        report.outcome = "failed"
        report.longrepr = f"skipped, which --full does not allow: {report.longrepr}"
    return report


def _may_skip(item: pytest.Item) -> bool:
    """Whatever the reason, or where what the marker is given holds."""
    marker = item.get_closest_marker("may_skip")
    return marker is not None and all(marker.args)


@pytest.fixture(scope="session")
def server_kind(pytestconfig: pytest.Config) -> str:
    """valkey or redis, as --server says."""
    return str(pytestconfig.getoption("--server"))


@pytest.fixture(scope="session")
def redis_server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that the tests of this test process share. Keep to your `namespace`; never flush it."""
    with running_server(tmp_path_factory.mktemp("server"), server_kind) as server:
        yield server


@pytest.fixture
def new_server(server_kind: str, tmp_path: Path) -> Iterator[Callable[[], Server]]:
    """Makes servers for one test alone, to be flushed, filled, frozen or killed as it likes."""
    with ExitStack() as stack:

        def make() -> Server:
            return stack.enter_context(running_server(tmp_path / f"server-{uuid.uuid4().hex[:8]}", server_kind))

        yield make


@pytest.fixture
def namespace(redis_server: Server) -> Iterator[str]:
    """Of this test alone. Afterwards no key of it may live for ever, unless the store declares it permanent."""
    name = f"t{uuid.uuid4().hex[:12]}"
    yield name
    immortal = immortal_keys(redis_server.client, name)
    left = keys_of(redis_server.client, name)
    if left:
        redis_server.client.unlink(*left)
    assert not immortal, f"keys that would live for ever: {immortal}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL server that the tests of this test process share. Keep to databases of your own."""
    with running_postgres() as server:
        make_template(server)
        yield server


@pytest.fixture(params=DATABASES)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    """Where ledgers of this test may lie; a test that asks is run once on each kind of database."""
    if request.param == "sqlite":
        yield Files(tmp_path)
        return
    with databases(request.getfixturevalue("postgres")) as made:
        yield made


@pytest.fixture
def ledger_url(places: Places) -> str:
    """A new, empty ledger of this test alone, on each kind of database."""
    return places.made()


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """The same, open."""
    made = open_ledger(ledger_url)
    yield made
    made.close()


@pytest.fixture
def processes(new_server: Callable[[], Server], tmp_path: Path) -> Iterator[Processes]:
    """Starts Celery processes on a server of their own, with a home of their own."""
    env = clean_environment(redis_url=new_server().url, home=tmp_path / "home", log_format="json")
    with Processes(env, tmp_path) as started:
        yield started
