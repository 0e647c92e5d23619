"""One installation of real processes, shared by the tests of a module that break nothing."""

from collections.abc import Iterator

import pytest

from tests.support.environment import clean_environment
from tests.support.installation import Installation, lasting_installation
from tests.support.processes import Processes
from tests.support.servers import running_server

SOFT = {"REMAP_SIGTERM": "SIGQUIT"}


@pytest.fixture(scope="module")
def started(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, Processes]]:
    """Control (embedded: also on Celery's own queue), planner and steps, supervisors and beat."""
    home = tmp_path_factory.mktemp("installation")
    with running_server(home / "server", server_kind) as server:
        env = clean_environment(redis_url=server.url, home=home / "home", log_format="json", embedded=1)
        with lasting_installation(server.url, home / "home", embedded=1) as made, Processes(env, home) as processes:
            with processes.together():
                processes.beat()
                processes.worker("supervise", queues="supervise", concurrency=1, env=SOFT)
                processes.worker("control", queues="control", env=SOFT)
                processes.worker("steps", queues="steps,plan", env=SOFT)
            yield made, processes


@pytest.fixture
def ours(started: tuple[Installation, Processes]) -> Iterator[Installation]:
    """The installation, whose settings are also this process's own during the test."""
    with started[0].in_force():
        yield started[0]


@pytest.fixture
def running(started: tuple[Installation, Processes]) -> Processes:
    return started[1]
