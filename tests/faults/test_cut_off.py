"""A worker that reaches neither store nor ledger, but the world: what it did there is heard of in the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledgers import databases
from tests.support.postgres import Postgres
from tests.support.proxy import Proxy
from tests.support.servers import running_server
from tests.support.system import System, running_system, step
from tests.support.waiting import eventually

pytestmark = pytest.mark.full

ONE_TRY = {"limits": {"attempts": 1}}
AWAKE_S = 10.0  # what is told to stop may go on for so long


class Cut:
    """The ways of one worker to its servers."""

    def __init__(self, store: Proxy, ledger: Proxy) -> None:
        self._proxies = (store, ledger)
        self.env = {"MANDOR_REDIS_URL": store.url, "MANDOR_LEDGER_URL": ledger.url}

    def off(self) -> None:
        for proxy in self._proxies:
            proxy.refuse = True
            proxy.close_all()

    def mended(self) -> None:
        for proxy in self._proxies:
            proxy.refuse = False


@pytest.fixture
def ways(postgres: Postgres, server_kind: str, tmp_path: Path) -> Iterator[tuple[System, Cut]]:
    """A system whose ledger can be cut off from one worker alone."""
    with databases(postgres) as made, running_server(tmp_path / "server", server_kind) as server:
        ledger_url = made.made()
        with (
            running_system(server.url, tmp_path, ledger_url=ledger_url, stop_grace_s=AWAKE_S) as system,
            system.installed.in_force(),
            Proxy(server.url) as store,
            Proxy(ledger_url) as ledger,
        ):
            system.start_control()
            yield system, Cut(store, ledger)
            system.end_steps()
        system.installed.ledger.close()


@pytest.mark.parametrize("action", ["test.order", "test.note"])
def test_what_it_did_when_all_was_over_is_undone_once_more(
    ways: tuple[System, Cut], action: str, tmp_path: Path
) -> None:
    system, cut = ways
    gate = tmp_path / "gate"
    system.start_steps("first", concurrency=1, env=cut.env)
    run_id = system.submit(step(action, "s", value="x", gate=str(gate), deaf=True), policy=ONE_TRY)
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    system.start_steps("second", concurrency=1)
    cut.off()
    view = system.wait(run_id)
    assert (view.status, system.effects(run_id=run_id, what="noted")) == ("compensated", [])
    gate.touch()
    system.processes.wait_for_line("effect.untold", name="first")
    cut.mended()
    eventually(lambda: system.effects(run_id=run_id, what="undone"), what="the late effect undone")
    assert len(system.effects(run_id=run_id, what="noted")) == 1
    after = system.view(run_id)
    assert (after.status, after.version) == (view.status, view.version)
    told = [letter.reason for letter in after.dead_letters if letter.reason == "late_effect"]
    assert told == ([] if action == "test.note" else ["late_effect"])
