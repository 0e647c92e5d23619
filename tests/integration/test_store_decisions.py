"""People's decisions at the store: pausing, approving, resolving, starting over."""

import pytest

from orchestrator.store.decided import Retried, StillInDoubt
from orchestrator.store.replies import Granted, NotDue, OtherGeneration, Settled
from schemas.states import Fact
from tests.support.servers import Server
from tests.support.stores import Scene, clocked_store, new_step, ref_of


@pytest.fixture
def scene(redis_server: Server, namespace: str) -> Scene:
    store, clock = clocked_store(redis_server.url, namespace)
    return Scene(store, clock, ref_of("decisions"))


def sent(answer: object) -> list[str | None]:
    return [message.step_id for message in getattr(answer, "publish", ())]


def test_a_paused_run_finishes_what_runs_and_starts_nothing(scene: Scene) -> None:
    runs = scene.store.runs
    scene.accept().admit(new_step("a", 0), new_step("b", 1), new_step("c", 2, "a"), max_parallel=2)
    scene.claim("a")
    runs.pause(scene.ref, 1, "ann")
    assert scene.claim("b") == NotDue("paused")
    assert scene.status("b") == "ready"
    assert sent(scene.complete("a")) == []
    assert scene.status("c") == "ready"
    assert sorted(map(str, sent(runs.resume(scene.ref, 1, "ann")))) == ["b", "c"]
    for step_id in ("b", "c"):
        assert isinstance(scene.claim(step_id), Granted)
        scene.complete(step_id)
    assert runs.settle(scene.ref, 1).status == "succeeded"  # type: ignore[union-attr]


def test_a_paused_run_is_not_planned_until_it_is_resumed(scene: Scene) -> None:
    runs = scene.store.runs
    scene.accept()
    runs.pause(scene.ref, 1, "ann")
    assert runs.claim_plan(scene.ref, 1, "planner", "host:1:1") == NotDue("paused")
    assert [message.kind for message in runs.resume(scene.ref, 1, "ann").publish] == ["plan"]  # type: ignore[union-attr]
    scene.plan()


def test_a_retry_that_comes_due_while_paused_waits(scene: Scene) -> None:
    runs = scene.store.runs
    scene.accept().admit(new_step("a", 0))
    scene.claim("a")
    scene.store.guard.fail_step(scene.ref, "a", scene.fences["a"], "claim-a", Fact.NONE, "{}", True)
    runs.pause(scene.ref, 1, "ann")
    scene.clock.advance(60_000)
    assert sent(runs.retry_due(scene.ref, "a")) == []
    assert sent(runs.resume(scene.ref, 1, "ann")) == ["a"]


def test_a_deadline_ends_a_paused_run(scene: Scene) -> None:
    runs = scene.store.runs
    scene.accept().admit(new_step("a", 0))
    runs.pause(scene.ref, 1, "ann")
    scene.clock.advance(3_600_001)
    runs.deadline(scene.ref)
    assert runs.settle(scene.ref, 1).status == "failed"  # type: ignore[union-attr]


def test_a_cancelled_run_ends_as_cancelled(scene: Scene) -> None:
    scene.accept(on_failure="stop").admit(new_step("a", 0))
    scene.store.runs.cancel(scene.ref, 1)
    settled = scene.store.runs.settle(scene.ref, 1)
    assert isinstance(settled, Settled)
    assert (settled.status, settled.reason) == ("cancelled", "cancelled")


def test_an_approval_holds_up_only_what_needs_it(scene: Scene) -> None:
    runs = scene.store.runs
    scene.accept().admit(new_step("a", 0, approval=True), new_step("b", 1, "a"), new_step("c", 2))
    assert [scene.status(step_id) for step_id in "abc"] == ["waiting_approval", "pending", "dispatched"]
    assert sent(runs.approve(scene.ref, "a", 1, "ann", allowed=True)) == ["a"]
    scene.claim("a")
    assert sent(scene.complete("a")) == ["b"]


def test_an_approval_in_advance_lets_the_step_go_when_its_turn_comes(scene: Scene) -> None:
    scene.accept().admit(new_step("a", 0), new_step("b", 1, "a", approval=True))
    assert type(scene.store.runs.approve(scene.ref, "b", 1, "ann", allowed=True)).__name__ == "Noted"
    scene.claim("a")
    assert sent(scene.complete("a")) == ["b"]


def test_a_refused_step_ends_its_run(scene: Scene) -> None:
    scene.accept().admit(new_step("a", 0, approval=True), new_step("b", 1, "a"))
    assert sent(scene.store.runs.approve(scene.ref, "a", 1, "ann", allowed=False)) == [None]
    settled = scene.store.runs.settle(scene.ref, 1)
    assert (settled.status, settled.reason) == ("failed", "not_approved:a")  # type: ignore[union-attr]


def test_a_doubt_waits_for_a_person_and_the_rest_goes_on(scene: Scene) -> None:
    runs = scene.store.runs
    scene.accept(on_doubt="wait").admit(new_step("a", 0, effect="once"), new_step("b", 1, "a"), new_step("c", 2))
    scene.claim("a")
    scene.store.guard.fail_step(scene.ref, "a", scene.fences["a"], "claim-a", Fact.MAYBE, "{}", True)
    assert (scene.run_status, scene.status("a")) == ("running", "in_doubt")
    scene.claim("c")
    assert sent(scene.complete("c")) == []
    assert sent(runs.resolve(scene.ref, "a", scene.fences["a"], 1, "ann", landed=True, result_text='"it was"')) == ["b"]
    assert scene.store.views.result(scene.ref, "a") == '"it was"'


def test_a_doubt_that_nobody_settles_counts_as_failure(scene: Scene) -> None:
    runs = scene.store.runs
    scene.accept(on_doubt="wait", on_failure="stop").admit(new_step("a", 0, effect="once"), new_step("b", 1, "a"))
    scene.claim("a")
    scene.store.guard.fail_step(scene.ref, "a", scene.fences["a"], "claim-a", Fact.MAYBE, "{}", True)
    scene.clock.advance(86_399_999)
    assert runs.take_due(0, "waits", 10) == ()
    scene.clock.advance(1)
    (due,) = runs.take_due(0, "waits", 10)  # type: ignore[misc]
    assert sent(runs.wait_over(due.ref, str(due.step_id))) == [None]
    assert runs.settle(scene.ref, 1).reason == "in_doubt:a"  # type: ignore[union-attr]


def test_not_landed_lets_the_step_run_again_with_all_its_attempts(scene: Scene) -> None:
    scene.accept(on_doubt="wait").admit(new_step("a", 0, effect="once", max_attempts=1))
    scene.claim("a")
    scene.store.guard.fail_step(scene.ref, "a", scene.fences["a"], "claim-a", Fact.MAYBE, "{}", True)
    scene.store.runs.resolve(scene.ref, "a", scene.fences["a"], 1, "ann", landed=False)
    granted = scene.claim("a", "claim-again")
    assert (granted.attempt, granted.fence > 2) == (1, True)


# ---- asked for again, by somebody who was frozen with it


def test_a_pause_of_long_ago_holds_nothing(scene: Scene) -> None:
    runs = scene.store.runs
    scene.accept().admit(new_step("a", 0))
    answered = runs.pause(scene.ref, 1, "ann", call_id="first")
    scene.clock.advance(1000)
    runs.resume(scene.ref, 1, "bob", call_id="second")
    runs.pause(scene.ref, 1, "ann", call_id="third")
    runs.resume(scene.ref, 1, "bob", call_id="fourth")
    assert runs.pause(scene.ref, 1, "ann", call_id="first") == answered
    assert isinstance(scene.claim("a"), Granted)


@pytest.mark.parametrize("too_early", [False, True])
def test_a_resume_of_long_ago_lets_nothing_go(scene: Scene, too_early: bool) -> None:
    runs = scene.store.runs
    scene.accept().admit(new_step("a", 0))
    if not too_early:
        runs.pause(scene.ref, 1, "ann", call_id="first")
    answered = runs.resume(scene.ref, 1, "bob", call_id="second")
    runs.pause(scene.ref, 1, "ann", call_id="third")
    runs.resume(scene.ref, 1, "bob", call_id="fourth")
    runs.pause(scene.ref, 1, "ann", call_id="fifth")
    assert runs.resume(scene.ref, 1, "bob", call_id="second") == answered
    assert scene.claim("a") == NotDue("paused")


def doubt(scene: Scene, claim_id: str) -> None:
    scene.claim("a", claim_id)
    scene.store.guard.fail_step(scene.ref, "a", scene.fences["a"], claim_id, Fact.MAYBE, "{}", True)
    assert scene.status("a") == "in_doubt"


@pytest.mark.parametrize("landed", [False, True])
def test_a_word_about_an_earlier_doubt_says_nothing_of_a_later_one(scene: Scene, landed: bool) -> None:
    runs = scene.store.runs
    scene.accept(on_doubt="wait").admit(new_step("a", 0, effect="once"))
    doubt(scene, "first")
    answered = runs.resolve(scene.ref, "a", scene.fences["a"], 1, "ann", landed=False, call_id="said")
    doubt(scene, "second")
    assert runs.resolve(scene.ref, "a", scene.fences["a"], 1, "ann", landed=landed, call_id="said") == answered
    assert scene.status("a") == "in_doubt"


def test_what_was_answered_is_answered_when_the_run_has_gone_on(scene: Scene) -> None:
    """The outcome of a decision is what came of it, not what stands in its way now."""
    runs = scene.store.runs
    scene.accept(on_doubt="wait").admit(new_step("a", 0, approval=True), new_step("b", 1, "a", effect="once"))
    approved = runs.approve(scene.ref, "a", 1, "ann", allowed=True, call_id="approved")
    scene.claim("a")
    scene.complete("a")
    scene.claim("b")
    scene.store.guard.fail_step(scene.ref, "b", scene.fences["b"], "claim-b", Fact.MAYBE, "{}", True)
    resolved = runs.resolve(scene.ref, "b", scene.fences["b"], 1, "ann", landed=False, call_id="resolved")
    scene.claim("b", "again")
    ending = runs.cancel(scene.ref, 1, call_id="cancelled")
    scene.store.guard.complete_step(scene.ref, "b", scene.fences["b"], "again", "{}")
    runs.settle(scene.ref, 1)
    assert runs.approve(scene.ref, "a", 1, "ann", allowed=True, call_id="approved") == approved
    assert runs.resolve(scene.ref, "b", scene.fences["b"], 1, "ann", landed=False, call_id="resolved") == resolved
    assert runs.cancel(scene.ref, 1, call_id="cancelled") == ending


# ---- starting over


def fail(scene: Scene, step_id: str, fact: Fact = Fact.NONE) -> None:
    scene.claim(step_id)
    scene.store.guard.fail_step(scene.ref, step_id, scene.fences[step_id], f"claim-{step_id}", fact, "{}", False)
    scene.store.runs.settle(scene.ref, 1)


def claim_in(scene: Scene, generation: int, step_id: str) -> object:
    return scene.store.guard.claim_step(
        scene.ref, step_id, generation=generation, claim_id=f"second-{step_id}", worker="host:2:2"
    )


def test_a_retried_run_keeps_what_was_done(scene: Scene) -> None:
    scene.accept(on_failure="stop").admit(new_step("a", 0), new_step("b", 1, "a"), new_step("c", 2, "b"))
    scene.claim("a")
    scene.complete("a", '"kept"')
    fail(scene, "b")
    fence = scene.fences["b"]
    retried = scene.store.runs.retry(scene.ref, 1, "ann", 3_600_000)
    assert isinstance(retried, Retried)
    assert (retried.generation, retried.total, sent(retried)) == (2, 2, ["b"])
    assert claim_in(scene, 1, "b") == OtherGeneration(2)
    granted = claim_in(scene, 2, "b")
    assert isinstance(granted, Granted)
    assert (granted.attempt, granted.fence > fence) == (1, True)
    scene.store.guard.complete_step(scene.ref, "b", granted.fence, "second-b", "{}")
    granted = claim_in(scene, 2, "c")
    assert isinstance(granted, Granted)
    scene.store.guard.complete_step(scene.ref, "c", granted.fence, "second-c", "{}")
    assert scene.store.runs.settle(scene.ref, 2).status == "succeeded"  # type: ignore[union-attr]
    assert scene.store.views.result(scene.ref, "a") == '"kept"'


def test_a_once_step_in_doubt_must_be_settled_before_a_retry(scene: Scene) -> None:
    scene.accept(on_failure="stop").admit(new_step("a", 0, effect="once"))
    fail(scene, "a", Fact.MAYBE)
    runs = scene.store.runs
    assert runs.retry(scene.ref, 1, "ann", 3_600_000) == StillInDoubt("a")
    runs.resolve(scene.ref, "a", scene.fences["a"], 1, "ann", landed=False)
    assert sent(runs.retry(scene.ref, 1, "ann", 3_600_000)) == ["a"]


def test_what_may_have_happened_is_not_forgotten_by_a_retry(scene: Scene) -> None:
    """A keyed step in doubt runs again; when its new attempt fails without effect, it still is in doubt."""
    scene.accept(on_failure="stop").admit(new_step("a", 0, effect="keyed", max_attempts=1))
    fail(scene, "a", Fact.MAYBE)
    scene.store.runs.retry(scene.ref, 1, "ann", 3_600_000)
    granted = claim_in(scene, 2, "a")
    assert isinstance(granted, Granted)
    scene.store.guard.fail_step(scene.ref, "a", granted.fence, "second-a", Fact.NONE, "{}", False)
    assert scene.status("a") == "in_doubt"


def test_a_run_that_was_undone_is_not_started_over(scene: Scene) -> None:
    scene.accept().admit(new_step("a", 0, effect="keyed"), new_step("b", 1, "a"))
    scene.claim("a")
    scene.complete("a")
    fail(scene, "b")
    scene.undo("a")
    scene.store.runs.settle(scene.ref, 1)
    assert type(scene.store.runs.retry(scene.ref, 1, "ann", 3_600_000)).__name__ == "TooLate"


def test_a_dead_lettered_run_is_planned_anew(scene: Scene) -> None:
    fence = scene.accept().plan().fence
    scene.store.runs.reject_plan(scene.ref, fence, "planner", "drift", "{}")
    assert scene.store.views.run(scene.ref).error_text == "{}"  # type: ignore[union-attr]
    retried = scene.store.runs.retry(scene.ref, 1, "ann", 3_600_000)
    assert [message.kind for message in retried.publish] == ["plan"]  # type: ignore[union-attr]
    assert type(scene.store.runs.claim_plan(scene.ref, 2, "again", "host:1:1")).__name__ == "PlanGranted"
    assert scene.store.views.run(scene.ref).error_text is None  # type: ignore[union-attr]
