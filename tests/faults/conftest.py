"""Running systems. Starting one takes seconds, so tests share it where they can; step workers are each test's own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Server, running_server
from tests.support.system import System, running_system


@pytest.fixture(scope="module")
def shared_system(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Every role but step workers, started once for a module: one that idles takes a quarter of a core."""
    folder = tmp_path_factory.mktemp("system")
    with running_server(folder / "server", server_kind) as server, running_system(server.url, folder) as made:
        made.start_control()
        yield made


@pytest.fixture
def system(shared_system: System) -> Iterator[System]:
    """The shared system, without step workers. Whatever a test starts of them is killed at its end."""
    shared_system.processes.forget_lines()
    with shared_system.installed.in_force():
        yield shared_system
        shared_system.end_steps()


@pytest.fixture
def new_system(new_server: Callable[[], Server], tmp_path: Path) -> Iterator[Callable[..., System]]:
    """Makes systems with settings of the test's own, each on a server of its own. Nothing runs in them yet."""
    with ExitStack() as stack:

        def make(**settings: Any) -> System:
            folder = tmp_path / f"system-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            system = stack.enter_context(running_system(new_server().url, folder, **settings))
            stack.enter_context(system.installed.in_force())
            return system

        yield make
