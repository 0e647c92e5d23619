"""The demo as a newcomer starts it, and as one who loses patience ends it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.throwaway import ThrowAway
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(240)


class Demo(ThrowAway):
    """A demo that was started."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__(folder)
        self.out = folder / "out"
        self.start("examples.orders.demo", "--out", str(self.out), *arguments)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    started = Demo(tmp_path)
    try:
        yield started
    finally:
        started.process.terminate()
        started.process.wait(60)


def test_every_order_is_fulfilled_once_though_a_worker_is_killed(demo: Demo) -> None:
    assert demo.process.wait(200) == 0, demo.screen
    screen = demo.screen
    for expected in (
        "orders fulfilled        50 of 50",
        "charged in total        11,242.50 of 11,242.50",
        "parcels booked          135 of 135",
        "effects applied twice   0",
        "runs stuck              0",
        "SIGKILL",
    ):
        assert expected in screen
    assert "warning" not in screen.lower()
    assert "\x1b" not in screen
    assert len(list(demo.out.glob("order-*.txt"))) == 50
    assert demo.left() == {}
    assert list(demo.homes.iterdir()) == []


@pytest.mark.parametrize("moment", ["starting", "all ready", "killed"])
def test_ctrl_c_leaves_nothing_behind(demo: Demo, moment: str) -> None:
    eventually(lambda: moment in demo.screen, timeout_s=120, what=moment)
    demo.process.send_signal(signal.SIGINT)
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(60) == 130
    assert "Traceback" not in demo.screen
    assert demo.screen.endswith("interrupted; everything is stopped\n")
    eventually(lambda: demo.left() == {}, timeout_s=10)
    assert list(demo.homes.iterdir()) == []


def test_a_folder_with_other_things_is_not_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "out" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("all my work")
    demo = Demo(tmp_path)
    assert demo.process.wait(60) == 2
    assert precious.read_text() == "all my work"
    assert "--out" in demo.screen
