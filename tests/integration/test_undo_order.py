"""Undoing at the store: each step with an effect once, none before everything that needed it, always to an end."""

import random

import pytest

from orchestrator.store.replies import Compensating, Publish, Settled
from schemas.states import Fact
from tests.support.servers import Server
from tests.support.stores import Scene, clocked_store, new_step, ref_of


@pytest.fixture
def scene(redis_server: Server, namespace: str) -> Scene:
    store, clock = clocked_store(redis_server.url, namespace)
    return Scene(store, clock, ref_of("undo"))


def sent(publish: Publish) -> set[str]:
    return {str(message.step_id) for message in publish if message.kind == "undo"}


def test_a_step_waits_for_all_that_needed_it_also_through_steps_without_effect(scene: Scene) -> None:
    """a <- p <- c, where p is pure: a is undone after c, though c does not need a itself."""
    keyed = {"effect": "keyed"}
    steps = (new_step("a", 0, **keyed), new_step("p", 1, "a"), new_step("c", 2, "p", **keyed), new_step("bad", 3, "c"))
    scene.accept().admit(*steps)
    for step_id in ("a", "p", "c"):
        scene.claim(step_id)
        scene.complete(step_id)
    scene.claim("bad")
    scene.store.guard.fail_step(scene.ref, "bad", scene.fences["bad"], "claim-bad", Fact.NONE, "{}", False)
    begun = scene.store.runs.settle(scene.ref, 1)
    assert isinstance(begun, Compensating)
    assert sent(begun.publish) == {"c"}
    assert type(scene.claim_undo("a")).__name__ == "NotDue"
    assert sent(scene.undo("c").publish) == {"a"}
    assert [message.kind for message in scene.undo("a").publish] == ["settle"]
    assert scene.store.runs.settle(scene.ref, 1).status == "compensated"  # type: ignore[union-attr]


def test_a_policy_that_stops_undoes_nothing(scene: Scene) -> None:
    scene.accept(on_failure="stop").admit(new_step("a", 0, effect="keyed"), new_step("bad", 1, "a"))
    scene.claim("a")
    scene.complete("a")
    scene.claim("bad")
    scene.store.guard.fail_step(scene.ref, "bad", scene.fences["bad"], "claim-bad", Fact.NONE, "{}", False)
    assert scene.store.runs.settle(scene.ref, 1).status == "failed"  # type: ignore[union-attr]
    assert scene.status("a") == "completed"


def test_a_cancelled_run_whose_effects_were_undone_is_compensated(scene: Scene) -> None:
    scene.accept().admit(new_step("a", 0, effect="keyed"), new_step("b", 1, "a"))
    scene.claim("a")
    scene.complete("a")
    scene.store.runs.cancel(scene.ref, 1)
    assert isinstance(scene.store.runs.settle(scene.ref, 1), Compensating)
    scene.undo("a")
    settled = scene.store.runs.settle(scene.ref, 1)
    assert isinstance(settled, Settled)
    assert (settled.status, settled.reason) == ("compensated", "cancelled")


def test_a_late_commit_after_undoing_began_is_refused(scene: Scene) -> None:
    """The step's claim was closed as doubtful; its old holder comes back when the run is undone."""
    scene.accept().admit(new_step("x", 0, effect="keyed", max_attempts=1))
    scene.claim("x")
    scene.clock.advance(60_000)
    scene.store.guard.expire_lease(scene.ref, "x", scene.fences["x"], Fact.MAYBE)
    scene.store.runs.settle(scene.ref, 1)
    assert type(scene.complete("x")).__name__ == "Fenced"
    granted = scene.claim_undo("x")
    assert granted.done_text is None
    assert (
        type(scene.store.guard.complete_step(scene.ref, "x", granted.step.fence, "undo-x", "{}")).__name__ == "Fenced"
    )


def test_who_comes_late_to_end_a_steps_claim_does_not_make_the_undos_lease_forgotten(scene: Scene) -> None:
    """Two found the holder dead. The second tells the store when the step is being undone: that lease is another."""
    scene.accept().admit(new_step("x", 0, effect="keyed", max_attempts=1))
    scene.claim("x")
    scene.clock.advance(60_000)
    scene.store.guard.expire_lease(scene.ref, "x", scene.fences["x"], Fact.MAYBE)
    scene.store.runs.settle(scene.ref, 1)
    late = scene.fences["x"]
    scene.claim_undo("x")
    assert "leases" in scene.store.views.due(scene.ref, "x")
    scene.store.guard.expire_undo(scene.ref, "x", scene.fences["x"], Fact.MAYBE)
    scene.claim_undo("x", "another")
    assert type(scene.store.guard.expire_lease(scene.ref, "x", late, Fact.MAYBE)).__name__ == "Fenced"
    assert "leases" in scene.store.views.due(scene.ref, "x")


@pytest.mark.parametrize("seed", range(40))
def test_any_plan_cut_off_anywhere_is_undone_in_order(scene: Scene, seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(2, 9)
    needs = {i: rng.sample(range(i), rng.randint(0, min(i, 3))) for i in range(size)}
    effects = {i: rng.choice(("pure", "keyed", "idempotent", "once")) for i in range(size)}
    steps = [new_step(f"s{i}", i, *(f"s{n}" for n in needs[i]), effect=effects[i]) for i in range(size)]
    scene.accept().admit(*steps, max_parallel=rng.randint(1, 4))
    done = play(scene, rng, rng.randint(0, size))
    scene.store.runs.cancel(scene.ref, 1)
    for step_id in running(scene):
        if rng.random() < 0.5:
            scene.complete(step_id)
            done.add(step_id)
        else:
            fact = rng.choice((Fact.NONE, Fact.MAYBE)) if effects[int(step_id[1:])] != "pure" else Fact.NONE
            scene.store.guard.fail_step(scene.ref, step_id, scene.fences[step_id], f"claim-{step_id}", fact, "{}", True)
    order = undo_all(scene, rng)
    owed = {f"s{i}" for i in range(size) if effects[i] != "pure" and scene.status(f"s{i}").startswith("compens")}
    assert set(order) == owed
    assert len(order) == len(owed)
    for index, step_id in enumerate(order):
        later = set(order[index + 1 :])
        assert not later & dependants_of(int(step_id[1:]), needs), f"{step_id} was undone too early: {order}"
    run = scene.store.views.run(scene.ref)
    assert run is not None
    failed = "compensation_failed" in run.counts
    undone = "compensation_failed" if failed else "compensated"
    assert run.status == ("succeeded" if len(done) == size else undone if owed else "cancelled")
    assert run.active == 0


def running(scene: Scene) -> list[str]:
    return [step.id for step in scene.store.views.steps(scene.ref) if step.status == "running"]


def play(scene: Scene, rng: random.Random, moves: int) -> set[str]:
    """Claim and commit at random."""
    done: set[str] = set()
    for _ in range(moves * 2):
        ready = [step.id for step in scene.store.views.steps(scene.ref) if step.status == "dispatched"]
        if ready and rng.random() < 0.6:
            scene.claim(rng.choice(ready))
        elif open_ := running(scene):
            step_id = rng.choice(open_)
            scene.complete(step_id)
            done.add(step_id)
    return done


def undo_all(scene: Scene, rng: random.Random) -> list[str]:
    """Undo what is sent, in any order, until the run is closed; some undos fail once before."""
    order: list[str] = []
    reply = scene.store.runs.settle(scene.ref, 1)
    due = sent(reply.publish) if isinstance(reply, Compensating) else set()
    while due:
        step_id = rng.choice(sorted(due))
        due.discard(step_id)
        scene.claim_undo(step_id, f"undo-{step_id}")
        if rng.random() < 0.3:
            claim = (scene.ref, step_id, scene.fences[step_id], f"undo-{step_id}")
            failed = scene.store.guard.fail_undo(*claim, Fact.NONE, "{}", retryable=rng.random() < 0.9)
            due |= sent(failed.publish)  # type: ignore[union-attr]
            scene.clock.advance(60_000)
            due |= sent(getattr(scene.store.runs.retry_due(scene.ref, step_id), "publish", ()))
            if scene.status(step_id) == "compensation_failed":
                order.append(step_id)
            continue
        answer = scene.store.guard.complete_undo(scene.ref, step_id, scene.fences[step_id], f"undo-{step_id}")
        order.append(step_id)
        due |= sent(answer.publish)  # type: ignore[union-attr]
    scene.store.runs.settle(scene.ref, 1)
    return order


def dependants_of(index: int, needs: dict[int, list[int]]) -> set[str]:
    """All steps that need this one, directly or not."""
    found: set[int] = set()
    for other in range(index + 1, len(needs)):
        if index in needs[other] or found & set(needs[other]):
            found.add(other)
    return {f"s{i}" for i in found}
