"""The store over a fork: a child that inherits a connection in use makes its own, and nobody reads another's answer."""

import os

from orchestrator.store.replies import Committed, Granted
from tests.support.servers import Server
from tests.support.stores import Scene, clocked_store, new_step, ref_of

CHILDREN, TIMES = 8, 200


def works_alone(scene: Scene, step_id: str) -> bool:
    """Do a step among the others, and hear of nothing but what was asked."""
    heard = [scene.store.views.step(scene.ref, step_id) for _ in range(TIMES)]
    granted, committed = scene.claim(step_id), scene.complete(step_id, f'{{"of":"{step_id}"}}')
    mine = all(state is not None and state.id == step_id for state in heard)
    return mine and isinstance(granted, Granted) and isinstance(committed, Committed)


def test_eight_children_and_their_parent_work_at_once(redis_server: Server, namespace: str) -> None:
    store, clock = clocked_store(redis_server.url, namespace)
    scene = Scene(store, clock, ref_of("forked"))
    names = [f"s{i}" for i in range(CHILDREN + 1)]
    scene.accept().admit(*(new_step(name, i) for i, name in enumerate(names)))
    children = []
    for name in names[1:]:
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            os._exit(0 if works_alone(scene, name) else 1)
        children.append(pid)
    assert works_alone(scene, names[0])
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * CHILDREN
    assert {step.id for step in store.views.steps(scene.ref) if step.status == "completed"} == set(names)
    store.close()
