"""Effect rows against their reference model, then the sentences a reader would look for."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import count, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select

from orchestrator.errors import EffectRefused
from orchestrator.ledger import (
    AlreadyLanded,
    AlreadyOpen,
    Closed,
    EffectRows,
    EffectState,
    Fresh,
    Kind,
    Landed,
    Late,
    Ledger,
    Opened,
    RowClosed,
    fact,
    open_ledger,
)
from orchestrator.ledger.tables import effects
from schemas.states import EffectClass, Fact
from tests.support.ledgers import NAMESPACE, fresh_ledger
from tests.unit.ledger.effect_model import OPS, ModelRow, Op, apply, reachable

FENCES = range(1, 4)
TOKEN = "step:plan:0:hash"
WORDS = {Opened: "ok", Landed: "ok", AlreadyOpen: "open", AlreadyLanded: "landed", Closed: "closed"}
numbers = count()


@pytest.fixture
def connection(ledger: Ledger) -> Iterator[Connection]:
    with ledger.begin() as connection:
        yield connection


def rows_on(connection: Connection) -> EffectRows:
    """Effect rows whose every transaction is the one that is open: quick, and nothing is kept."""
    return EffectRows(lambda: nullcontext(connection), lambda: nullcontext(connection), lambda: 7)


def do(rows: EffectRows, connection: Connection, step_id: str, op: Op, fence: int, effect_class: EffectClass) -> str:
    """An operation on the real row, answered in the model's words."""
    if op == "open":
        return WORDS[type(rows.open("r", step_id, "do", fence, TOKEN, effect_class))]
    if op in ("land", "land_inside"):
        inside = connection if op == "land_inside" else None
        return WORDS[type(rows.land("r", step_id, "do", fence, TOKEN, f"{fence}", inside))]
    if op in ("keep", "anew"):
        rows.set_aside("r", [step_id], [step_id] if op == "anew" else [], fence)
        return "done"
    return str(rows.close("r", step_id, "do", fence, void=op == "void").state)


def write(connection: Connection, step_id: str, row: ModelRow) -> None:
    values: dict[str, Any] = {"run_id": "r", "step_id": step_id, "kind": "do", "state": row.state, "since": row.since}
    values |= {"closed_to": row.closed, "landed_by": row.landed_by, "late": row.late, "token": TOKEN, "updated_at": 1}
    result = str(row.landed_by) if row.state == "landed" else None
    connection.execute(insert(effects).values(**values, result_text=result))


def read(connection: Connection, step_id: str) -> ModelRow:
    mine = (effects.c.step_id == step_id, effects.c.kind == "do")
    row = connection.execute(select(effects).where(*mine)).one()
    assert row.result_text == (str(row.landed_by) if row.state == "landed" else None)
    return ModelRow(row.state, row.since, row.closed_to, row.landed_by, row.late)


@pytest.mark.parametrize("places", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], indirect=True)
@pytest.mark.parametrize("effect_class", EffectClass)
def test_every_reachable_row_answers_every_operation_as_the_model(
    connection: Connection, effect_class: EffectClass
) -> None:
    rows = rows_on(connection)
    for before, op, fence in product(reachable(effect_class, FENCES), OPS, FENCES):
        step_id = f"s{next(numbers)}"
        write(connection, step_id, before)
        after, answer = apply(before, op, fence, effect_class)
        assert do(rows, connection, step_id, op, fence, effect_class) == answer, (before, op, fence)
        assert read(connection, step_id) == after, (before, op, fence)


@pytest.mark.parametrize("effect_class", EffectClass)
def test_sequences_from_nothing_agree_with_the_model_at_every_step(
    connection: Connection, effect_class: EffectClass
) -> None:
    rows = rows_on(connection)
    for sequence in product(product(OPS, FENCES), repeat=2):
        step_id, row = f"s{next(numbers)}", ModelRow()
        for op, fence in sequence:
            row, answer = apply(row, op, fence, effect_class)
            assert do(rows, connection, step_id, op, fence, effect_class) == answer, sequence
        assert read(connection, step_id) == row, sequence


@pytest.mark.parametrize("effect_class", EffectClass)
def test_look_foretells_what_a_transactional_landing_meets(connection: Connection, effect_class: EffectClass) -> None:
    rows = rows_on(connection)
    for before, fence in product(reachable(effect_class, FENCES), FENCES):
        step_id = f"s{next(numbers)}"
        write(connection, step_id, before)
        seen = rows.look("r", step_id, "do", fence, TOKEN)
        met = rows.land("r", step_id, "do", fence, TOKEN, "9", connection)
        assert seen == met or (isinstance(seen, Fresh) and isinstance(met, Landed))


def test_look_at_nothing_is_fresh(ledger: Ledger) -> None:
    assert ledger.effects.look("r", "s", "do", 1, TOKEN) == Fresh()


def test_the_first_result_stays(ledger: Ledger) -> None:
    assert ledger.effects.land("r", "s", "do", 1, TOKEN, '"first"') == Landed()
    assert ledger.effects.land("r", "s", "do", 2, TOKEN, '"second"') == AlreadyLanded('"first"')
    assert ledger.effects.open("r", "s", "do", 2, TOKEN, EffectClass.KEYED) == AlreadyLanded('"first"')
    assert ledger.effects.close("r", "s", "do", 2) == RowClosed(EffectState.LANDED, '"first"')


def test_a_refused_landing_is_remembered_as_late(ledger: Ledger) -> None:
    ledger.effects.open("r", "s", "do", 1, TOKEN, EffectClass.ONCE)
    assert ledger.effects.close("r", "s", "do", 1) == RowClosed(EffectState.OPEN, None)
    assert ledger.effects.land("r", "s", "do", 1, TOKEN, "1") == Closed(1)
    with ledger.begin() as connection:
        assert read(connection, "s") == ModelRow("open", since=1, closed=1, late=True)


def test_a_landing_repeated_after_its_close_is_not_late(ledger: Ledger) -> None:
    ledger.effects.land("r", "s", "do", 1, TOKEN, "1")
    ledger.effects.close("r", "s", "do", 1)
    assert ledger.effects.land("r", "s", "do", 1, TOKEN, "1") == AlreadyLanded("1")
    assert owed(ledger) == []
    with ledger.begin() as connection:
        assert not read(connection, "s").late


def come_late(ledger: Ledger, fence: int = 1, kind: Any = "do") -> None:
    """A landing after its close."""
    ledger.effects.close("r", "s", kind, fence)
    assert isinstance(ledger.effects.land("r", "s", kind, fence, TOKEN, "1"), Closed)


def owed(ledger: Ledger, ago_ms: int = 0) -> list[tuple[str, int, bool]]:
    """Step, fence, begun of late effects that nobody has touched for so long."""
    found = ledger.late.owed(ledger.now_ms() - ago_ms, 10, NAMESPACE)
    return [(late.step_id, late.fence, late.begun) for late in found]


def test_what_came_late_is_owed_until_it_is_undone(ledger: Ledger) -> None:
    come_late(ledger)
    assert (owed(ledger), owed(ledger, 60_000)) == ([("s", 1, False)], [])
    ledger.effects.open("r", "s", "late", 2, TOKEN, EffectClass.ONCE)
    assert owed(ledger) == [("s", 2, True)]
    ledger.effects.land("r", "s", "late", 2, TOKEN, "null")
    assert owed(ledger) == []


def test_what_came_late_is_owed_until_it_is_given_up(ledger: Ledger) -> None:
    come_late(ledger)
    assert ledger.late.end(late_of(ledger))
    assert owed(ledger) == []


@pytest.mark.parametrize("end", ["landed", "closed"])
def test_another_late_effect_is_owed_again(ledger: Ledger, end: str) -> None:
    come_late(ledger, 1)
    if end == "landed":
        ledger.effects.land("r", "s", "late", 2, TOKEN, "null")
    else:
        ledger.effects.close("r", "s", "late", 2)
    come_late(ledger, 2)
    assert owed(ledger) == [("s", 3, False)]
    assert ledger.effects.open("r", "s", "late", 2, TOKEN, EffectClass.ONCE) == Closed(2)
    assert ledger.effects.open("r", "s", "late", 3, TOKEN, EffectClass.ONCE) == Opened()


@pytest.mark.parametrize("end", ["landed", "failed", "given up", "given up, then failed"])
def test_what_comes_late_while_another_is_undone_is_owed_when_that_is_over(ledger: Ledger, end: str) -> None:
    come_late(ledger, 1)
    ledger.effects.open("r", "s", "late", 2, TOKEN, EffectClass.ONCE)
    come_late(ledger, 2)
    assert owed(ledger) == [("s", 2, True)]
    if end == "landed":
        assert ledger.effects.land("r", "s", "late", 2, TOKEN, "null") == Landed()
    if end.startswith("given up"):
        assert ledger.late.end(late_of(ledger))
    if end.endswith("failed"):
        ledger.effects.close("r", "s", "late", 2)
    assert owed(ledger) == [("s", 3, False)]


def test_a_round_that_is_over_ends_no_other(ledger: Ledger) -> None:
    """Its worker was slow and was given up, its supervisor has looked long ago."""
    come_late(ledger, 1)
    unbegun = late_of(ledger)
    ledger.effects.open("r", "s", "late", 2, TOKEN, EffectClass.ONCE)
    assert not ledger.late.end(unbegun)
    begun = late_of(ledger)
    assert ledger.late.end(begun)
    come_late(ledger, 2)
    assert ledger.effects.land("r", "s", "late", 2, TOKEN, "null") == Closed(2)
    ledger.effects.close("r", "s", "late", 2)
    assert not ledger.late.end(begun)
    assert owed(ledger) == [("s", 3, False)]


def late_of(ledger: Ledger) -> Late:
    found = ledger.late.of("r", "s")
    assert found is not None
    return found


# ---- an attempt that leaves without a landing


@pytest.mark.parametrize("effect_class", ["idempotent", "keyed", "once"])
def test_an_attempt_that_leaves_what_others_have_judged_is_late(ledger: Ledger, effect_class: str) -> None:
    if effect_class != "idempotent":
        opened(ledger, 1)
    ledger.effects.close("r", "s", "do", 1)
    assert ledger.effects.leave("r", "s", "do", 1).late
    assert (owed(ledger), late_of(ledger).sure) == ([("s", 1, False)], False)
    assert ledger.late.refused("r") == frozenset()


def test_an_attempt_that_leaves_first_is_judged_by_what_it_left(ledger: Ledger) -> None:
    opened(ledger, 1)
    assert ledger.effects.leave("r", "s", "do", 1) == RowClosed(EffectState.OPEN, None)
    assert ledger.effects.open("r", "s", "do", 1, TOKEN, EffectClass.KEYED) == Closed(1)
    assert owed(ledger) == []


@pytest.mark.parametrize("why", ["vouches for it", "landed", "another landed", "an undo"])
def test_what_is_not_late(ledger: Ledger, why: str) -> None:
    kind: Kind = "undo" if why == "an undo" else "do"
    ledger.effects.open("r", "s", kind, 1, TOKEN, EffectClass.KEYED)
    if why == "landed":
        ledger.effects.land("r", "s", kind, 1, TOKEN, "1")
    ledger.effects.close("r", "s", kind, 1)
    if why == "another landed":
        ledger.effects.land("r", "s", kind, 2, TOKEN, "2")
    assert not ledger.effects.leave("r", "s", kind, 1, void=why == "vouches for it").late
    assert owed(ledger) == []


@pytest.mark.parametrize("effect_class", [EffectClass.IDEMPOTENT, EffectClass.KEYED])
def test_what_another_landed_is_taken_back_by_now(ledger: Ledger, effect_class: EffectClass) -> None:
    """Under the same key the other side would have done nothing; once that is undone, it may do it again."""
    opened(ledger, 1)
    ledger.effects.close("r", "s", "do", 1)
    ledger.effects.land("r", "s", "do", 2, TOKEN, "2")
    begin_to_undo(ledger, 3, effect_class)
    assert ledger.effects.leave("r", "s", "do", 1).late
    assert owed(ledger) == [("s", 1, False)]


def begin_to_undo(ledger: Ledger, fence: int, effect_class: EffectClass) -> None:
    if effect_class is EffectClass.IDEMPOTENT:
        ledger.effects.begin_undo("r", "s", fence)
    else:
        assert ledger.effects.open("r", "s", "undo", fence, TOKEN, effect_class) == Opened()


@pytest.mark.parametrize("effect_class", [EffectClass.IDEMPOTENT, EffectClass.KEYED, EffectClass.ONCE])
def test_who_begins_to_undo_takes_over_what_came_before(ledger: Ledger, effect_class: EffectClass) -> None:
    come_late(ledger, 1)
    begin_to_undo(ledger, 3, effect_class)
    assert owed(ledger) == []
    come_late(ledger, 2)
    assert owed(ledger) == [("s", 4, False)]


def test_an_undo_that_is_repeated_under_its_key_takes_over_nothing(ledger: Ledger) -> None:
    """The first may have done what it does: the other side would do no more for the second."""
    begin_to_undo(ledger, 2, EffectClass.KEYED)
    come_late(ledger, 1)
    ledger.effects.close("r", "s", "undo", 2)
    begin_to_undo(ledger, 3, EffectClass.KEYED)
    assert owed(ledger) == [("s", 1, False)]


def test_the_undoing_of_what_was_late_already_is_not_late(ledger: Ledger) -> None:
    """Its claim was given up, with a letter."""
    come_late(ledger, kind="late")
    assert owed(ledger) == []


def test_an_undo_that_came_late_owes_nothing(ledger: Ledger) -> None:
    come_late(ledger, kind="undo")
    assert owed(ledger) == []


def test_what_was_looked_at_is_left_for_a_while(ledger_url: str) -> None:
    now = [1000]
    ledger = open_ledger(ledger_url, clock=lambda: now[0])
    come_late(ledger)
    now[0] = 2000
    assert owed(ledger, 1000) == [("s", 1, False)]
    ledger.late.postpone(late_of(ledger))
    assert owed(ledger, 1000) == []
    now[0] = 3000
    assert owed(ledger, 1000) == [("s", 1, False)]


def test_looking_for_late_effects_reads_no_others(tmp_path: Path) -> None:
    """Each supervisor's pass asks: the cost must be that of what is owed, not of all that ever happened."""
    ledger = fresh_ledger(tmp_path)
    asked: list[str] = []

    @contextmanager
    def spied() -> Iterator[Any]:
        with ledger.begin() as connection:
            yield SimpleNamespace(execute=lambda query: plan_of(connection, query))

    def plan_of(connection: Connection, query: Any) -> Any:
        text = query.compile(connection, compile_kwargs={"literal_binds": True})
        asked.extend(str(row) for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}"))
        return connection.execute(query)

    EffectRows(ledger.begin, spied, lambda: 7).late.owed(1, 10, NAMESPACE)
    assert any("effects_owed_late" in line for line in asked), asked
    assert not [line for line in asked if "SCAN" in line and "effects_owed_late" not in line]


def test_a_close_of_nothing_keeps_the_fence_out(ledger: Ledger) -> None:
    assert ledger.effects.close("r", "s", "do", 2) == RowClosed(EffectState.NONE, None)
    assert ledger.effects.open("r", "s", "do", 2, TOKEN, EffectClass.KEYED) == Closed(2)
    assert ledger.effects.open("r", "s", "do", 3, TOKEN, EffectClass.KEYED) == Opened()


def test_an_older_close_does_not_reopen_anything(ledger: Ledger) -> None:
    ledger.effects.close("r", "s", "do", 3)
    ledger.effects.close("r", "s", "do", 1)
    assert ledger.effects.open("r", "s", "do", 2, TOKEN, EffectClass.KEYED) == Closed(3)


def test_do_and_undo_are_two_rows(ledger: Ledger) -> None:
    ledger.effects.land("r", "s", "do", 1, TOKEN, "1")
    ledger.effects.close("r", "s", "do", 1)
    assert ledger.effects.open("r", "s", "undo", 1, TOKEN, EffectClass.ONCE) == Opened()


@pytest.mark.parametrize("other", [("r2", "s"), ("r", "s2")])
def test_rows_of_other_runs_and_steps_are_not_met(ledger: Ledger, other: tuple[str, str]) -> None:
    ledger.effects.land("r", "s", "do", 1, TOKEN, "1")
    assert ledger.effects.open(*other, "do", 1, TOKEN, EffectClass.ONCE) == Opened()


def test_another_token_is_refused_everywhere(ledger: Ledger) -> None:
    ledger.effects.open("r", "s", "do", 1, TOKEN, EffectClass.KEYED)
    with pytest.raises(EffectRefused, match="another token"):
        ledger.effects.open("r", "s", "do", 2, "step:other", EffectClass.KEYED)
    with pytest.raises(EffectRefused, match="another token"):
        ledger.effects.land("r", "s", "do", 1, "step:other", "1")
    with pytest.raises(EffectRefused, match="another token"):
        ledger.effects.look("r", "s", "do", 1, "step:other")
    with ledger.begin() as connection:
        assert read(connection, "s") == ModelRow("open", since=1)


def test_a_row_made_by_close_takes_the_first_token_shown(ledger: Ledger) -> None:
    ledger.effects.close("r", "s", "do", 1)
    ledger.effects.open("r", "s", "do", 2, TOKEN, EffectClass.KEYED)
    with pytest.raises(EffectRefused):
        ledger.effects.land("r", "s", "do", 2, "step:other", "1")


def test_a_landing_inside_a_transaction_goes_with_it(ledger: Ledger) -> None:
    with suppress(ZeroDivisionError), ledger.begin() as connection:
        assert ledger.effects.land("r", "s", "do", 1, TOKEN, "1", connection) == Landed()
        raise ZeroDivisionError
    assert ledger.effects.look("r", "s", "do", 1, TOKEN) == Fresh()


@pytest.mark.parametrize(
    ("effect_class", "state", "no_effect", "expected"),
    [
        *((cls, EffectState.LANDED, flag, Fact.LANDED) for cls in EffectClass for flag in (False, True)),
        *((cls, EffectState.OPEN, flag, Fact.MAYBE) for cls in EffectClass for flag in (False, True)),
        *((cls, EffectState.NONE, True, Fact.NONE) for cls in EffectClass),
        (EffectClass.IDEMPOTENT, EffectState.NONE, False, Fact.MAYBE),
        *((cls, EffectState.NONE, False, Fact.NONE) for cls in EffectClass if cls is not EffectClass.IDEMPOTENT),
    ],
)
def test_what_a_closed_row_proves(
    effect_class: EffectClass, state: EffectState, no_effect: bool, expected: Fact
) -> None:
    assert fact(effect_class, state, no_effect) is expected


# ---- what is found out afterwards


def opened(ledger: Ledger, fence: int) -> None:
    assert isinstance(ledger.effects.open("r", "s", "do", fence, TOKEN, EffectClass.KEYED), Opened)


def test_an_effect_that_was_found_has_landed(ledger: Ledger) -> None:
    opened(ledger, 1)
    ledger.effects.close("r", "s", "do", 1)
    assert ledger.effects.found("r", "s", "do", 1, "7") == RowClosed(EffectState.LANDED, "7")
    assert ledger.effects.found("r", "s", "do", 1, "8") == RowClosed(EffectState.LANDED, "7")
    assert ledger.effects.open("r", "s", "do", 2, TOKEN, EffectClass.KEYED) == AlreadyLanded("7")


def test_an_effect_that_was_not_found_is_taken_back_by_the_fence_that_opened_it(ledger: Ledger) -> None:
    opened(ledger, 1)
    assert ledger.effects.found("r", "s", "do", 1, None).state is EffectState.OPEN  # not closed: it may still begin
    ledger.effects.close("r", "s", "do", 1)
    opened(ledger, 2)
    ledger.effects.close("r", "s", "do", 2)
    assert ledger.effects.found("r", "s", "do", 2, None).state is EffectState.OPEN  # fence 1 began it
    assert ledger.effects.found("r", "s", "do", 1, None).state is EffectState.OPEN  # fence 2 came after
    ledger.effects.open("r", "t", "do", 1, TOKEN, EffectClass.ONCE)
    ledger.effects.close("r", "t", "do", 1)
    assert ledger.effects.found("r", "t", "do", 1, None) == RowClosed(EffectState.NONE, None)


def test_a_late_landing_is_remembered(ledger: Ledger) -> None:
    opened(ledger, 1)
    ledger.effects.close("r", "s", "do", 1)
    assert ledger.late.refused("r") == frozenset()
    ledger.effects.land("r", "s", "do", 1, TOKEN, "7")
    assert ledger.late.refused("r") == {"s"}
    assert late_of(ledger).sure


def test_a_step_and_its_undoing_have_rows_of_their_own(ledger: Ledger) -> None:
    for kind in ("do", "undo", "late"):
        assert isinstance(ledger.effects.land("r", "s", kind, 1, TOKEN, f'"{kind}"'), Landed)
    assert ledger.effects.look("r", "s", "undo", 2, TOKEN) == AlreadyLanded('"undo"')


# ---- a commit that nobody heard of is told again


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_refused_landing_that_is_told_again_is_owed_once(ledger: Ledger, taken_over: bool) -> None:
    """The first may have been committed though its answer was lost; its undoing may have begun, or be over."""
    opened(ledger, 1)
    ledger.effects.close("r", "s", "do", 1)
    assert ledger.effects.land("r", "s", "do", 1, TOKEN, "1") == Closed(1)
    ledger.effects.open("r", "s", "late", 2, TOKEN, EffectClass.ONCE)
    if taken_over:
        ledger.effects.land("r", "s", "late", 2, TOKEN, "null")
    assert ledger.effects.land("r", "s", "do", 1, TOKEN, "1") == Closed(1)
    assert ledger.effects.leave("r", "s", "do", 1).late
    if not taken_over:
        ledger.effects.land("r", "s", "late", 2, TOKEN, "null")
    assert owed(ledger) == []


def test_an_end_that_is_told_again_is_no_stranger_s(ledger: Ledger) -> None:
    opened(ledger, 1)
    first = ledger.effects.leave("r", "s", "do", 1)
    assert ledger.effects.leave("r", "s", "do", 1) == first == RowClosed(EffectState.OPEN, None)
    assert owed(ledger) == []


def test_a_late_end_that_is_told_again_is_owed_once(ledger: Ledger) -> None:
    opened(ledger, 1)
    ledger.effects.close("r", "s", "do", 1)
    assert ledger.effects.leave("r", "s", "do", 1).late
    ledger.effects.open("r", "s", "late", 2, TOKEN, EffectClass.ONCE)
    assert ledger.effects.leave("r", "s", "do", 1).late
    ledger.effects.land("r", "s", "late", 2, TOKEN, "null")
    assert owed(ledger) == []
