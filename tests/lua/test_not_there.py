"""A run that is not there, or not whole, or has no such step: each script says so, and leaves nothing behind."""

from itertools import product
from typing import Any

import pytest
from redis import Redis

from orchestrator.store.keys import member
from orchestrator.store.replies import Lost, UnknownRun, Waiting
from tests.support.calls import CALLS, Act, owing, undoing
from tests.support.servers import keys_of
from tests.support.stores import START, Scene, new_step

SWEPT = {  # by whom it is looked at when this is due
    "expire_lease": "leases",
    "expire_undo": "leases",
    "expire_plan": "leases",
    "retry_due": "retries",
    "check_dispatch": "dispatches",
    "deadline": "deadlines",
    "settle": "settles",
    "confirm_end": "settles",
    "wait_over": "waits",
}


def dispatched(scene: Scene) -> None:
    scene.accept().admit(new_step("w", 0), new_step("x", 1, "w"))
    scene.claim("w")
    scene.complete("w")


def planning(scene: Scene) -> None:
    scene.accept().plan()


CASES: dict[str, tuple[Act, Act]] = {
    **{name: case for name, case in CALLS.items() if name != "create_run"},
    "check_dispatch": (dispatched, lambda s: s.store.runs.check_dispatch(s.ref, "x", False)),
    "check_dispatch of a plan": (Scene.accept, lambda s: s.store.runs.check_dispatch(s.ref, None, False)),
    "retry_due of a plan": (Scene.accept, lambda s: s.store.runs.retry_due(s.ref, None)),
    "renew_lease of a plan": (planning, lambda s: s.store.guard.renew_lease(s.ref, None, s.fences["plan"], "planner")),
    "end_claim of a plan": (planning, lambda s: s.store.guard.end_claim(s.ref, None, "host:1:1")),
    "expire_plan": (planning, lambda s: s.store.runs.expire_plan(s.ref)),
    "forget_fresh": (Scene.accept, lambda s: s.store.runs.forget_fresh(s.ref)),
    "snapshot": (dispatched, lambda s: s.store.stream.snapshot(s.ref, ["x"])),
    "mend_due": (dispatched, lambda s: s.store.restoring.mend_due(s.ref)),
}
OF_STEPS = (
    *("claim_step", "renew_lease", "complete_step", "fail_step", "hand_back", "end_claim", "expire_lease"),
    *("claim_undo", "complete_undo", "fail_undo", "expire_undo", "approve", "resolve", "wait_over", "retry_due"),
    *("check_dispatch", "undo_again"),
)
NOTHING_DONE = (("retry", "results"), ("undo_again", "results"))
WHOLE: dict[str, tuple[Act, Act]] = {
    "claim_step": (dispatched, CALLS["claim_step"][1]),
    "claim_undo": (undoing, CALLS["claim_undo"][1]),
    "settle": (owing, CALLS["settle"][1]),
    "retry": CALLS["retry"],
    "undo_again": CALLS["undo_again"],
}


def unknown(name: str) -> object:
    """What whoever asked is told."""
    said = {"accept_run": False, "forget_fresh": True, "renew_lease": Lost(), "snapshot": None}
    return said.get(name.partition(" ")[0], UnknownRun())


def of_run(scene: Scene, client: Redis, namespace: str) -> list[str]:
    return [key for key in keys_of(client, namespace) if scene.ref.run_id in key]


def place(scene: Scene, name: str) -> tuple[str, str]:
    """Where in `due` it stands for whoever looks at it then: the key and the member."""
    script, _, about = name.partition(" ")
    step_id = None if about or script in ("deadline", "settle", "confirm_end", "expire_plan") else "x"
    return scene.store.keys.due(0, SWEPT[script]), member(scene.ref, step_id)


def is_due(scene: Scene, client: Redis, name: str) -> bool:
    """Whether whoever looks at it then will look at it again."""
    return client.zscore(*place(scene, name)) is not None


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_is_gone_is_unknown_and_stays_gone(name: str, scene: Scene, client: Redis, namespace: str) -> None:
    prepare, call = CASES[name]
    prepare(scene)
    for key in of_run(scene, client, namespace):
        client.delete(key)
    swept = name.partition(" ")[0] in SWEPT
    if swept:
        key, of_it = place(scene, name)
        client.zadd(key, {of_it: START})
    assert call(scene) == unknown(name)
    assert of_run(scene, client, namespace) == []
    assert not swept or not is_due(scene, client, name)


@pytest.mark.parametrize("name", OF_STEPS)
def test_a_step_that_the_run_has_not_is_unknown(name: str, scene: Scene, client: Redis) -> None:
    prepare, call = CASES[name]
    prepare(scene)
    renamed(scene, client)
    before = everything(scene, client)
    assert call(scene) == unknown(name)
    assert everything(scene, client) == before
    assert name not in SWEPT or not is_due(scene, client, name)


def renamed(scene: Scene, client: Redis) -> None:
    """The run has as many steps as before, none of them x."""
    steps = scene.store.keys.part(scene.ref, "steps")
    record = client.hget(steps, "x")
    client.hdel(steps, "x")
    client.hset(steps, "another", record)


def everything(scene: Scene, client: Redis) -> list[Any]:
    keys = scene.store.keys
    return [client.hgetall(keys.state(scene.ref)), *(client.hgetall(keys.part(scene.ref, "steps")).items())]


@pytest.mark.parametrize(
    ("name", "part"), [case for case in product(WHOLE, ("steps", "plan", "results")) if case not in NOTHING_DONE]
)
def test_a_run_in_pieces_is_left_to_who_builds_it_again(name: str, part: str, scene: Scene, client: Redis) -> None:
    prepare, call = WHOLE[name]
    prepare(scene)
    client.delete(scene.store.keys.part(scene.ref, part))
    before = everything(scene, client)
    assert isinstance(call(scene), Waiting if name == "settle" else UnknownRun)
    assert everything(scene, client) == before
