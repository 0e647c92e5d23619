"""The demo as a newcomer starts it, and as one who loses patience ends it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.policy import Rung
from tests.support.sandboxes import ladder
from tests.support.throwaway import ThrowAway
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(240)


class Demo(ThrowAway):
    """A demo that was started."""

    def __init__(self, folder: Path, *before: str) -> None:
        """before: what starts it, where that is not Python itself."""
        super().__init__(folder)
        self.out = folder / "out"
        self.start(*before, "examples.orders.demo", "--out", str(self.out))


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
    if (rung := ladder().choose(Rung.NAMESPACES)) is not None:
        assert f"50 of 50, checksums agree, rung {rung}" in screen
        assert (demo.out / "invoices.html").read_text().count("INVOICE order-") == 50
        assert len((demo.out / "SHA256SUMS").read_text().splitlines()) == 50
    assert demo.left() == {}
    assert list(demo.homes.iterdir()) == []


@pytest.mark.full
def test_where_no_sandbox_works_nothing_is_printed_and_all_else_is_done(tmp_path: Path) -> None:
    demo = Demo(tmp_path, "tests.support.rungless", "landlock")
    try:
        assert demo.process.wait(200) == 0, demo.screen
    finally:
        demo.end()
    screen = " ".join(demo.screen.split())
    assert "orders fulfilled 50 of 50 ok" in screen
    assert "invoices printed left out, no rung of the sandbox is to be had" in screen
    assert "landlock" in screen
    for rung in Rung:
        assert f"{rung}: " in screen
    assert {one.suffix for one in demo.out.iterdir()} == {".txt"}


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
