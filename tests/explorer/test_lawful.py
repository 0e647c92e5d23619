"""What the specification does not allow is seen, by its facts alone."""

import json
from pathlib import Path

import pytest

from schemas.states import EffectClass
from tests.explorer import model, specification
from tests.explorer.lawful import FACTS, Place, facts, row
from tests.explorer.moves import Bounds
from tests.explorer.mutants import CODE, SCRIPTS
from tests.explorer.operations import Op
from tests.explorer.scenarios import Scenario, explored
from tests.support.servers import Server

SEEN_BY_FACTS = ("what may have happened has failed", "what is once is tried again in doubt", "nothing is undone")


def test_the_facts_are_about_all_that_is_explored() -> None:
    assert set(facts()) == {"store", "rows", "order"}
    claims = {claim for claim in facts()["order"] if claim.startswith("do ")}
    assert claims == {f"do {effect}" for effect in EffectClass}
    runs = {run.partition(" | ")[0] for moves in facts()["store"].values() for run in " > ".join(moves).split(" > ")}
    assert runs == {"running", "failing", "compensating", "succeeded", "ended", "compensated", "compensation_failed"}


def test_the_facts_are_of_the_program_that_makes_them_as_it_is() -> None:
    """Whether they are of the specification as it is, only who has it can tell: `from` is its digest."""
    made = json.loads(FACTS.read_text(encoding="utf-8"))["made"]
    assert set(made) == {"by", "from"}
    assert made["by"] == specification.digest(Path(specification.__file__))


@pytest.mark.parametrize(
    ("claim", "last", "op"),
    [
        ("do keyed", "granted", Op("world", "act")),
        ("do keyed", "open=ok", Op("ledger", "effects.land")),
        ("do keyed", "act=ok", Op("store", "complete_step")),
        ("do once", "act=raises", Op("store", "fail_step")),
        ("undo once", "open=ok", Op("store", "fail_undo")),
        ("do transactional", "granted", Op("store", "complete_step")),
    ],
)
def test_an_attempt_that_leaves_something_out_is_refused(claim: str, last: str, op: Op) -> None:
    assert Place(claim, last).refuses(op)


def test_no_row_is_opened_or_landed_once_it_is_closed() -> None:
    closed = row({"state": "none", "since": 0, "closed_to": 3, "late": 0}, 3)
    assert closed == "none closed"
    for name in ("open keyed", "open once", "land"):
        moves = [move.split(" > ") for move in facts()["rows"][name]]
        assert moves
        assert not [after for before, after in moves if before == closed and not after.startswith("none")]


@pytest.mark.parametrize("name", SEEN_BY_FACTS)
def test_a_move_that_it_does_not_have_is_seen(
    redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (mutant,) = (each for each in (*SCRIPTS, *CODE) if each.name == name)
    monkeypatch.setattr(model, "differences", lambda _: [])
    with mutant.alive():
        found = explored(mutant.scenario, redis_server, namespace, tmp_path)
    assert [what for what in found.violations if "not in the specification" in what]


def test_nothing_else_is_refused(
    redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "differences", lambda _: [])
    found = explored(Scenario(("pure",), Bounds(1, 0, 0, 1), 2), redis_server, namespace, tmp_path)
    assert not found.violations
