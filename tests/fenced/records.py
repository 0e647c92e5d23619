"""Cases of records: keys and values that would mean something elsewhere, repeats, and changes at one time.

Each case has a record of its own instead of the one that all of them name.
"""

import json
import re
from typing import Any, Final

from tests.fenced.fleet import Fleet, Scene, fresh_id, how, plays
from tests.support import hostile
from tests.support.scraping import scraped
from tests.support.system import plan_text, step
from tests.support.waiting import eventually

DATA: Final = (
    *("mr-03", "mr-04", "mr-05", "mr-06", "mr-07", "mr-08", "mr-09", "mr-11", "mr-12", "mr-13", "mr-17", "tpl-02"),
)
DONE = "completed"


def change(changes: dict[str, Any], entity: str, name: str | None = None) -> dict[str, Any]:
    return step("mutate_record", name, entity_id=entity, changes=changes)


def record(fleet: Fleet, entity: str) -> tuple[int, Any]:
    """Its version and what it holds; version 0 where there is none."""
    found = fleet.system.installed.ledger.record(entity)
    return (found.version, json.loads(found.data_text)) if found else (0, None)


@plays(*DATA)
def be_more_than_data(scene: Scene) -> None:
    """Keys and values are what was sent, of the types that were sent. tpl-02: so is a file's content."""
    entity, before = fresh_id(), {"role": "user", "a": 1, "b": {"c": 2}}
    assert how(scene.run(change(before, entity))) == [DONE]
    steps = scene.steps()
    (changed,) = (one["params"] for one in steps if one["action"] == "mutate_record")
    changed["entity_id"] = entity
    view = scene.run(*steps)
    assert how(view) == [DONE] * len(steps)
    assert spelled(record(scene.fleet, entity)) == spelled((2, {**before, **changed["changes"]}))
    written = [one["params"] for one in steps if one["action"] == "create_file"]
    assert [(scene.tree(view) / one["path"]).read_text() for one in written] == [one["content"] for one in written]


def spelled(held: Any) -> str:
    """By which 1 is not true, nor "false"."""
    return json.dumps(held, sort_keys=True)


@plays("mr-01")
def be_too_large(scene: Scene) -> None:
    """As a whole at the door; and with as many keys as fit there, more than a record may have."""
    entity = fresh_id()
    (one,) = scene.steps()
    one["params"]["entity_id"] = entity
    assert "MANDOR_PLAN_BYTES" in scene.turned_away(one)
    keys = dict.fromkeys(one["params"]["changes"], 1)
    assert how(scene.run(change(keys, entity))) == ["record_too_large"]
    assert record(scene.fleet, entity) == (0, None)


@plays("mr-02")
def be_too_deep(scene: Scene) -> None:
    entity = fresh_id()
    (one,) = scene.steps()
    assert scene.faults({**one, "params": {**one["params"], "entity_id": entity}}) == ["depth"]
    assert record(scene.fleet, entity) == (0, None)


@plays("mr-15")
def come_at_once(scene: Scene) -> None:
    """The door lets no plan have them without an order; of three runs each has a version of its own."""
    entity = fresh_id()
    three = [{**one, "needs": [], "params": {**one["params"], "entity_id": entity}} for one in scene.steps()]
    assert set(scene.faults(*three)) == {"conflict"}
    begun = [scene.begin(one) for one in three]
    assert [how(scene.end(run_id)) for run_id in begun] == [[DONE]] * 3
    ledger = scene.fleet.system.installed.ledger
    made = sorted(one.version_after for run_id in begun for one in ledger.record_changes(run_id))
    version, held = record(scene.fleet, entity)
    assert (made, version, held["b"], held["a"] in (1, 3)) == ([1, 2, 3], 3, 2, True)


# ---- delivered twice


def twice(fleet: Fleet) -> tuple[str, str]:
    """mr-14: a run whose step lies in the queue two times before there is a worker; its run_id, and its record."""
    entity = fresh_id()
    (one,) = hostile.steps("mr-14", {})
    run_id = fleet.send(plan_text({**one, "params": {**one["params"], "entity_id": entity}}))
    client, queue = fleet.system.installed.app.backend.client, fleet.system.installed.queue("steps")
    (message,) = eventually(lambda: client.lrange(queue, 0, -1), what="the step's message")
    client.lpush(queue, message)
    return run_id, entity


def once(scene: Scene, run_id: str, entity: str) -> None:
    """What that came to."""
    view = scene.end(run_id)
    assert how(view) == [DONE]
    assert (view.steps[0].attempt, view.steps[0].result["version_after"]) == (1, 1)
    assert record(scene.fleet, entity) == (1, {"balance": 10})
    assert len(scene.fleet.system.installed.ledger.record_changes(run_id)) == 1
    eventually(lambda: held_back(scene.fleet.worker.url), what="the second delivery's end")


def held_back(url: str) -> float:
    """Deliveries of what was done, or is being done."""
    told = scraped(url)
    return sum(
        value for name, value in told.items() if re.match("mandor_(idempotency_hits|claims_refused)_total", name)
    )
