"""What a worker's main process looks after, where its folder or its services are not as they should be."""

import shutil
import socket
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.healing.checks import looked
from orchestrator.healing.worker import Watch, Who
from orchestrator.settings import Settings
from orchestrator.telemetry import counting


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


def test_systemd_is_told_whatever_becomes_of_services_and_counters(watch: Watch, tmp_path: Path) -> None:
    watch.files = counting.Files(tmp_path / "gone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        hears.bind(str(tmp_path / "notify"))
        hears.settimeout(10)
        watch._keeper.start()
        assert [hears.recv(100), hears.recv(100)] == [b"WATCHDOG=1", b"WATCHDOG=1"]
        watch._keeper.stop()
