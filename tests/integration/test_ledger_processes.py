"""The ledger under eight processes at once: nothing is lost, nothing happens twice, and nobody hears of locks."""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing.connection import Connection as Pipe
from typing import Any

import pytest
from sqlalchemy import Connection, select, update

from orchestrator.errors import LedgerUnavailable
from orchestrator.ledger import (
    Accepted,
    AlreadyLanded,
    AlreadyOpen,
    Closed,
    EffectState,
    Landed,
    Ledger,
    Opened,
    open_ledger,
)
from orchestrator.ledger.engine import VERSION, insert_absent
from orchestrator.ledger.tables import REVISION, effects, records
from schemas.states import EffectClass
from tests.support.crowd import Crowd, crowd_of
from tests.support.forks import in_fork
from tests.support.ledgers import Places, accepted, run_named

TOKEN = "step:plan:0:hash"
STEPS = range(25)
ACCOUNT = "9c1f0a52-7d3e-4b88-a6f4-2e5d7c8b9a01"
opened = cache(open_ledger)


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    with crowd_of(8) as crowd:
        yield crowd


@pytest.fixture
def url(ledger_url: str) -> str:
    return ledger_url


def open_all(index: int, url: str) -> list[Any]:
    return [opened(url).effects.open("r", f"s{step}", "do", index + 1, TOKEN, EffectClass.ONCE) for step in STEPS]


def test_a_once_effect_is_opened_by_one(crowd: Crowd, url: str) -> None:
    for answers in zip(*crowd.do(open_all, url), strict=True):
        winner = answers.index(Opened())
        assert Counter(answers) == {Opened(): 1, AlreadyOpen(winner + 1): 7}


def land_or_close(index: int, url: str) -> list[Any]:
    """Half of the processes land with fence 1, the other half close it."""
    rows = opened(url).effects
    if index % 2:
        return [rows.close("r", f"s{step}", "do", 1).state for step in STEPS]
    return [rows.land("r", f"s{step}", "do", 1, TOKEN, f"{index}") for step in STEPS]


def test_landing_and_closing_agree_on_what_happened(crowd: Crowd, ledger: Ledger, url: str) -> None:
    for step in STEPS:
        ledger.effects.open("r", f"s{step}", "do", 1, TOKEN, EffectClass.ONCE)
    answers = crowd.do(land_or_close, url)
    with ledger.begin() as connection:
        done = select(effects).where(effects.c.kind == "do")
        late = {row.step_id: row.late for row in connection.execute(done)}
    for step in STEPS:
        lands, closes = [a[step] for a in answers[::2]], {a[step] for a in answers[1::2]}
        assert len(closes) == 1
        happened = closes == {EffectState.LANDED}
        assert lands.count(Landed()) == (1 if happened else 0)
        assert lands.count(Closed(1)) == (0 if happened else 4)
        assert late[f"s{step}"] is not happened


def add_one(connection: Connection, entity_id: str) -> None:
    """A read-modify-write, the way users write it."""
    row = connection.execute(select(records.c.version).where(records.c.entity_id == entity_id)).one()
    connection.execute(update(records).where(records.c.entity_id == entity_id).values(version=row.version + 1))


def make_account(ledger: Ledger) -> None:
    with ledger.begin() as connection:
        insert_absent(connection, records, {"entity_id": ACCOUNT, "version": 0, "data_text": "{}", "updated_at": 1})


def balance(ledger: Ledger) -> int:
    record = ledger.record(ACCOUNT)
    assert record is not None
    return record.version


def apply_once(index: int, url: str, fence_of: Callable[[int, int], int]) -> list[Any]:
    return [apply_step(opened(url), f"s{step}", fence_of(index, step)) for step in STEPS]


def apply_step(ledger: Ledger, step_id: str, fence: int) -> Any:
    """What a transactional action does: its change and its row, together or not at all."""
    try:
        with ledger.begin() as connection:
            add_one(connection, ACCOUNT)
            answer = ledger.effects.land("r", step_id, "do", fence, TOKEN, f"{fence}", connection)
            if not isinstance(answer, Landed):
                raise NotMine(answer)
            return answer
    except NotMine as refused:
        return refused.answer


class NotMine(Exception):
    def __init__(self, answer: object) -> None:
        self.answer = answer


def same(index: int, step: int) -> int:
    return 1


def rising(index: int, step: int) -> int:
    return index + 1


def falling(index: int, step: int) -> int:
    return 8 - (index + step) % 8


@pytest.mark.parametrize("fence_of", [same, rising, falling])
def test_a_transactional_effect_is_applied_once(
    crowd: Crowd, ledger: Ledger, url: str, fence_of: Callable[[int, int], int]
) -> None:
    make_account(ledger)
    for step, answers in enumerate(zip(*crowd.do(apply_once, url, fence_of), strict=True)):
        first = fence_of(answers.index(Landed()), step)
        assert Counter(answers) == {Landed(): 1, AlreadyLanded(f"{first}"): 7}
    assert balance(ledger) == len(STEPS)


@pytest.mark.full
def test_an_old_fence_cannot_apply_after_its_close(crowd: Crowd, ledger: Ledger, url: str) -> None:
    make_account(ledger)
    for step in STEPS:
        ledger.effects.close("r", f"s{step}", "do", 4)
    for answers in zip(*crowd.do(apply_once, url, rising), strict=True):
        assert list(answers[:4]) == [Closed(4)] * 4
        assert list(answers[4:]).count(Landed()) == 1
    assert balance(ledger) == len(STEPS)
    with ledger.begin() as connection:
        assert not any(row.late for row in connection.execute(select(effects)))


def add_many(index: int, url: str) -> None:
    for _ in STEPS:
        with opened(url).begin() as connection:
            add_one(connection, ACCOUNT)


def test_no_update_is_lost(crowd: Crowd, ledger: Ledger, url: str) -> None:
    make_account(ledger)
    crowd.do(add_many, url)
    assert balance(ledger) == 8 * len(STEPS)


def write_and_read(index: int, url: str) -> int:
    ledger = opened(url)
    for step in STEPS:
        accepted(ledger, f"{index}-{step}")
        ledger.listed(5)
    return len(STEPS)


def test_readers_and_writers_do_not_hinder_each_other(crowd: Crowd, ledger: Ledger, url: str) -> None:
    assert sum(crowd.do(write_and_read, url)) == len(ledger.listed(1_000))


def upgrade(index: int, url: str) -> None:
    open_ledger(url).upgrade()


def test_upgrades_at_once_make_one_ledger(crowd: Crowd, places: Places) -> None:
    url = places.unmade()
    crowd.do(upgrade, url)
    with open_ledger(url).begin() as connection:
        assert connection.execute(select(VERSION)).scalars().all() == [REVISION]


def draw_epoch(index: int, url: str) -> str:
    return opened(url).create_epoch("mandor", 16).epoch


def test_an_epoch_is_drawn_once(crowd: Crowd, url: str) -> None:
    assert len(set(crowd.do(draw_epoch, url))) == 1


def accept(index: int, url: str) -> Any:
    return opened(url).accept(run_named("order-1"))


def test_one_submission_makes_one_run(crowd: Crowd, url: str) -> None:
    answers = crowd.do(accept, url)
    assert all(isinstance(answer, Accepted) for answer in answers)
    assert sorted(answer.created for answer in answers) == [False] * 7 + [True]
    assert len({answer.run for answer in answers}) == 1


def hold(pipe: Pipe, url: str) -> None:
    """Stay in a transaction that has written, until somebody ends this process."""
    ledger = open_ledger(url)
    with ledger.begin() as connection:
        ledger.effects.land("r", "s", "do", 1, TOKEN, "1", connection)
        pipe.send("holding")
        pipe.recv()


@pytest.fixture
def holder(url: str) -> Iterator[int]:
    """The id of a process that holds the write lock."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(theirs, url))
    process.start()
    assert ours.recv() == "holding"
    assert process.pid is not None
    yield process.pid
    process.kill()
    process.join()
    process.close()
    ours.close()
    theirs.close()


def test_a_process_killed_in_its_transaction_leaves_nothing(holder: int, ledger: Ledger) -> None:
    os.kill(holder, signal.SIGKILL)
    assert ledger.effects.open("r", "s", "do", 2, TOKEN, EffectClass.ONCE) == Opened()


def test_a_process_frozen_in_its_transaction_makes_the_ledger_unavailable_and_no_worse(holder: int, url: str) -> None:
    os.kill(holder, signal.SIGSTOP)
    impatient = open_ledger(url, patience_s=0.3)
    with pytest.raises(LedgerUnavailable, match="stayed locked"):
        impatient.effects.close("r", "s", "do", 1)
    assert impatient.listed(1) == []
    os.kill(holder, signal.SIGKILL)
    assert impatient.effects.close("r", "s", "do", 1).state is EffectState.NONE


def test_a_forked_child_works_on_connections_of_its_own(ledger: Ledger) -> None:
    accepted(ledger, "the-parent-before")
    assert in_fork(lambda: accepted(ledger, "the-child").request_id) == "the-child"
    accepted(ledger, "the-parent-after")
    assert len(ledger.listed(9)) == 3


@pytest.mark.parametrize("reopen", [False, True])
def test_a_child_forked_inside_a_transaction_is_refused_or_on_its_own(ledger: Ledger, url: str, reopen: bool) -> None:
    with ledger.begin() as connection:
        ledger.effects.land("r", "s", "do", 1, TOKEN, "1", connection)
        words = in_fork(lambda: str((open_ledger(url) if reopen else ledger).listed(1)))
    if url.startswith("sqlite"):
        assert "LedgerUnavailable" in words
        assert "forked while its parent" in words
    else:
        assert words == "[]"
    assert ledger.effects.look("r", "s", "do", 2, TOKEN) == AlreadyLanded("1")
