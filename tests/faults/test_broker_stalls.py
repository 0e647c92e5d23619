"""The broker stands still while it is to be told that a message is done with: its worker takes the next one."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.servers import Server, frozen, running_server
from tests.support.system import SWEEP_S, System, running_system
from tests.support.waiting import eventually

UNANSWERED_S = 2.0  # celeryconfig.py's limit for an answer of the broker


@pytest.fixture
def broker(server_kind: str, tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "broker", server_kind) as made:
        yield made


@pytest.fixture
def store(server_kind: str, tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "store", server_kind) as made:
        yield made


@pytest.fixture
def system(store: Server, broker: Server, tmp_path: Path) -> Iterator[System]:
    with (
        running_system(store.url, tmp_path, broker_url=broker.url, store_timeout_s=1) as made,
        made.installed.in_force(),
    ):
        yield made


@pytest.mark.timeout(120)
def test_supervisors_pass_again(system: System, store: Server, broker: Server) -> None:
    """As Celery has it, a worker of one child holds the message for ever that it could not acknowledge, and idles."""
    system.start_control()
    passed_after(system, 0)
    with ExitStack() as stack:
        with frozen(store):  # what is under way ends when the store speaks again, and the broker does not
            time.sleep(2 * SWEEP_S)
            stack.enter_context(frozen(broker))
        time.sleep(2 * UNANSWERED_S)
    passed_after(system, system.installed.store.now_ms())


def passed_after(system: System, at_ms: int) -> None:
    eventually(lambda: system.installed.store.views.last_passes()["leases"] > at_ms, timeout_s=40, what="a pass")
