"""Harm that cannot be done, messages that are cut, and names that no other call has."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from orchestrator.local import EmbeddedServer
from orchestrator.local.interrupts import Interrupts
from orchestrator.store.replies import Dispatch
from schemas.callback import delivery_id
from schemas.ids import RunRef
from tests.support.waiting import eventually
from workers.faults import inside, log, orders, witness
from workers.faults.driven import Driven
from workers.faults.facts import OtherSteps, gather
from workers.faults.floor import Floor
from workers.faults.ground import Ground, TooLate
from workers.faults.hands import Hands
from workers.faults.kit import AuditFailed, Options, asked
from workers.faults.log import Act, Log
from workers.faults.orders import Order
from workers.faults.receiver import receiving
from workers.faults.scene import Scene, Wanted

RUN = "0f0e0d0c-0b0a-8908-8706-050403020100"


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a witness at work."""
    os.mkfifo(tmp_path / log.PIPE)
    monkeypatch.setenv(log.FOLDER, str(tmp_path))
    argv = [sys.executable, "-IS", witness.__file__, str(tmp_path / log.PIPE), str(tmp_path / log.LOG)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == witness.READY
        yield tmp_path
        process.kill()


class Held(Ground):
    """Where one process holds, of which nothing is left."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, EmbeddedServer(folder / "server"), Hands(folder, Interrupts()))
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        details = {"place": "acted", "deed": "hold", "order": "a"}
        self.act = Act("ordered", "run", "send", 1, 1, pid=gone.pid, details=details)

    def ordered(self, scene: Scene) -> list[Act]:
        return [self.act]


@pytest.fixture
def held(tmp_path: Path) -> Held:
    orders.put(tmp_path, [])
    return Held(tmp_path)


def test_who_has_ended_by_itself_is_not_killed_and_that_is_told(held: Held) -> None:
    scene = Scene("S1", 7)
    held.kill_holding(scene)
    assert scene.faults == []
    assert scene.wrong == ["send of run had ended at acted before it could be killed"]
    assert held.holding(scene) == []


def test_nor_frozen_nor_woken(held: Held) -> None:
    scene = Scene("S12", 7)
    assert held.freeze_holding(scene) == []
    assert len(scene.wrong) == 1
    held.thaw([held.act])


def test_where_nothing_holds_no_worker_is_the_fullest(held: Held) -> None:
    with pytest.raises(TooLate, match="no step is held"):
        held.fullest(Scene("S3", 7))


def announced(call: str) -> list[Wanted]:
    floor = SimpleNamespace(settings=SimpleNamespace(lease_s=3.0), driven=Driven())
    return Floor.announce(cast("Floor", floor), Scene("S1", 7, call), 2)


def test_the_same_seed_has_other_runs_in_another_call() -> None:
    names = {run.fields["request_id"] for call in ("aa", "bb") for run in announced(call)}
    assert names == {"7-s1-0-aa", "7-s1-1-aa", "7-s1-0-bb", "7-s1-1-bb"}
    assert len({run.run_id for call in ("aa", "bb") for run in announced(call)}) == 4


def test_every_call_has_a_name_of_its_own() -> None:
    assert Options(("S1",), 7).call != Options(("S1",), 7).call


@pytest.mark.parametrize("answer", [None, "all is wrong", 3])
def test_an_audit_that_answers_no_texts_is_told(answer: Any) -> None:
    with pytest.raises(AuditFailed, match="texts are wanted"):
        asked(lambda _: answer, ["run"])


def test_what_an_audit_answers_are_texts() -> None:
    assert asked(lambda ids: (f"{one} is wrong" for one in ids), ["run"]) == ("run is wrong",)


def test_a_run_with_other_steps_than_the_rehearsal_is_named() -> None:
    step = SimpleNamespace(id="note-2")
    view = SimpleNamespace(run_id=RUN, steps=[step], status="succeeded", reason=None, version=1, ended_at=1)
    row = SimpleNamespace(policy_hash="p")
    lookup = SimpleNamespace(find=lambda _: row, run=lambda _: view, ref=lambda _: None, state=lambda _: None)
    history = SimpleNamespace(events=lambda _: [SimpleNamespace(version=1)])
    floor = SimpleNamespace(
        until_told=lambda: None,
        until=lambda look, *_: look(),
        lookup=lookup,
        ledger=SimpleNamespace(history=history, letters=lambda *_, **__: []),
        store=SimpleNamespace(views=SimpleNamespace(results=lambda _: {})),
        steps=[SimpleNamespace(id="note-1")],
    )
    scene = Scene("S9", 7, runs=[Wanted(RUN, {})])
    with pytest.raises(OtherSteps, match="has a step note-2, the rehearsal had note-1"):
        gather(cast("Floor", floor), scene)


# ---- messages


def wave(*step_ids: str) -> tuple[Dispatch, ...]:
    return tuple(Dispatch("step", RunRef(RUN, "-"), 1, step_id, index) for index, step_id in enumerate(step_ids))


def sent_in_parts(messages: tuple[Dispatch, ...]) -> list[list[str | None]]:
    parts: list[list[str | None]] = []
    inside._in_parts(messages, lambda part: parts.append([one.step_id for one in part]))
    return parts


def test_a_wave_is_cut_before_the_message_that_an_order_names(listening: Path) -> None:
    orders.put(listening, [Order("cut", RUN, "step:b", "midway", "last")])
    assert sent_in_parts(wave("a", "b", "c")) == [["a"], ["b", "c"]]
    assert sent_in_parts(wave("a", "b", "c")) == [["a", "b", "c"]]  # an order is carried out once


@pytest.mark.parametrize("others", [("a",), ("b", "c")])
def test_a_message_that_none_is_before_cuts_nothing(listening: Path, others: Sequence[str]) -> None:
    orders.put(listening, [Order("cut", RUN, "step:b", "midway", "last")])
    assert sent_in_parts(wave(*others)) == [list(others)]


def test_of_a_callback_its_id_tells_the_run() -> None:
    assert inside.told_of(delivery_id(RUN, 1)) == RUN


def test_what_is_called_is_told_to_the_witness(listening: Path) -> None:
    body = json.dumps({"data": {"run_id": RUN, "generation": 2}}).encode()
    with receiving(listening) as url:
        request = urllib.request.Request(url, body, {"webhook-id": "msg_1"})
        assert urllib.request.urlopen(request, timeout=10).status == 204
    read = Log(listening)
    eventually(lambda: read.acts(run_ids=[RUN], what="called"))
    (act,) = read.acts(run_ids=[RUN])
    assert act.details == {"id": "msg_1", "generation": 2}


def test_of_a_submission_the_run_that_it_will_be_is_told() -> None:
    (run, _) = announced(uuid4().hex[:8])
    assert inside._run_of(run.fields) == run.run_id
    assert inside._run_of({"run_id": RUN}) == RUN
