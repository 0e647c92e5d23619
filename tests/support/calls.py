"""Each call of the store that moves something, on a run that is prepared for it."""

from collections.abc import Callable
from typing import Any

from orchestrator.ledger.losses import STRIDE
from orchestrator.store.new import NewPlan
from orchestrator.store.restoring import Place
from schemas.states import Fact
from tests.support.stores import LEASE, Scene, new_run, new_step

PLAN = NewPlan("plan", "e" * 64, 1, 1000, (new_step("x", 0), new_step("y", 1), new_step("z", 2, "x")))

Act = Callable[[Scene], Any]


def nothing(scene: Scene) -> None:
    """No preparation."""


def accepted(scene: Scene) -> None:
    scene.accept()


def planning(scene: Scene) -> None:
    scene.accept().plan()


def dispatched(scene: Scene) -> None:
    steps = (new_step("x", 0), new_step("y", 1, "x"), new_step("z", 2, "x"))
    scene.accept().admit(*steps, max_parallel=1)


def referring(scene: Scene) -> None:
    """A step that refers to more than a claim may carry."""
    scene.accept().admit(new_step("w", 0), new_step("x", 1, "w", refs=("w",)), inputs_bytes=1)
    scene.claim("w")
    scene.complete("w")


def running(scene: Scene) -> None:
    dispatched(scene)
    scene.claim("x")


def lapsed(scene: Scene) -> None:
    running(scene)
    scene.clock.advance(LEASE + 1)


def backing_off(scene: Scene) -> None:
    running(scene)
    scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.NONE, "{}", True)
    scene.clock.advance(60_000)


def completed(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0))
    scene.claim("x")
    scene.complete("x")


def settled(scene: Scene) -> None:
    completed(scene)
    scene.store.runs.settle(scene.ref, 1)


def overdue(scene: Scene) -> None:
    dispatched(scene)
    scene.clock.advance(3_600_001)


def owing(scene: Scene) -> None:
    """x has had an effect, y has failed for good, nothing runs."""
    scene.accept().admit(new_step("w", 0, effect="keyed"), new_step("x", 1, "w", effect="keyed"), new_step("y", 2, "x"))
    for step_id in ("w", "x"):
        scene.claim(step_id)
        scene.complete(step_id)
    scene.claim("y")
    scene.store.guard.fail_step(scene.ref, "y", scene.fences["y"], "claim-y", Fact.NONE, "{}", False)


def undoing(scene: Scene) -> None:
    owing(scene)
    scene.store.runs.settle(scene.ref, 1)


def undo_claimed(scene: Scene) -> None:
    undoing(scene)
    scene.claim_undo("x")


def undo_given_up(scene: Scene) -> None:
    """x could not be undone, w was; the run has ended so."""
    undoing(scene)
    scene.undo("x", well=False)
    scene.undo("w")
    scene.store.runs.settle(scene.ref, 1)


def fail_undo(scene: Scene, retryable: bool) -> Any:
    claim = (scene.ref, "x", scene.fences["x"], "undo-x")
    return scene.store.guard.fail_undo(*claim, Fact.NONE, "{}", retryable=retryable)


def ended(scene: Scene, name: str, *args: Any) -> Any:
    return getattr(scene.store.guard, name)(scene.ref, "x", scene.fences["x"], "claim-x", *args)


def needs_approval(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0, approval=True), new_step("y", 1, "x"))


def doubtful(scene: Scene) -> None:
    """x is in doubt, and its run waits for a person."""
    scene.accept(on_doubt="wait").admit(new_step("x", 0, effect="once"), new_step("y", 1, "x"))
    scene.claim("x")
    scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.MAYBE, "{}", True)


def nobody_answered(scene: Scene) -> None:
    doubtful(scene)
    scene.clock.advance(86_400_000)


def paused(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0), new_step("y", 1), max_parallel=1)
    scene.store.runs.pause(scene.ref, 1, "ann")
    scene.claim("x")


def failed(scene: Scene) -> None:
    scene.accept(on_failure="stop").admit(new_step("x", 0), new_step("y", 1, "x"))
    scene.claim("x")
    ended(scene, "fail_step", Fact.NONE, "{}", False)
    scene.store.runs.settle(scene.ref, 1)


def accept_run(scene: Scene) -> bool:
    return scene.store.restoring.accept_run(scene.ref, Place(scene.store.scripts.server(), ""), STRIDE, 0)


CALLS: dict[str, tuple[Act, Act]] = {
    "create_run": (nothing, lambda s: s.store.runs.create_run(s.ref, new_run())),
    "claim_plan": (accepted, lambda s: s.store.runs.claim_plan(s.ref, 1, "planner", "host:1:1")),
    "admit_plan": (planning, lambda s: s.store.runs.admit_plan(s.ref, s.fences["plan"], "planner", PLAN)),
    "reject_plan": (planning, lambda s: s.store.runs.reject_plan(s.ref, s.fences["plan"], "planner", "drift", "{}")),
    "fail_plan": (planning, lambda s: s.store.runs.fail_plan(s.ref, s.fences["plan"], "planner", "{}", True)),
    "fail_plan for good": (planning, lambda s: s.store.runs.fail_plan(s.ref, s.fences["plan"], "planner", "{}", False)),
    "claim_step": (dispatched, lambda s: s.claim("x")),
    "claim_step inputs too large": (referring, lambda s: s.claim("x")),
    "renew_lease": (running, lambda s: s.store.guard.renew_lease(s.ref, "x", s.fences["x"], "claim-x")),
    "complete_step": (running, lambda s: s.complete("x")),
    "fail_step": (running, lambda s: ended(s, "fail_step", Fact.NONE, "{}", True)),
    "fail_step for good": (running, lambda s: ended(s, "fail_step", Fact.NONE, "{}", False)),
    "fail_step landed": (running, lambda s: ended(s, "fail_step", Fact.LANDED, "{}", True, '{"was":"landed"}')),
    "hand_back": (running, lambda s: ended(s, "hand_back", Fact.NONE, "snooze", 1000, 5, 0, "{}")),
    "end_claim": (running, lambda s: s.store.guard.end_claim(s.ref, "x", "host:2:2")),
    "expire_lease": (lapsed, lambda s: s.store.guard.expire_lease(s.ref, "x", s.fences["x"], Fact.NONE)),
    "settle, and undo": (owing, lambda s: s.store.runs.settle(s.ref, 1)),
    "claim_undo": (undoing, lambda s: s.claim_undo("x")),
    "complete_undo": (undo_claimed, lambda s: s.store.guard.complete_undo(s.ref, "x", s.fences["x"], "undo-x")),
    "fail_undo": (undo_claimed, lambda s: fail_undo(s, retryable=True)),
    "fail_undo for good": (undo_claimed, lambda s: fail_undo(s, retryable=False)),
    "expire_undo": (undo_claimed, lambda s: s.store.guard.expire_undo(s.ref, "x", s.fences["x"], Fact.NONE)),
    "undo_again": (undo_given_up, lambda s: s.store.runs.undo_again(s.ref, "x", s.fences["x"], "ann")),
    "settle": (completed, lambda s: s.store.runs.settle(s.ref, 1)),
    "confirm_end": (settled, lambda s: s.store.runs.confirm_end(s.ref, 1)),
    "cancel": (running, lambda s: s.store.runs.cancel(s.ref, 1)),
    "cancel early": (accepted, lambda s: s.store.runs.cancel(s.ref, 1)),
    "deadline": (overdue, lambda s: s.store.runs.deadline(s.ref)),
    "pause": (dispatched, lambda s: s.store.runs.pause(s.ref, 1, "ann")),
    "resume": (paused, lambda s: s.store.runs.resume(s.ref, 1, "ann")),
    "approve": (needs_approval, lambda s: s.store.runs.approve(s.ref, "x", 1, "ann", allowed=True)),
    "approve, refused": (needs_approval, lambda s: s.store.runs.approve(s.ref, "x", 1, "ann", allowed=False)),
    "resolve": (doubtful, lambda s: s.store.runs.resolve(s.ref, "x", s.fences["x"], 1, "ann", landed=True)),
    "resolve, not landed": (
        doubtful,
        lambda s: s.store.runs.resolve(s.ref, "x", s.fences["x"], 1, "ann", landed=False),
    ),
    "wait_over": (nobody_answered, lambda s: s.store.runs.wait_over(s.ref, "x")),
    "retry": (failed, lambda s: s.store.runs.retry(s.ref, 1, "ann", 3_600_000)),
    "retry_due": (backing_off, lambda s: s.store.runs.retry_due(s.ref, "x")),
    "accept_run": (running, accept_run),
}
