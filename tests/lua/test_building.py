"""A shard that is built again: whose it is, which runs of it are built, and how they stand then."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis

from orchestrator.errors import StoreAmnesia, StoreMoved, Superseded
from orchestrator.store.replies import Exists
from orchestrator.store.restoring import Place, Restored
from orchestrator.store.stream import BEGINNING
from schemas.states import Fact
from tests.support.calls import Act, accepted, completed, dispatched, doubtful, failed, needs_approval, owing, running
from tests.support.forgetting import forget
from tests.support.stores import START, Scene, new_step

FACTS: dict[str, Fact] = {}
Step = tuple[str, ...]


@dataclass
class Memory:
    """A run as somebody has heard of it: what restore_run is given."""

    fields: dict[str, str]
    steps: list[Step] = field(default_factory=list)

    @property
    def heard(self) -> tuple[int, int]:
        return int(self.fields["generation"]), int(self.fields["version"])

    @property
    def fence(self) -> int:
        return int(self.fields["fence"])


def memory_of(scene: Scene, facts: dict[str, Fact] = FACTS) -> Memory:
    """facts: of the claims that end herewith."""
    seen, plan = scene.store.restoring.remains(scene.ref), scene.store.restoring.admitted(scene.ref)
    assert seen is not None
    steps = list[Step]()
    for step in plan.steps if plan else ():
        fact = facts[step.id].value if step.id in facts else ""
        known = (seen.steps[step.id], fact, seen.results.get(step.id, ""), seen.errors.get(step.id, ""))
        steps.append((step.id, *known, step.text, ",".join(step.needs)))
    return Memory({name: value for name, value in seen.fields.items() if not name.startswith("n_")}, steps)


@dataclass
class Builder:
    """Somebody who builds the shard of a scene."""

    scene: Scene
    client: Redis
    token: str = "mine"

    @property
    def place(self) -> Place:
        return Place(self.scene.store.scripts.server(), self.token)

    def forget(self) -> None:
        forget(self.client, self.scene.store.keys.namespace)

    def begin(self, cause: str = "amnesia", cursor: str = BEGINNING) -> None:
        self.scene.store.restoring.begin(0, self.place, cause, cursor)

    def build(self, memory: Memory, stage: str = "running", place: Place | None = None) -> Restored | Exists:
        about = (memory.fence, memory.heard, memory.fields, memory.steps)
        return self.scene.store.restoring.restore_run(self.scene.ref, place or self.place, stage, *about)

    def open(self, place: Place | None = None) -> None:
        self.scene.store.restoring.open_shard(0, place or self.place)

    def built(self, stage: str = "running", facts: dict[str, Fact] = FACTS) -> Restored:
        """What is there is forgotten and built again as it was."""
        memory = memory_of(self.scene, facts)
        self.forget()
        self.begin()
        reply = self.build(memory, stage)
        assert isinstance(reply, Restored)
        self.open()
        return reply

    def due(self, duty: str) -> dict[bytes, float]:
        found: Any = self.client.zrange(self.scene.store.keys.due(0, duty), 0, -1, withscores=True)
        return dict(found)

    def says(self, part: str) -> object:
        return self.client.get(self.scene.store.keys.shard_part(0, part))


@pytest.fixture
def builder(scene: Scene, client: Redis) -> Builder:
    return Builder(scene, client)


# ---- whose the shard is


def test_a_store_without_our_epoch_and_one_on_another_server_are_not_used(builder: Builder) -> None:
    keys = builder.scene.store.keys
    builder.client.set(keys.shard_part(0, "server"), "another")
    with pytest.raises(StoreMoved):
        builder.scene.accept()
    builder.client.delete(keys.shard_part(0, "epoch"))
    with pytest.raises(StoreAmnesia):
        builder.scene.accept()


def another_server(builder: Builder) -> None:
    builder.client.set(builder.scene.store.keys.shard_part(0, "server"), "another")


def another_epoch(builder: Builder) -> None:
    another_server(builder)
    builder.client.set(builder.scene.store.keys.shard_part(0, "epoch"), "another")


@pytest.mark.parametrize(
    ("found", "cause"), [(Builder.forget, "moved"), (another_server, "amnesia"), (another_epoch, "moved")]
)
def test_a_shard_that_is_not_as_it_was_judged_is_nobody_s_to_build(builder: Builder, found: Act, cause: str) -> None:
    found(builder)  # type: ignore[arg-type]
    with pytest.raises(Superseded):
        builder.begin(cause)
    assert builder.says("restoring") is None


def test_nor_is_one_on_another_server_than_was_judged(builder: Builder) -> None:
    builder.forget()
    with pytest.raises(Superseded):
        builder.scene.store.restoring.begin(0, Place("another", "mine"), "amnesia", BEGINNING)
    assert builder.says("restoring") is None


def test_nor_is_one_that_is_whole(builder: Builder) -> None:
    with pytest.raises(Superseded):
        builder.begin("moved")
    assert builder.says("restoring") is None


def test_what_happens_then_comes_behind_what_the_ledger_has(builder: Builder) -> None:
    builder.forget()
    builder.begin(cursor="99999999999999-5")
    assert builder.scene.store.stream.last_id(0) == "99999999999999-6"


def test_it_is_opened_once_by_who_began_last_and_where_he_judged_it(builder: Builder) -> None:
    builder.forget()
    builder.begin()
    for other in (Place("another", "mine"), Place(builder.place.judged, "another"), Place(builder.place.judged, "")):
        with pytest.raises(Superseded):
            builder.open(other)
    assert not builder.scene.store.admin.is_whole(0)
    builder.open()
    builder.open()  # a repeat whose reply was lost
    assert builder.scene.store.admin.is_whole(0)


def test_who_opens_one_without_having_begun_is_nobody(builder: Builder) -> None:
    builder.forget()
    with pytest.raises(Superseded):
        builder.open(Place(builder.place.judged, ""))
    assert builder.says("epoch") is None


def test_only_who_has_begun_builds_where_he_judged_it(builder: Builder) -> None:
    running(builder.scene)
    memory = memory_of(builder.scene)
    builder.forget()
    builder.begin()
    for other in (Place("another", "mine"), Place(builder.place.judged, "another"), Place(builder.place.judged, "")):
        with pytest.raises(Superseded):
            builder.build(memory, place=other)
    assert builder.scene.store.restoring.remains(builder.scene.ref) is None


def test_nobody_builds_in_a_shard_of_another_epoch_as_if_it_were_whole(builder: Builder) -> None:
    running(builder.scene)
    memory = memory_of(builder.scene)
    builder.client.set(builder.scene.store.keys.shard_part(0, "epoch"), "another")
    with pytest.raises(Superseded):
        builder.build(memory, place=Place(builder.place.judged, ""))


# ---- which runs are built


def test_a_run_that_is_there_and_knows_as_much_is_left_as_it_is(builder: Builder) -> None:
    dispatched(builder.scene)
    memory = memory_of(builder.scene)
    assert builder.build(memory, place=Place(builder.place.judged, "")) == Exists("running")
    another_server(builder)
    builder.begin("moved")
    assert builder.build(memory) == Exists("running")


@pytest.mark.parametrize("shut", [True, False])
def test_one_of_which_a_key_is_gone_is_built(builder: Builder, shut: bool) -> None:
    dispatched(builder.scene)
    memory = memory_of(builder.scene)
    builder.client.delete(builder.scene.store.keys.part(builder.scene.ref, "plan"))
    assert builder.scene.store.admin.is_in_pieces(builder.scene.ref)
    if shut:
        another_server(builder)
        builder.begin("moved")
    place = builder.place if shut else Place(builder.place.judged, "")
    assert isinstance(builder.build(memory, place=place), Restored)
    if shut:
        builder.open()
    assert not builder.scene.store.admin.is_in_pieces(builder.scene.ref)


def test_an_older_copy_is_told_by_its_fence(builder: Builder) -> None:
    """In a shard that is not whole: rows were closed up to the fence that it is to have."""
    dispatched(builder.scene)
    memory = memory_of(builder.scene)
    another_server(builder)
    builder.begin("moved")
    memory.fields["fence"] = str(memory.fence + 5)
    assert isinstance(builder.build(memory), Restored)


def test_in_a_whole_shard_what_was_begun_anew_is_told_by_its_version(builder: Builder) -> None:
    accepted(builder.scene)
    memory = memory_of(builder.scene)
    memory.fields["version"] = "7"
    assert isinstance(builder.build(memory, place=Place(builder.place.judged, "")), Restored)


def test_in_a_whole_shard_one_of_a_later_generation_is_left_as_it_is(builder: Builder) -> None:
    """Whatever its version."""
    failed(builder.scene)
    memory = memory_of(builder.scene)
    memory.fields["version"] = "100"
    builder.scene.store.runs.retry(builder.scene.ref, 1, "ann", 3_600_000)
    assert builder.build(memory, place=Place(builder.place.judged, "")) == Exists("running")


def test_in_a_whole_shard_one_of_an_earlier_generation_is_built(builder: Builder) -> None:
    """Whatever its version."""
    dispatched(builder.scene)
    memory = memory_of(builder.scene)
    memory.fields |= {"generation": "2", "version": "1"}
    assert isinstance(builder.build(memory, place=Place(builder.place.judged, "")), Restored)
    assert builder.scene.store.views.run(builder.scene.ref).generation == 2  # type: ignore[union-attr]


# ---- how they stand then


def test_a_run_without_a_plan_is_planned_but_for_one_that_is_paused(builder: Builder) -> None:
    accepted(builder.scene)
    reply = builder.built("accepted")
    assert [message.kind for message in reply.publish] == ["plan"]
    assert (builder.scene.run_status, len(builder.due("dispatches"))) == ("accepted", 1)
    builder.scene.store.runs.pause(builder.scene.ref, 1, "ann")
    builder.built("accepted")
    assert builder.due("dispatches") == {}


def test_steps_stand_where_they_stood(builder: Builder) -> None:
    """x is completed, y and z, which need it, are sent again; w waits for both."""
    scene = builder.scene
    scene.accept().admit(new_step("x", 0), new_step("y", 1, "x"), new_step("z", 2, "x"), new_step("w", 3, "y", "z"))
    scene.claim("x")
    scene.complete("x", '{"of":"x"}')
    for record in ("y", "z"):
        waits_again(builder, record)
    reply = builder.built()
    assert sorted(str(message.step_id) for message in reply.publish) == ["y", "z"]
    assert [scene.status(step_id) for step_id in "xyzw"] == ["completed", "dispatched", "dispatched", "pending"]
    assert scene.claim("y").inputs == {}
    assert scene.store.restoring.remains(scene.ref).results == {"x": '{"of":"x"}'}  # type: ignore[union-attr]
    assert not scene.store.admin.is_in_pieces(scene.ref)


def waits_again(builder: Builder, step_id: str) -> None:
    """As whoever builds it says of a step that was sent: it is to be sent again."""
    steps = builder.scene.store.keys.part(builder.scene.ref, "steps")
    record = json.loads(builder.client.hget(steps, step_id) or "")
    builder.client.hset(steps, step_id, json.dumps({**record, "status": "pending"}))


@pytest.mark.parametrize("prepare", [doubtful, needs_approval])
def test_a_person_is_still_asked(builder: Builder, prepare: Act) -> None:
    prepare(builder.scene)
    before = builder.due("waits")
    assert len(before) == 1
    builder.built()
    assert builder.due("waits") == before


def test_nobody_is_asked_about_what_a_failing_run_leaves(builder: Builder) -> None:
    doubtful(builder.scene)
    builder.scene.store.runs.cancel(builder.scene.ref, 1)
    builder.built("failing")
    assert builder.due("waits") == {}


@pytest.mark.parametrize(("fact", "status"), [(Fact.NONE, "failed"), (Fact.MAYBE, "in_doubt"), (Fact.LANDED, None)])
def test_a_claim_that_nobody_remembers_ends_as_its_row_says(builder: Builder, fact: Fact, status: str | None) -> None:
    scene = builder.scene
    scene.accept().admit(new_step("x", 0, effect="keyed", max_attempts=1), new_step("k", 1))
    scene.claim("x")
    builder.built(facts={"x": fact})
    assert scene.status("x") == (status or "completed")
    assert ("worker_lost" in scene.store.views.errors(scene.ref).get("x", "")) == (status is not None)


def test_what_was_being_undone_is_undone(builder: Builder) -> None:
    owing(builder.scene)
    reply = builder.built("compensating")
    assert [(message.kind, message.step_id) for message in reply.publish] == [("undo", "x")]
    assert builder.scene.run_status == "compensating"


# ---- runs that go on, and runs that are forgotten


def goes_on(builder: Builder) -> dict[str, bool]:
    """On another server; which steps may have had an effect since."""
    another_server(builder)
    builder.begin("moved")
    assert builder.scene.store.restoring.accept_run(builder.scene.ref, builder.place, 100, 0)
    records: Any = builder.client.hgetall(builder.scene.store.keys.part(builder.scene.ref, "steps"))
    return {step_id.decode(): json.loads(text).get("touched", False) for step_id, text in records.items()}


def test_one_that_has_ended_goes_on_whole(builder: Builder) -> None:
    """A retry of it may be waiting; and if that comes to nothing, none of its keys outlives the others by much."""
    builder.scene.accept().admit(new_step("x", 0, effect="idempotent"))
    keys, ref = builder.scene.store.keys, builder.scene.ref
    mine = [keys.state(ref), *(keys.part(ref, part) for part in ("steps", "plan", "needs", "events"))]
    mine = [key for key in mine if builder.client.pexpire(key, 5000)]
    goes_on(builder)
    assert len(mine) > 2
    assert min(builder.client.pttl(key) for key in mine) > 5000


def test_what_may_have_begun_in_a_servers_last_moments_is_not_taken_for_untouched(builder: Builder) -> None:
    steps = (new_step("x", 0, effect="idempotent"), new_step("y", 1), new_step("z", 2, "x", effect="idempotent"))
    builder.scene.accept().admit(*steps)
    assert goes_on(builder) == {"x": True, "y": False, "z": False}


def test_a_run_that_is_dropped_leaves_nothing(builder: Builder) -> None:
    running(builder.scene)
    restoring, ref = builder.scene.store.restoring, builder.scene.ref
    with pytest.raises(Superseded):
        restoring.drop_run(ref, Place(builder.place.judged, ""))
    assert builder.scene.run_status == "running"
    another_server(builder)
    builder.begin("moved")
    assert restoring.drop_run(ref, builder.place)
    assert not builder.client.exists(builder.scene.store.keys.state(ref))
    assert builder.due("leases") == builder.due("deadlines") == {}
    assert not restoring.drop_run(ref, builder.place)


# ---- what is told of a run


def test_a_snapshot_is_of_the_steps_that_are_named_and_holds_no_policy(builder: Builder) -> None:
    completed(builder.scene)
    seen = builder.scene.store.stream.snapshot(builder.scene.ref, ["x", "nobody"])
    assert seen is not None
    assert (seen.fields["status"], "policy" in seen.fields) == ("running", False)
    assert (list(seen.steps), seen.results, seen.errors) == (["x"], {"x": "{}"}, {})
    assert seen.fields["created_at"] == str(START)


@pytest.mark.parametrize("part", ["steps", "plan", "results", "needs", "dependants"])
def test_a_run_is_whole_while_none_of_its_keys_is_gone(builder: Builder, part: str) -> None:
    dispatched(builder.scene)
    builder.scene.claim("x")
    builder.scene.complete("x")
    admin, ref = builder.scene.store.admin, builder.scene.ref
    assert not admin.is_in_pieces(ref)
    builder.client.delete(builder.scene.store.keys.part(ref, part))
    assert admin.is_in_pieces(ref)
