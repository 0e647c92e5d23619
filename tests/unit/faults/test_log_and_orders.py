"""What goes between workers and the kit: the log of effects, and orders."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.local import EmbeddedServer
from orchestrator.local.interrupts import Interrupts
from tests.support.waiting import eventually
from workers.faults import deeds, log, orders, witness
from workers.faults.ground import Ground
from workers.faults.hands import Hands
from workers.faults.log import Log, fingerprint
from workers.faults.orders import Order
from workers.faults.scene import Scene, Wanted
from workers.faults.scenes.all import SCENES
from workers.faults.titles import TITLES


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    os.mkfifo(tmp_path / log.PIPE)
    monkeypatch.setenv(log.FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def listening(place: Path) -> Iterator[Path]:
    """With a witness at work."""
    argv = [sys.executable, "-IS", witness.__file__, str(place / log.PIPE), str(place / log.LOG)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == witness.READY
        yield place
        process.kill()


def test_the_witness_numbers_what_it_hears(listening: Path) -> None:
    read = Log(listening)
    log.tell("began", "run-1", "s", attempt=1, fence=3, key="k", inputs="abc")
    log.tell("acted", "run-2", "s")
    mark = read.mark()
    eventually(lambda: read.has(mark))
    (began,) = read.acts(run_ids=["run-1"])
    assert (began.what, began.attempt, began.fence, began.key, began.pid) == ("began", 1, 3, "k", os.getpid())
    assert began.details == {"inputs": "abc"}
    assert [act.number for act in read.acts()] == [1, 2, 3]
    assert [act.run_id for act in read.acts(what="acted")] == ["run-2"]


def test_many_lines_at_once_stay_whole(listening: Path) -> None:
    program = "from workers.faults import log; [log.tell('acted', 'run', 's', text='x' * 500) for _ in range(300)]"
    tellers = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [teller.wait() for teller in tellers] == [0, 0, 0]
    read = Log(listening)
    eventually(lambda: len(read.acts()) == 900)
    assert {act.details["text"] for act in read.acts()} == {"x" * 500}


def test_without_a_witness_nothing_can_be_told(place: Path) -> None:
    with pytest.raises(OSError, match="No such device"):
        log.tell("acted", "run", "s")


def test_a_line_that_is_still_being_written_is_left_for_later(place: Path) -> None:
    whole = b'{"what": "acted", "run_id": "r", "step_id": "s", "number": 1, "at": 5}\n'
    read = Log(place)
    assert read.acts() == []
    (place / log.LOG).write_bytes(whole + whole[:20])
    assert len(read.acts()) == 1
    (place / log.LOG).write_bytes(whole + whole)
    assert len(read.acts()) == 2


def test_an_order_is_carried_out_once_at_its_place(place: Path) -> None:
    orders.put(place, [Order("a", "run", "s", "acted", "die"), Order("b", "run", "s", "acted", "hold")])
    assert orders.at(place, "began", "run", "s") is None
    assert orders.at(place, "acted", "run", "other") is None
    carried_out = [orders.at(place, "acted", "run", "s") for _ in range(3)]
    assert [one and one.name for one in carried_out] == ["a", "b", None]


def test_orders_that_were_withdrawn_are_none(place: Path) -> None:
    assert orders.at(place, "acted", "run", "s") is None
    orders.put(place, [Order("a", "run", "s", "acted", "die")])
    orders.put(place, [])
    assert orders.at(place, "acted", "run", "s") is None


def test_who_holds_is_let_go_by_name(place: Path) -> None:
    orders.put(place, [])
    orders.let_go(place, "a")
    assert orders.may_go(place, "a")
    assert not orders.may_go(place, "b")


def test_an_order_that_nobody_came_to_is_missed(listening: Path, tmp_path: Path) -> None:
    ground = Ground(listening, EmbeddedServer(tmp_path / "server"), Hands(tmp_path, Interrupts()))
    scene = Scene("S1", 7, runs=[Wanted("run", {})])
    met, unmet = Order("a", "run", "s", "acted", "last"), Order("b", "run", "s", "landed", "last")
    ground.order([met, unmet])
    deeds.pass_by("acted", "run", "s")
    ground.note_missed(scene)
    assert scene.missed == [unmet]


def test_inputs_are_told_apart() -> None:
    from workers.faults.example import Charge

    one = Charge(order="a", cents=1)
    assert fingerprint(one) == fingerprint(Charge(order="a", cents=1)) != fingerprint(Charge(order="b", cents=1))


PROGRAM = """
from uuid import UUID, uuid4
from pydantic import BaseModel, Field
from workers.faults.log import fingerprint

class Inner(BaseModel, frozen=True):
    name: str

class Tags(BaseModel):
    tags: set[str]
    by_name: dict[str, frozenset[Inner]]
    drawn: UUID = Field(default_factory=uuid4)

inner = [{"name": name} for name in "abcdef"]
print(fingerprint(Tags.model_validate({"tags": list("abcdef"), "by_name": {"x": inner}})))
"""


def test_every_process_finds_the_same_inputs() -> None:
    """Sets have another order in each, and defaults may be drawn."""
    printed = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_a_seed_draws_the_same_again_and_another_for_each_scenario() -> None:
    drawn = [Scene(name, seed).draw.random() for name, seed in (("S1", 7), ("S1", 7), ("S2", 7), ("S1", 8))]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


def test_every_scenario_has_a_title() -> None:
    assert set(SCENES) == set(TITLES)
