"""Every hostile change of a record in the corpus, from the door to the database, on each kind of database.

The record holds what was sent, value for value; or the plan is refused by name and nothing is changed.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ledger import Ledger
from tests.support.hostile import steps
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, workbench
from workers.actions.records import mutate_record
from workers.reports import Done

BOX = "9c1f0a52-7d3e-4b88-a6f4-2e5d7c8b9a01"
TOO_MUCH = ("mr-01", "mr-02")
DATA = (
    *("mr-03", "mr-04", "mr-05", "mr-06", "mr-07", "mr-08", "mr-09", "mr-11", "mr-12", "mr-13", "mr-17"),
    *("tpl-02", "dlq-02", "dlq-04"),
)


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path, ledger: Ledger) -> Workbench:
    made = workbench(redis_server.url, namespace, tmp_path)
    made.ledger.close()
    made.ledger = ledger
    made.registry._add_action(mutate_record)
    return made


def changes(name: str, tokens: dict[str, object] | None = None) -> list[dict[str, Any]]:
    """The mutate_record steps of a case, whatever else it has."""
    found = (step for step in steps(name, {"CANARY": "/nowhere", **(tokens or {})}))
    return [{**step, "needs": []} for step in found if step["action"] == "mutate_record"]


def record(bench: Workbench) -> Any:
    found = bench.ledger.record(BOX)
    return json.loads(found.data_text) if found else None


def version(bench: Workbench) -> int:
    found = bench.ledger.record(BOX)
    return found.version if found else 0


def changed(bench: Workbench, step: dict[str, Any], name: str = "run") -> Run:
    """A run of one change, delivered once if it was planned."""
    run = bench.planned(step, name=name)
    if run.state.status == "running":
        run.deliver()
    return run


@pytest.mark.parametrize("name", DATA)
def test_keys_and_values_are_data_and_nothing_else(bench: Workbench, name: str) -> None:
    before = {"role": "user", "a": 1, "b": {"c": 2}}
    changed(bench, {"action": "mutate_record", "params": {"entity_id": BOX, "changes": before}}, "before")
    (step,) = changes(name)
    run = changed(bench, step)
    assert run.step().status == "completed", run.bench.letters
    assert record(bench) == {**before, **step["params"]["changes"]}
    assert {type(value) for value in record(bench).values()} >= {type(v) for v in step["params"]["changes"].values()}
    assert version(bench) == 2
    assert [made.version_after for made in bench.ledger.record_changes(run.ref.run_id)] == [2]


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_is_too_much_is_refused_by_name(bench: Workbench, name: str) -> None:
    (step,) = changes(name)
    run = changed(bench, step)
    assert run.state.status == "dead_lettered"
    assert record(bench) is None
    (letter,) = bench.letters
    kinds = {error["kind"] for attempt in letter.content["attempts"] for error in attempt["errors"]}
    assert kinds <= {"size", "depth", "value"}
    assert kinds
    assert "Traceback" not in json.dumps(letter.content)


def test_a_repeat_is_applied_once(bench: Workbench) -> None:
    """mr-14."""
    (step,) = changes("mr-14")
    run = bench.planned(step)
    assert isinstance(run.deliver("m"), Done)
    run.deliver("m")
    assert run.result("m")["version_after"] == 1
    assert (record(bench), version(bench)) == ({"balance": 10}, 1)
    assert len(bench.ledger.record_changes(run.ref.run_id)) == 1


def test_nothing_of_changes_at_one_time_is_lost(bench: Workbench) -> None:
    """mr-15: within one plan the door refuses them without an order; of three runs each has a version of its own."""
    three = changes("mr-15")
    assert bench.planned(*three).state.status == "dead_lettered"
    assert {error["kind"] for error in bench.letters[-1].content["attempts"][0]["errors"]} == {"conflict"}
    runs = [bench.planned(step, name=f"of-{step['id']}") for step in three]
    with ThreadPoolExecutor(3) as pool:
        said = [*pool.map(lambda run, step: run.deliver(step["id"]), runs, three)]
    assert [isinstance(one, Done) for one in said] == [True] * 3
    assert record(bench) in ({"a": 1, "b": 2}, {"a": 3, "b": 2})
    made = [bench.ledger.record_changes(run.ref.run_id)[0].version_after for run in runs]
    assert (sorted(made), version(bench)) == ([1, 2, 3], 3)
