"""Every state against every event, on the real server, as the machine's table has it."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from orchestrator import machine
from orchestrator.machine import RUN_RULES, RUN_STATES, STEP_RULES, UNDO_RULES, Rule
from orchestrator.store.new import NewPlan
from schemas.states import Fact
from tests.support.stores import LEASE, Scene, new_step

STEP_STATES = (*machine.IDLE, "running", *machine.DONE)


def rule_id(rule: Rule) -> str:
    return f"{rule.state}-{rule.event}-{rule.guard or 'always'}".replace(" ", "_").replace(",", "")


def pairs(rules: tuple[Rule, ...]) -> set[tuple[str, str]]:
    return {(rule.state, rule.event) for rule in rules}


def test_the_table_answers_every_event_in_every_state() -> None:
    """deadline and confirm_end are a run's; cancel reaches the steps through their run."""
    step_events = {rule.event for rule in STEP_RULES} - {"cancel", "retry"}
    assert set(product(STEP_STATES, step_events)) <= pairs(STEP_RULES)
    undo_events = {"claim_undo", "complete_undo", "fail_undo", "expire_undo", "undo_again", *step_events}
    assert {("compensating", event) for event in undo_events} <= pairs(UNDO_RULES)
    run_events = {rule.event for rule in RUN_RULES}
    assert set(product(RUN_STATES, run_events)) <= pairs(RUN_RULES)


# ---- steps: x is the step that is looked at; k keeps running, so that a failing run does not settle


def setting(rule: Rule) -> dict[str, Any]:
    """How the subject is declared for this rule."""
    guard, effect = rule.guard, "pure"
    if "maybe" in guard or "touched" in guard.split(", ") or rule.state == "in_doubt" or "not pure" in guard:
        effect = "keyed"
    once = {"max_attempts": 1}
    last = "no attempts left" in guard or rule.state in ("failed", "in_doubt")
    effect = "once" if "once" in guard else effect
    asked = rule.state == "waiting_approval" or "needs approval" in guard
    return {
        "approval": asked,
        "effect": effect,
        **(once if last else {}),
        **({"refs": ("big",)} if "inputs" in guard else {}),
    }


def stage(scene: Scene, rule: Rule) -> None:
    """A run in which x is in the rule's state."""
    needs = ("k",) if rule.state == "pending" else ("big",) if "inputs" in rule.guard else ()
    room = 2 if rule.state == "ready" else 100
    # with room for two, k and o keep x waiting; it is dispatched when o ends
    steps = [new_step("k", 0), new_step("big" if "inputs" in rule.guard else "o", 1)]
    subject = new_step("x", len(steps), *needs, **setting(rule))
    # y takes the room that x leaves when it fails
    behind = [new_step("y", 3)] if rule.state == "ready" else []
    doubt = {"on_doubt": "wait"} if "run waits" in rule.guard or rule.event == "wait_over" else {}
    scene.accept(**doubt, on_failure="stop").admit(*steps, subject, *behind, max_parallel=room, inputs_bytes=10)
    scene.claim("k")
    if "inputs" in rule.guard:
        scene.claim("big")
        scene.complete("big", '""' if "touched" in rule.guard else '"0123456789"')
    TO_STATE[rule.state](scene, rule)
    for word, act in GUARDS.items():
        if word in rule.guard.split(", "):
            act(scene, rule)


def fail(scene: Scene, fact: Fact = Fact.NONE, step_id: str = "x") -> Any:
    return scene.store.guard.fail_step(
        scene.ref, step_id, scene.fences.get(step_id, 0), f"claim-{step_id}", fact, "{}", True
    )


def back_off(scene: Scene, fact: Fact = Fact.NONE) -> None:
    scene.claim("x")
    fail(scene, fact)


def skip(scene: Scene) -> None:
    """Another step fails for good while x waits."""
    scene.claim("o")
    fail_for_good(scene, "o")


def start(scene: Scene, rule: Rule) -> None:
    if "fail_step" in rule.event or rule.event in ("hand_back", "expire_lease"):
        scene.claim("o")
    scene.claim("x")


def touched(scene: Scene, rule: Rule) -> None:
    """x has been tried before, and may have had its effect; where it has not begun again, its run was started over."""
    if rule.state == "backoff":
        return
    if rule.state in ("pending", "waiting_approval") or "inputs" in rule.guard:
        start_over(scene, rule)
        return
    if rule.state == "ready":
        scene.complete("o")
    back_off(scene, Fact.MAYBE)
    scene.clock.advance(2000)
    scene.store.runs.retry_due(scene.ref, "x")


def start_over(scene: Scene, rule: Rule) -> None:
    """x waits again, in the second generation, behind what it needs or for the same person."""
    if rule.state == "waiting_approval":
        scene.store.runs.approve(scene.ref, "x", 1, "ann", allowed=True)
    if rule.state == "pending":
        scene.complete("k")
    back_off(scene, Fact.MAYBE)
    scene.store.runs.cancel(scene.ref, 1)
    scene.complete("k")
    scene.store.runs.settle(scene.ref, 1)
    again = {"pending": ["k", "x"], "dispatched": ["big", "x"]}.get(rule.state, [])
    scene.store.runs.retry(scene.ref, 1, "ann", 3_600_000, again)
    scene.generation = 2
    if "inputs" in rule.guard:
        scene.claim("big")
        scene.complete("big", '"0123456789"')


def to_ready(scene: Scene, rule: Rule) -> None:
    scene.claim("o")


def void(*answers: Any) -> None:
    """Answers that the stage does not look at."""


TO_STATE: dict[str, Callable[[Scene, Rule], None]] = {
    "pending": lambda scene, rule: None,
    "waiting_approval": lambda scene, rule: None,
    "ready": to_ready,
    "dispatched": lambda scene, rule: None,
    "running": start,
    "backoff": lambda scene, rule: back_off(scene, Fact.MAYBE if rule.guard == "touched" else Fact.NONE),
    "completed": lambda scene, rule: void(scene.claim("x"), scene.complete("x")),
    "failed": lambda scene, rule: back_off(scene),
    "in_doubt": lambda scene, rule: back_off(scene, Fact.MAYBE),
    "skipped": lambda scene, _rule: skip(scene),
}


def end_run(scene: Scene, rule: Rule) -> None:
    """The other steps end too, one of them badly where x did not."""
    if rule.state == "completed":
        scene.claim("o")
        fail_for_good(scene, "o")
    scene.complete("k")
    scene.store.runs.settle(scene.ref, 1)


def fail_for_good(scene: Scene, step_id: str) -> None:
    scene.store.guard.fail_step(scene.ref, step_id, scene.fences[step_id], f"claim-{step_id}", Fact.NONE, "{}", False)


GUARDS: dict[str, Callable[[Scene, Rule], None]] = {
    "touched": touched,
    "dead": lambda scene, rule: void(scene.store.guard.end_claim(scene.ref, "x", "host:2:2")),
    "lapsed": lambda scene, rule: scene.clock.advance(LEASE + 1),
    "wait over": lambda scene, rule: scene.clock.advance(86_400_000 if rule.event == "wait_over" else 60_000),
    "paused": lambda scene, rule: void(scene.store.runs.pause(scene.ref, 1, "ann")),
    "run ended": end_run,
    "run failing": lambda scene, rule: void(scene.store.runs.cancel(scene.ref, 1)),
}


def fact_of(rule: Rule) -> Fact:
    return Fact.LANDED if "landed" in rule.guard else Fact.MAYBE if "maybe" in rule.guard else Fact.NONE


def claim_of(rule: Rule) -> str:
    return "somebody-else" if rule.guard == "other holder" else "claim-x"


def fence_of(scene: Scene, rule: Rule) -> int:
    fence = scene.fences.get("x", 0)
    return fence + 7 if rule.guard == "other holder" else fence


def hand_back(scene: Scene, rule: Rule) -> Any:
    return scene.store.guard.hand_back(
        scene.ref,
        "x",
        fence_of(scene, rule),
        claim_of(rule),
        fact_of(rule),
        "snooze",
        1000,
        0 if rule.guard == "too often" else 5,
        0,
        "{}",
    )


EVENTS: dict[str, Callable[[Scene, Rule], Any]] = {
    "claim_step": lambda s, r: s.claim("x", "claim-next"),
    "renew_lease": lambda s, r: s.store.guard.renew_lease(s.ref, "x", fence_of(s, r), claim_of(r)),
    "complete_step": lambda s, r: s.store.guard.complete_step(s.ref, "x", fence_of(s, r), other(s, r), "{}"),
    "fail_step": lambda s, r: s.store.guard.fail_step(s.ref, "x", fence_of(s, r), other(s, r), fact_of(r), "{}", True),
    "hand_back": hand_back,
    "expire_lease": lambda s, r: s.store.guard.expire_lease(s.ref, "x", unanswered(s, r), fact_of(r)),
    "end_claim": lambda s, r: s.store.guard.end_claim(s.ref, "x", "host:9:9" if "other" in r.guard else "host:2:2"),
    "retry_due": lambda s, r: s.store.runs.retry_due(s.ref, "x"),
    "check_dispatch": lambda s, r: s.store.runs.check_dispatch(s.ref, "x", r.guard != "backlog"),
    "cancel": lambda s, r: s.store.runs.cancel(s.ref, s.generation),
    "approve": lambda s, r: s.store.runs.approve(s.ref, "x", s.generation, "ann", allowed="refused" not in r.guard),
    "resolve": lambda s, r: s.store.runs.resolve(
        s.ref, "x", s.fences.get("x", 0), 1, "ann", landed=r.guard == "landed"
    ),
    "wait_over": lambda s, r: s.store.runs.wait_over(s.ref, "x"),
    "retry": lambda s, r: s.store.runs.retry(s.ref, 1, "ann", 3_600_000, ["x"] if "again" in r.guard else []),
}


def other(scene: Scene, rule: Rule) -> str:
    """A repeat of one's own call answers what it answered; these are calls of somebody who came late."""
    return claim_of(rule) if rule.state == "running" else "somebody-late"


def unanswered(scene: Scene, rule: Rule) -> int:
    return fence_of(scene, rule) if rule.state == "running" else 999


WORDS = {
    "ok": "Renewed", "lost": "Lost", "stop": "StopNow", "granted": "Granted", "busy": "Busy", "not_due": "NotDue",
    "completed": "Completed", "close_first": "CloseFirst", "exhausted": "Exhausted", "committed": "Committed",
    "inputs_too_large": "InputsTooLarge", "retry_at": "RetryAt", "failed": "Failed", "skipped": "Skipped",
    "in_doubt": "InDoubt", "too_often": "TooOften", "again": "Again", "not_lapsed": "NotLapsed", "fenced": "Fenced",
    "ended": "Ended", "other": "Other", "republish": "Republish", "later": "Later", "ending": "Ending",
    "stored": "Stored", "admitted": "Admitted", "rejected": "Rejected", "settled": "Settled", "waiting": "Waiting",
    "confirmed": "Confirmed", "too_late": "TooLate", "plan_again": "Again", "compensating": "Compensating",
    "given_up": "UndoGivenUp", "owing": "Owing",
    "noted": "Noted", "paused": "Paused", "resumed": "Resumed", "retried": "Retried",
    "undoing": "Undoing",
}  # fmt: skip


def word_of(rule: Rule) -> str:
    if "claim" in rule.event and rule.reply in ("stop", "granted"):
        return {"stop": "Stop", "granted": "PlanGranted" if rule.event == "claim_plan" else "Granted"}[rule.reply]
    if rule.event == "retry" and rule.reply == "in_doubt":
        return "StillInDoubt"
    return WORDS[rule.reply]


@pytest.mark.parametrize("rule", STEP_RULES, ids=rule_id)
def test_a_step_moves_as_the_table_says(scene: Scene, rule: Rule) -> None:
    stage(scene, rule)
    assert scene.status("x") == rule.state
    before = scene.version
    answer = EVENTS[rule.event](scene, rule)
    assert type(answer).__name__ == word_of(rule)
    assert scene.status("x") == (rule.after or rule.state)
    if rule.after:
        assert scene.version == before + 1


# ---- undoing: b needs a; c fails. So b is undone before a


def stage_undo(scene: Scene, rule: Rule) -> None:
    """x is the step that the rule is about: one that nothing needs, or the first one where another needs it."""
    first, last = ("x", "y") if "needed by" in rule.guard else ("w", "x")
    once = "no attempts left" in rule.guard or rule.state == "compensation_failed"
    effect = {"effect": "once" if once else "keyed"}
    steps = (new_step(first, 0, **effect), new_step(last, 1, first, **effect), new_step("v", 2, first, **effect))
    scene.accept().admit(*steps, new_step("k", 3))
    for step_id in (first, "v", last, "k"):
        scene.claim(step_id)
        if step_id in (first, "v"):
            scene.complete(step_id)
    if rule.state == "in_doubt":
        scene.store.guard.fail_step(scene.ref, last, scene.fences[last], f"claim-{last}", Fact.MAYBE, "{}", False)
        scene.complete("k")
    else:
        scene.complete(last)
        scene.store.guard.fail_step(scene.ref, "k", scene.fences["k"], "claim-k", Fact.NONE, "{}", False)
    if rule.event != "settle":
        scene.store.runs.settle(scene.ref, 1)
        stage_claim_of_undo(scene, rule)


def stage_claim_of_undo(scene: Scene, rule: Rule) -> None:
    if rule.state in ("compensated", "compensation_failed"):
        scene.undo("x", well=rule.state == "compensated")
        if rule.event == "undo_again" and not rule.guard and rule.after:
            for step_id in ("v", "w"):
                scene.undo(step_id)
            scene.store.runs.settle(scene.ref, 1)
        return
    if "sent" in rule.guard or rule.event == "check_dispatch":
        return
    scene.claim_undo("x")
    if "dead" in rule.guard:
        scene.store.guard.end_claim(scene.ref, "x", "host:3:3")
    if rule.guard.startswith(("wait", "backing")):
        scene.store.guard.fail_undo(scene.ref, "x", scene.fences["x"], "undo-x", Fact.NONE, "{}", True)
    if rule.guard == "wait over":
        scene.clock.advance(60_000)


def undo_fact(rule: Rule) -> Fact:
    """A `once` undo that may have happened is not tried again: no attempts left."""
    return Fact.LANDED if "landed" in rule.guard else Fact.MAYBE if "no attempts" in rule.guard else Fact.NONE


UNDO_EVENTS: dict[str, Callable[[Scene, Rule], Any]] = {
    **EVENTS,
    "settle": lambda s, r: s.store.runs.settle(s.ref, 1),
    "claim_undo": lambda s, r: s.claim_undo("x", "undo-next"),
    "complete_undo": lambda s, r: s.store.guard.complete_undo(s.ref, "x", fence_of(s, r), undoer(r)),
    "fail_undo": lambda s, r: s.store.guard.fail_undo(
        s.ref, "x", fence_of(s, r), undoer(r), undo_fact(r), "{}", retryable=True
    ),
    "expire_undo": lambda s, r: s.store.guard.expire_undo(s.ref, "x", fence_of(s, r), undo_fact(r)),
    "renew_lease": lambda s, r: s.store.guard.renew_lease(
        s.ref, "x", fence_of(s, r), undoer(r), "undo" if "undo" in r.guard else "do"
    ),
    "end_claim": lambda s, r: s.store.guard.end_claim(s.ref, "x", "host:9:9" if "other" in r.guard else "host:3:3"),
    "undo_again": lambda s, r: s.store.runs.undo_again(s.ref, "x", s.fences["x"] - (r.guard == "other undo"), "ann"),
}


def undoer(rule: Rule) -> str:
    return "somebody-else" if "other" in rule.guard else "undo-x"


@pytest.mark.parametrize("rule", UNDO_RULES, ids=rule_id)
def test_an_undo_moves_as_the_table_says(scene: Scene, rule: Rule) -> None:
    stage_undo(scene, rule)
    assert scene.status("x") == rule.state
    before = scene.version
    answer = UNDO_EVENTS[rule.event](scene, rule)
    expected = "UndoGranted" if rule.reply == "granted" else word_of(rule)
    assert type(answer).__name__ == expected
    assert scene.status("x") == (rule.after or rule.state)
    if rule.after:
        assert scene.version == before + 1


# ---- runs


def run_running(scene: Scene, rule: Rule) -> None:
    scene.accept().admit(new_step("x", 0), new_step("k", 1))
    if "all completed" in rule.guard:
        for step_id in ("x", "k"):
            scene.claim(step_id)
            scene.complete(step_id)


def run_failing(scene: Scene, rule: Rule) -> None:
    """k completes with an effect, which is owed an undo, where the rule says so."""
    keyed = {"effect": "keyed"} if "undo owed" in rule.guard else {}
    scene.accept().admit(new_step("x", 0), new_step("k", 1, **keyed))
    scene.claim("x")
    if "none runs" in rule.guard:
        scene.claim("k")
        scene.complete("k")
    if "cancelled" in rule.guard:
        scene.store.runs.cancel(scene.ref, 1)
        scene.complete("x")
        return
    if "none runs" not in rule.guard:
        scene.claim("k")
    scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.NONE, "{}", False)


def run_compensating(scene: Scene, rule: Rule) -> None:
    """k is owed an undo, and has it where the rule says so."""
    scene.accept().admit(new_step("x", 0), new_step("k", 1, effect="keyed"))
    for step_id in ("x", "k"):
        scene.claim(step_id)
    scene.complete("k")
    scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.NONE, "{}", False)
    scene.store.runs.settle(scene.ref, 1)
    if "undone" in rule.guard:
        scene.undo("k", well=rule.guard == "all undone")


def run_ended(scene: Scene, status: str, *, planned: bool = False) -> None:
    if planned and status in ("failed", "cancelled"):
        scene.accept().admit(new_step("x", 0))
        if status == "failed":
            scene.claim("x")
            fail_for_good(scene, "x")
        else:
            scene.store.runs.cancel(scene.ref, 1)
        scene.store.runs.settle(scene.ref, 1)
        return
    if status == "cancelled":
        scene.accept().store.runs.cancel(scene.ref, 1)
    elif status == "dead_lettered":
        fence = scene.accept().plan().fence
        scene.store.runs.reject_plan(scene.ref, fence, "planner", "payload drift", "{}")
    elif status == "failed":
        fence = scene.accept().plan().fence
        scene.store.runs.fail_plan(scene.ref, fence, "planner", "{}", False)
    elif status == "succeeded":
        scene.accept().admit(new_step("x", 0))
        scene.claim("x")
        scene.complete("x")
        scene.store.runs.settle(scene.ref, 1)
    else:
        run_compensating(scene, Rule("compensating", "settle", "", None, "", ""))
        scene.undo("k", well=status == "compensated")
        scene.store.runs.settle(scene.ref, 1)


def run_planning(scene: Scene, rule: Rule) -> None:
    scene.accept(tries=1 if "no attempts left" in rule.guard else 2).plan()


def pause(scene: Scene, rule: Rule) -> None:
    if rule.guard == "paused":
        scene.store.runs.pause(scene.ref, 1, "ann")


def run_accepted(scene: Scene, rule: Rule) -> None:
    scene.accept()
    if rule.guard.startswith("wait"):
        scene.plan()
        scene.store.runs.fail_plan(scene.ref, scene.fences["plan"], "planner", "{}", True)


def stage_run(scene: Scene, rule: Rule) -> None:
    stages = {
        "accepted": run_accepted,
        "planning": run_planning,
        "running": run_running,
        "failing": run_failing,
        "compensating": run_compensating,
    }
    if rule.state in stages:
        stages[rule.state](scene, rule)
    else:
        run_ended(scene, rule.state, planned=rule.event == "retry" and rule.guard != "without a plan")
    pause(scene, rule)
    if "lapsed" in rule.guard:
        scene.clock.advance(LEASE + 1)
    if rule.guard == "wait over":
        scene.clock.advance(60_000)
    if "time is up" in rule.guard:
        scene.clock.advance(3_600_001)


def plan_fence(scene: Scene, rule: Rule) -> int:
    return scene.fences.get("plan", 0) + (7 if rule.guard == "other holder" else 0)


def planner(rule: Rule) -> str:
    return "planner" if rule.state == "planning" else "a late planner"


def admit(scene: Scene, rule: Rule) -> Any:
    plan = NewPlan("plan", "e" * 64, 10, 1000, (new_step("x", 0),))
    return scene.store.runs.admit_plan(scene.ref, plan_fence(scene, rule), planner(rule), plan)


RUN_EVENTS: dict[str, Callable[[Scene, Rule], Any]] = {
    "claim_plan": lambda s, r: s.store.runs.claim_plan(s.ref, 1, "another planner", "host:1:1"),
    "admit_plan": admit,
    "reject_plan": lambda s, r: s.store.runs.reject_plan(s.ref, plan_fence(s, r), planner(r), "drift", "{}"),
    "fail_plan": lambda s, r: s.store.runs.fail_plan(s.ref, plan_fence(s, r), planner(r), "{}", True),
    "expire_plan": lambda s, r: s.store.runs.expire_plan(s.ref),
    "settle": lambda s, r: s.store.runs.settle(s.ref, 1, undo=not r.guard.endswith("not yet")),
    "pause": lambda s, r: s.store.runs.pause(s.ref, 1, "ann"),
    "resume": lambda s, r: s.store.runs.resume(s.ref, 1, "ann"),
    "retry": lambda s, r: s.store.runs.retry(s.ref, 1, "ann", 3_600_000),
    "undo_again": lambda s, r: s.store.runs.undo_again(s.ref, "k", s.fences.get("k", 0), "ann"),
    "confirm_end": lambda s, r: s.store.runs.confirm_end(s.ref, 1),
    "cancel": lambda s, r: s.store.runs.cancel(s.ref, 1),
    "deadline": lambda s, r: s.store.runs.deadline(s.ref),
    "retry_due": lambda s, r: s.store.runs.retry_due(s.ref, None),
    "check_dispatch": lambda s, r: s.store.runs.check_dispatch(s.ref, None, r.guard != "backlog"),
}


@pytest.mark.parametrize("rule", RUN_RULES, ids=rule_id)
def test_a_run_moves_as_the_table_says(scene: Scene, rule: Rule) -> None:
    stage_run(scene, rule)
    assert scene.run_status == rule.state
    answer = RUN_EVENTS[rule.event](scene, rule)
    assert type(answer).__name__ == word_of(rule)
    assert scene.run_status == (rule.after or rule.state)
