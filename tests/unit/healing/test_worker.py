"""What a worker's main process looks after, where its folder or its services are not as they should be."""

import shutil
import socket
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from orchestrator.errors import ConfigError
from orchestrator.healing.checks import Fault, State, looked
from orchestrator.healing.looker import Looker
from orchestrator.healing.progress import Progress
from orchestrator.healing.worker import Watch, Who
from orchestrator.ledger import Accepted
from orchestrator.settings import Settings
from orchestrator.telemetry import counting
from schemas.states import RunStatus
from tests.support.ledgers import fresh_ledger, run_named, url_of
from tests.support.receiver import SECRET
from tests.support.waiting import eventually


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Not begun. There is no service that it could look at."""
    monkeypatch.setenv(counting.FOLDER_VARIABLE, "")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    given = Settings(home=tmp_path / "home", redis_url="redis://127.0.0.1:1/0", steps_port=0, health_every_s=1)
    return Watch(given, Who("steps@here", {"mandor.steps"}))


def test_a_folder_that_cannot_be_counted_in_refuses_the_start(watch: Watch) -> None:
    home = watch.settings.home
    home.mkdir()
    (home / "metrics").write_text("somebody's file")
    with pytest.raises(ConfigError, match="cannot count in") as refused:
        watch.begin()
    assert refused.value.path == "MANDOR_HOME"
    assert "MANDOR_METRICS=false" in str(refused.value.hint)


def test_counters_that_cannot_be_put_together_are_a_fault_that_passes(watch: Watch) -> None:
    folder = watch.settings.home / "metrics" / "steps@here"
    folder.mkdir(parents=True)
    watch.files = counting.Files(folder)
    look = watch._looks()["counters"]
    assert looked(look) is None
    shutil.rmtree(folder)
    found = looked(look)
    assert found is not None
    assert found.text.startswith(f"MANDOR_HOME: cannot count in {folder}")
    assert found.mend
    folder.mkdir()
    assert looked(look) is None


def test_what_is_looked_at_may_grow_while_somebody_asks(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are served by threads of their own, and a worker finds out late what else it has to look at."""
    broker = watch._lookers["broker"]
    state = broker.state()

    def grows() -> State:
        watch._lookers["sandbox"] = broker
        return state

    monkeypatch.setattr(broker, "state", grows)
    assert "broker" in [state.check for state in watch.ready()]


def test_systemd_is_told_whatever_becomes_of_services_and_counters(watch: Watch, tmp_path: Path) -> None:
    watch.files = counting.Files(tmp_path / "gone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        hears.bind(str(tmp_path / "notify"))
        hears.settimeout(10)
        watch._keeper.start()
        assert [hears.recv(100), hears.recv(100)] == [b"WATCHDOG=1", b"WATCHDOG=1"]
        watch._keeper.stop()


def test_a_broker_that_is_away_keeps_nobody_from_being_alive(watch: Watch) -> None:
    watch.progress = Progress(wedged_s=0.1, memory_mib=0)
    watch.progress.connect()
    broker = watch._lookers["broker"]
    broker.start()
    eventually(lambda: "not looked at" not in str(broker.state().fault), what="a look at the broker")
    time.sleep(0.2)
    assert [state.check for state in watch.live() if not state.ok] == []
    broker.stop()
    watch._lookers["broker"] = Looker("broker", lambda: None, 1)
    watch._lookers["broker"].start()
    eventually(
        lambda: [state.check for state in watch.live() if not state.ok] == ["loop"], what="a broker, and no loop"
    )
    watch._lookers["broker"].stop()


def test_who_has_no_secret_is_not_ready_to_post_what_is_owed(tmp_path: Path) -> None:
    ledger = fresh_ledger(tmp_path)
    given = Settings(home=tmp_path, ledger_url=url_of(tmp_path / "ledger.db"), deliver_port=0)

    def look(secrets: str = "") -> Fault | None:
        mine = given.model_copy(update={"webhook_secrets": SecretStr(secrets)})
        return looked(Watch(mine, Who("deliver@here", {"mandor.deliver"}))._looks()["secrets"])

    assert look() is None  # nobody has named a callback
    accepted = ledger.accept(run_named("r", callback="https://example.com/"))
    assert isinstance(accepted, Accepted)
    ledger.end_run(accepted.run.run_id, 1, RunStatus.SUCCEEDED, None, 9, 100)
    found = look()
    assert found is not None
    assert "MANDOR_WEBHOOK_SECRETS" in found.text
    assert "MANDOR_WEBHOOK_SECRETS" in str(found.mend)
    assert look(SECRET) is None
    assert "secrets" not in Watch(given, Who("steps@here", {"mandor.steps"}))._looks()
    ledger.close()
