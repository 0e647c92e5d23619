"""No write slips by the doors at which processes of these tests die: not one that nobody has named either."""

import ast
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator import dispatch, names
from orchestrator.ledger import Due
from schemas.dead_letter import Bell, DeadLetterKind
from schemas.ids import RunRef, run_id_for
from tests.architecture.sources import modules
from tests.support.deaths import RESULTS
from tests.support.mortals import Mortals, mortals
from tests.support.servers import Server

ERRORS = "_result_errors"  # reads which errors there are


@pytest.fixture
def installed(
    redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mortals]:
    with mortals(redis_server, namespace, tmp_path, monkeypatch, Mortals) as made:
        yield made


def mark(made: Mortals) -> str:
    return f"{made.store.keys.prefix(0)}mark"


def tells(made: Mortals) -> None:
    made.store.scripts.tell("SET", mark(made), "1", "PX", 60_000)


def sends_deliveries(made: Mortals) -> None:
    dispatch.send_deliveries(made.app, [Due("d", 0)])


def sends_what_nobody_knows(made: Mortals) -> None:
    made.app.send_task("stranger", queue=names.queue(made.settings.prefix, "deliver"), ignore_result=True)


def rings(made: Mortals) -> None:
    dispatch.ring(made.app, Bell(id="x", kind=DeadLetterKind.PLAN, run=None, step=None, reason="r"))


def writes(made: Mortals) -> None:
    with made.ledger._database.writing() as connection:
        connection.exec_driver_sql("SELECT 1")


NEW: dict[str, Callable[[Mortals], None]] = {
    "store SET": tells,
    "publish deliver": sends_deliveries,
    "publish dlq": rings,
    "ledger writes": writes,
}


@pytest.mark.parametrize("name", NEW)
def test_a_new_write_is_a_place_to_die_at(installed: Mortals, name: str) -> None:
    assert died_at(installed, NEW[name]) == name


def test_so_is_what_is_sent_past_all_that_send(installed: Mortals) -> None:
    assert died_at(installed, sends_what_nobody_knows) == "publish deliver"


def died_at(made: Mortals, new: Callable[[Mortals], None]) -> str:
    """The one write of it, before and behind which a process can die."""
    made.doors.begin()
    assert made.doors.lives(partial(new, made))
    (write,) = made.doors.passed
    for when in ("before", "after"):
        made.doors.begin([(0, when)])
        assert not made.doors.lives(partial(new, made))
        assert len(made.doors.passed) == 1
    return write.name


ASKING: tuple[Callable[[Mortals], object], ...] = (
    lambda made: made.store.scripts.ask("GET", mark(made)),
    lambda made: made.store.views.last_passes(),  # many at once
    lambda made: made.store.admin.is_in_pieces(RunRef(run_id_for("mandor", "-", "none"), "-")),  # uncounted
    lambda made: made.store.scripts.server(),
    lambda made: made.ledger.listed(1),
    *NEW.values(),
)


@pytest.mark.parametrize("number", range(len(ASKING)))
def test_who_is_dead_neither_asks_nor_writes(installed: Mortals, number: int) -> None:
    """Whatever its `finally` blocks try."""
    reached = list[Any]()

    def dies() -> None:
        try:
            tells(installed)
        finally:
            reached.append(ASKING[number](installed))

    installed.doors.begin([(0, "before")])
    assert not installed.doors.lives(dies)
    assert reached == []
    assert installed.store.scripts.ask("GET", mark(installed)) is None


def test_what_is_begun_to_read_writes_nothing(installed: Mortals) -> None:
    with pytest.raises(AssertionError, match="writes where it is to read"):
        writes_in_a_reading(installed)


def writes_in_a_reading(made: Mortals) -> None:
    with made.ledger._database.reading() as connection:
        connection.exec_driver_sql("CREATE TABLE new (x)")
        connection.exec_driver_sql("INSERT INTO new VALUES (1)")


def test_nobody_else_touches_the_result_store() -> None:
    """Its client is Celery's, so what is written there is known by the functions around it."""
    touching = {
        function.name
        for path in modules()
        if "faults" not in path.parts  # the kit does harm
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if any(map(_is_backend_of_app, ast.walk(function)))
    }
    assert touching == {*RESULTS, ERRORS}


def _is_backend_of_app(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "backend" and ast.unparse(node.value).endswith("app")
