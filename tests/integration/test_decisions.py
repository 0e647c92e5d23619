"""People's decisions on real servers: written down, carried out, and finished wherever they broke off."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator import decisions, dispatch
from orchestrator.decisions import Decided, Desk
from orchestrator.errors import DecisionRefused, NotFound, StoreMoved, StoreUnavailable
from orchestrator.ledger import AlreadyLanded, Closed, Landed, Opened
from orchestrator.startover import Again
from orchestrator.store.replies import Granted
from orchestrator.supervisors import apply_decisions, end_waits
from orchestrator.supervisors.passes import Counts
from schemas.ids import RunRef
from schemas.states import EffectClass, Fact
from tests.support.ledgers import run_named
from tests.support.servers import Server
from tests.support.stores import ref_of
from tests.support.world import World, world_on


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture
def world(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[World]:
    with world_on(redis_server, namespace, tmp_path) as made:
        yield made


# ---- each decision, and each place at which its process may end


def waiting(world: World) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0, approval=True), world.step("b", 1, "a"))


def doubtful(world: World) -> None:
    world.accept(on_doubt="wait", on_failure="stop").admit(
        world.step("a", 0, effect="once"), world.step("b", 1, "a"), world.step("c", 2)
    )
    world.fail("a", Fact.MAYBE)


def running(world: World) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0), world.step("b", 1, "a"))


def paused(world: World) -> None:
    running(world)
    world.store.runs.pause(world.ref, 1, "bob")
    world.claim("a")


def failed(world: World) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0), world.step("b", 1, "a"), world.step("c", 2, "b"))
    world.claim("a")
    world.complete("a", '"kept"')
    world.fail("b")
    world.settle()
    assert world.row.ended_at is not None


def is_cancelled(world: World) -> None:
    world.settle()
    assert (world.run.status, world.row.status) == ("cancelled", "cancelled")


def is_paused(world: World) -> None:
    assert (world.run.paused_by, world.run.paused_at > 0) == ("ann", True)


def goes_on(world: World) -> None:
    assert world.run.paused_at == 0
    assert isinstance(world.claim("a"), Granted)


def may_start(world: World) -> None:
    assert isinstance(world.claim("a"), Granted)
    assert world.depth() >= 1


def was_refused(world: World) -> None:
    world.settle()
    assert (world.run.status, world.run.reason) == ("failed", "not_approved:a")


def has_landed(world: World) -> None:
    assert (world.status("a"), world.status("b")) == ("completed", "dispatched")
    assert world.store.views.result(world.ref, "a") == '{"shipped":7}'
    step = world.store.views.step(world.ref, "a")
    assert step is not None
    closed = world.ledger.effects.close(world.run_id, "a", "do", step.fence)
    assert (closed.state, closed.result_text) == ("landed", '{"shipped":7}')


def runs_again(world: World) -> None:
    granted = world.claim("a", "again")
    assert (granted.attempt, granted.fence > 2) == (1, True)
    opened = world.ledger.effects.open(world.run_id, "a", "do", granted.fence, granted.token, EffectClass.ONCE)
    assert type(opened).__name__ == "Opened"


def starts_over(world: World) -> None:
    assert (world.run.status, world.run.generation) == ("running", 2)
    assert (world.row.status, world.row.generation, world.row.ended_at) == ("running", 2, None)
    assert world.store.views.result(world.ref, "a") == '"kept"'
    granted = world.claim_again("b", 2)
    assert (granted.attempt, world.depth() >= 1) == (1, True)
    key = world.app.backend.get_key_for_group(f"{world.run_id}.g2", ".s")
    assert int(world.app.backend.client.get(key)) == 2


def paid(world: World) -> None:
    """a gets a price, b pays it, c fails."""
    world.accept(on_failure="stop").admit(
        world.step("a", 0), world.step("b", 1, "a", effect="keyed"), world.step("c", 2, "b")
    )
    world.claim("a")
    world.complete("a", '"price"')
    did(world, "b")
    world.fail("c")
    world.settle()


def gives_back(world: World) -> None:
    assert [world.status(step_id) for step_id in "abc"] == ["dispatched", "pending", "pending"]
    redo(world, "a")
    granted = world.claim_again("b", 2)
    assert (granted.attempt_group, opened(world, "b", granted)) == (0, AlreadyLanded("{}"))


def pays_again(world: World) -> None:
    assert [world.status(step_id) for step_id in "abc"] == ["completed", "dispatched", "pending"]
    granted = world.claim_again("b", 2)
    assert (granted.attempt_group, opened(world, "b", granted)) == (1, Opened())
    (kept,) = world.ledger.decisions_of(world.run_id)
    assert kept.details_text is not None
    (former,) = json.loads(kept.details_text)["new_keys"]
    assert (former["step_id"], former["attempt_group"], former["result_text"]) == ("b", 0, "{}")


def redo(world: World, step_id: str) -> None:
    granted = world.claim_again(step_id, 2)
    world.store.guard.complete_step(world.ref, step_id, granted.fence, f"again-{step_id}", "{}")


def opened(world: World, step_id: str, granted: Granted) -> Any:
    return world.ledger.effects.open(
        world.run_id, step_id, "do", granted.fence, granted.token, EffectClass(granted.effect)
    )


@dataclass(frozen=True)
class Case:
    """A decision, the run it is made about, and what is to be seen afterwards."""

    before: Callable[[World], None]
    decide: Callable[[Desk, str], Decided]
    outcome: str
    after: Callable[[World], None]


CASES = {
    "cancel": Case(running, lambda desk, run: decisions.cancel(desk, run, "ann", "too dear"), "ending", is_cancelled),
    "pause": Case(running, lambda desk, run: decisions.pause(desk, run, "ann"), "paused", is_paused),
    "resume": Case(paused, lambda desk, run: decisions.resume(desk, run, "ann"), "resumed", goes_on),
    "approve": Case(waiting, lambda desk, run: decisions.approve(desk, run, "ann"), "again", may_start),
    "refuse": Case(
        waiting, lambda desk, run: decisions.approve(desk, run, "ann", "no", "a", allowed=False), "failed", was_refused
    ),
    "landed": Case(
        doubtful,
        lambda desk, run: decisions.resolve(desk, run, "ann", landed=True, result={"shipped": 7}),
        "committed",
        has_landed,
    ),
    "not landed": Case(
        doubtful, lambda desk, run: decisions.resolve(desk, run, "ann", landed=False), "again", runs_again
    ),
    "retry": Case(failed, lambda desk, run: decisions.retry(desk, run, "ann"), "retried:2", starts_over),
    "retry from": Case(
        paid, lambda desk, run: decisions.retry(desk, run, "ann", again=Again(("a",))), "retried:2", gives_back
    ),
    "new key": Case(
        paid, lambda desk, run: decisions.retry(desk, run, "ann", again=Again(("b",), ("b",))), "retried:2", pays_again
    ),
}
# the calls behind which nothing more of the deciding process is seen; the second and third are few decisions' own
PLACES = (
    "ledger.decide",
    "ledger.answer_effect",
    "rows",
    "store.runs",
    "ledger.reopen_run",
    "publish",
    "ledger.decision_done",
)


@pytest.mark.parametrize("name", CASES)
def test_a_decision_is_carried_out_and_remembered(world: World, name: str) -> None:
    case = CASES[name]
    case.before(world)
    decided = case.decide(world.desk, world.run_id)
    assert (decided.outcome, decided.carried_out) == (case.outcome, True)
    case.after(world)
    (kept,) = world.ledger.decisions_of(world.run_id)
    assert (kept.made_by, kept.generation, kept.outcome) == ("ann", 1, case.outcome)
    assert world.repeat() == Counts()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("before_it", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("name", CASES)
def test_wherever_it_breaks_off_the_supervisor_finishes_it(
    world: World, name: str, place: str, before_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    case.before(world)
    broke = crash_at(world, place, case, monkeypatch, before_it)
    try:
        case.decide(world.desk, world.run_id)
    except Crash:
        assert broke
    monkeypatch.undo()
    if place == "ledger.decide" and before_it:
        assert world.ledger.decisions_of(world.run_id) == []  # nobody was told that anything was decided
        case.decide(world.desk, world.run_id)
    world.repeat()
    (kept,) = world.ledger.decisions_of(world.run_id)
    assert kept.outcome == case.outcome
    case.after(world)
    assert world.repeat() == Counts()


def crash_at(world: World, place: str, case: Case, monkeypatch: pytest.MonkeyPatch, before_it: bool) -> list[str]:
    """Have the process end at a call, before it or behind it. Answers a list that is filled when that happens."""
    broke: list[str] = []

    def breaking(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            broke.append(place)
            if not before_it:
                call(*args, **kwargs)
            raise Crash

        return wrapped

    if place == "publish":
        monkeypatch.setattr(dispatch, "publish", breaking(dispatch.publish))
    elif place == "rows":
        monkeypatch.setattr(world.ledger.effects, "set_aside", breaking(world.ledger.effects.set_aside))
    elif place == "store.runs":
        for method in decisions.KINDS:
            monkeypatch.setattr(world.store.runs, method, breaking(getattr(world.store.runs, method)))
    else:
        method = place.removeprefix("ledger.")
        monkeypatch.setattr(world.ledger, method, breaking(getattr(world.ledger, method)))
    return broke


@pytest.mark.parametrize("name", CASES)
def test_two_people_at_once_decide_it_once(world: World, name: str) -> None:
    case = CASES[name]
    case.before(world)
    with ThreadPoolExecutor(2) as pool:
        answers = [
            future.exception() or future.result()
            for future in [pool.submit(case.decide, world.desk, world.run_id) for _ in range(2)]
        ]
    outcomes = [answer.outcome for answer in answers if isinstance(answer, Decided)]
    assert case.outcome in outcomes
    late = ("too_late", "waiting", "not_due", "other_generation", case.outcome.partition(":")[0])
    assert all(outcome.startswith(late) for outcome in outcomes)
    assert all(isinstance(answer, Decided | DecisionRefused) for answer in answers)
    case.after(world)
    moved = [event.event for event in world.store.views.events(world.ref) if event.event in ONCE]
    assert len(moved) == len(set(moved))


ONCE = {"run.cancel", "run.retried", "step.approved", "step.refused", "step.resolved"}


@pytest.mark.parametrize("name", ["cancel", "pause"])
def test_a_decision_of_a_former_generation_is_dropped(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written down, its process ended, somebody started the run over: it was about another run, so to speak."""
    failed(world)
    decision_id = world.ledger.decide(world.run_id, 1, name, "ann", None)
    world.store.runs.retry(world.ref, 1, "bob", 3_600_000)
    world.ledger.reopen_run(world.run_id, 2, world.row.status)
    world.repeat()
    kept = world.ledger.decision(decision_id)
    assert kept is not None
    assert kept.outcome == "other_generation:2"
    assert (world.run.status, world.run.paused_at) == ("running", 0)


def test_decisions_about_one_run_are_carried_out_in_their_order(world: World) -> None:
    running(world)
    world.ledger.decide(world.run_id, 1, "pause", "ann", None)
    decided = decisions.resume(world.desk, world.run_id, "bob")
    assert decided.outcome == "resumed"
    assert world.run.paused_at == 0
    assert [kept.outcome for kept in world.ledger.decisions_of(world.run_id)] == ["paused", "resumed"]


def test_one_that_cannot_be_carried_out_keeps_back_later_ones_about_its_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world)

    def shut(*_: Any, **__: Any) -> Any:
        raise StoreMoved("another server")

    for kind in ("pause", "resume"):
        world.ledger.decide(world.run_id, 1, kind, "ann", None)
    with monkeypatch.context() as patched:
        patched.setattr(world.store.runs, "pause", shut)
        assert world.repeat() == Counts(taken=1, failed=1)
    assert world.repeat() == Counts(taken=2, moved=2)
    assert [kept.outcome for kept in world.ledger.decisions_of(world.run_id)] == ["paused", "resumed"]


def test_decisions_about_a_shard_that_is_shut_stand_in_nobodys_way(
    redis_server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_decisions, "AT_ONCE", 1)
    with world_on(redis_server, namespace, tmp_path, shards=2) as world:
        running(world)
        names = [name for name in "abcdef" if world.store.keys.shard_of(ref_of(name).run_id) == 0]
        redis_server.client.delete(world.store.keys.prefix(0) + "epoch")
        for name in names:
            world.ledger.accept(run_named(name, namespace=namespace))
            world.ledger.decide(ref_of(name).run_id, 1, "pause", "ann", None)
        world.ledger.decide(world.run_id, 1, "pause", "ann", None)
        assert world.repeat() == Counts(taken=len(names) + 1, moved=1, failed=len(names))
        is_paused(world)


def test_a_repeated_pause_does_not_undo_a_later_resume(world: World) -> None:
    running(world)
    runs = world.store.runs
    first = runs.pause(world.ref, 1, "ann", call_id="first")
    runs.resume(world.ref, 1, "bob", call_id="second")
    assert runs.pause(world.ref, 1, "ann", call_id="first") == first
    assert world.run.paused_at == 0


def test_without_the_store_a_decision_is_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running(world)

    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("no answer", hint="is Redis running?")

    monkeypatch.setattr(world.store.runs, "cancel", away)
    with pytest.raises(StoreUnavailable) as caught:
        decisions.cancel(world.desk, world.run_id, "ann")
    assert "the decision is kept" in str(caught.value.hint)
    assert world.repeat() == Counts(taken=1, failed=1)
    monkeypatch.undo()
    assert world.repeat() == Counts(taken=1, moved=1)
    is_cancelled(world)


# ---- what is refused, and how


def test_a_run_that_goes_on_is_not_started_over(world: World) -> None:
    running(world)
    with pytest.raises(DecisionRefused, match="has not ended"):
        decisions.retry(world.desk, world.run_id, "ann")
    assert world.ledger.decisions_of(world.run_id) == []


def test_a_run_with_a_once_step_in_doubt_is_not_started_over(world: World) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0, effect="once"))
    world.fail("a", Fact.MAYBE)
    world.settle()
    decided = decisions.retry(world.desk, world.run_id, "ann")
    assert (decided.outcome, decided.carried_out) == ("in_doubt:a", False)
    assert world.row.ended_at is not None
    decisions.resolve(world.desk, world.run_id, "ann", landed=False)
    assert decisions.retry(world.desk, world.run_id, "ann").outcome == "retried:2"


def did(world: World, step_id: str, token: str | None = None) -> None:
    """A step that opens its row, and whose effect landed."""
    granted = world.claim(step_id)
    fence, shown = granted.fence, token or granted.token
    assert isinstance(world.ledger.effects.land(world.run_id, step_id, "do", fence, shown, "{}"), Landed)
    world.complete(step_id)


def failed_behind(world: World, effect: str) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0, effect=effect), world.step("b", 1, "a"))


def end_of(world: World) -> None:
    world.fail("b")
    world.settle()


@pytest.mark.parametrize("effect", ["transactional", "keyed", "once"])
def test_a_step_is_kept_whose_effect_the_ledger_has(world: World, effect: str) -> None:
    failed_behind(world, effect)
    did(world, "a")
    end_of(world)
    assert decisions.retry(world.desk, world.run_id, "ann").outcome == "retried:2"
    assert [step.status for step in world.store.views.steps(world.ref)] == ["completed", "dispatched"]


@pytest.mark.parametrize("effect", ["transactional", "keyed", "once"])
def test_a_run_whose_effects_are_gone_is_not_started_over(world: World, effect: str) -> None:
    failed_behind(world, effect)
    world.claim("a")
    world.complete("a")
    end_of(world)
    with pytest.raises(DecisionRefused, match="step a is completed, but its effect in the ledger is gone"):
        decisions.retry(world.desk, world.run_id, "ann")
    assert world.ledger.decisions_of(world.run_id) == []
    assert world.run.status == "failed"


def test_a_run_whose_effects_are_of_other_params_is_not_started_over(world: World) -> None:
    failed_behind(world, "keyed")
    did(world, "a", token="step:plan:0:other")
    end_of(world)
    with pytest.raises(DecisionRefused, match="of another action or other params"):
        decisions.retry(world.desk, world.run_id, "ann")


def test_a_run_that_was_undone_is_not_started_over(world: World) -> None:
    world.accept().admit(world.step("a", 0, effect="keyed"), world.step("b", 1, "a"))
    world.claim("a")
    world.complete("a")
    world.fail("b")
    world.settle()
    world.undo("a")
    world.settle()
    with pytest.raises(DecisionRefused, match="was undone"):
        decisions.retry(world.desk, world.run_id, "ann")


def test_cancelling_what_has_succeeded_is_too_late(world: World) -> None:
    world.accept().admit(world.step("a", 0))
    world.claim("a")
    world.complete("a")
    decided = decisions.cancel(world.desk, world.run_id, "ann")
    assert (decided.outcome, decided.carried_out) == ("too_late:running", False)
    world.settle()
    assert world.run.status == "succeeded"


def test_what_names_nothing_is_refused(world: World) -> None:
    doubtful(world)
    desk, run_id = world.desk, world.run_id
    with pytest.raises(NotFound, match="no run"):
        decisions.cancel(desk, "0" * 36, "ann")
    with pytest.raises(NotFound, match="no step"):
        decisions.resolve(desk, run_id, "ann", step_id="zz", landed=True)
    with pytest.raises(DecisionRefused, match="not in doubt"):
        decisions.resolve(desk, run_id, "ann", step_id="c", landed=True)
    with pytest.raises(DecisionRefused, match="no step of this run waits for approval"):
        decisions.approve(desk, run_id, "ann")
    with pytest.raises(DecisionRefused, match="cannot be a result"):
        decisions.resolve(desk, run_id, "ann", landed=True, result=float("nan"))
    assert world.ledger.decisions_of(run_id) == []


def test_with_two_steps_one_must_be_named(world: World) -> None:
    world.accept().admit(world.step("a", 0, approval=True), world.step("b", 1, approval=True))
    with pytest.raises(DecisionRefused, match="2 steps"):
        decisions.approve(world.desk, world.run_id, "ann")
    assert decisions.approve(world.desk, world.run_id, "ann", step_id="b").outcome == "again"


# ---- the effect row comes first, and is believed first


def test_a_row_that_landed_is_believed_more_than_a_person(world: World) -> None:
    doubtful(world)
    step = world.store.views.step(world.ref, "a")
    assert step is not None
    decision = world.ledger.decide(world.run_id, 1, "resolve", "ann", None, "a", json.dumps({"landed": True}))
    world.ledger.answer_effect(decision, world.run_id, "a", step.fence, step.token, True, '"first"')
    other = decisions.resolve(world.desk, world.run_id, "bob", landed=False)
    assert [kept.outcome for kept in world.ledger.decisions_of(world.run_id)] == ["committed", "not_due:completed"]
    assert other.carried_out is False
    assert world.store.views.result(world.ref, "a") == '"first"'


def test_a_late_word_about_an_earlier_attempt_changes_nothing(world: World) -> None:
    """Its process slept between looking and writing; meanwhile the step was let run again, and its row is open."""
    doubtful(world)
    before = world.store.views.step(world.ref, "a")
    assert before is not None
    decisions.resolve(world.desk, world.run_id, "ann", landed=False)
    granted = world.claim("a", "again")
    world.ledger.effects.open(world.run_id, "a", "do", granted.fence, granted.token, EffectClass.ONCE)
    late = world.ledger.decide(world.run_id, 1, "resolve", "bob", None, "a", json.dumps({"landed": False}))
    answer = world.ledger.answer_effect(late, world.run_id, "a", before.fence, before.token, False, "null")
    assert type(answer).__name__ == "NotClosed"
    assert world.ledger.effects.close(world.run_id, "a", "do", granted.fence).state == "open"


def test_a_word_that_is_asked_for_again_does_not_settle_a_newer_doubt(world: World) -> None:
    """Where the store lost its memory, late decisions are carried out once more."""
    doubtful(world)
    decisions.resolve(world.desk, world.run_id, "ann", landed=False)
    granted = world.claim("a", "again")
    rows = world.ledger.effects
    rows.open(world.run_id, "a", "do", granted.fence, granted.token, EffectClass.ONCE)
    rows.close(world.run_id, "a", "do", granted.fence)
    world.store.guard.fail_step(world.ref, "a", granted.fence, "again", Fact.MAYBE, "{}", True)
    world.store.scripts.tell("DEL", world.store.keys.part(world.ref, "sent"))
    assert world.ledger.losses.ask_again([world.run_id]) == 1
    world.repeat()
    assert [kept.outcome for kept in world.ledger.decisions_of(world.run_id)] == ["not_closed"]
    assert world.store.views.step(world.ref, "a").status == "in_doubt"  # type: ignore[union-attr]
    assert rows.close(world.run_id, "a", "do", granted.fence).state == "open"


def test_a_doubt_whose_newest_claim_never_began_can_be_resolved(world: World) -> None:
    """It was claimed once more and given back, so that no row was closed to its fence; then the run was cancelled."""
    world.accept(on_failure="stop").admit(world.step("a", 0, effect="keyed"), world.step("b", 1, "a"))
    granted = world.claim("a", "first")
    rows = world.ledger.effects
    rows.open(world.run_id, "a", "do", granted.fence, granted.token, EffectClass.KEYED)
    rows.close(world.run_id, "a", "do", granted.fence)
    world.store.guard.fail_step(world.ref, "a", granted.fence, "first", Fact.MAYBE, "{}", True)
    world.clock.advance(60_000)
    world.store.runs.retry_due(world.ref, "a")
    again = world.claim("a", "second")
    world.store.guard.hand_back(world.ref, "a", again.fence, "second", Fact.NONE, "unknown_action", 0, 9, 0, "{}")
    decisions.cancel(world.desk, world.run_id, "ann")
    world.settle()
    assert world.store.views.step(world.ref, "a").status == "in_doubt"  # type: ignore[union-attr]
    assert decisions.resolve(world.desk, world.run_id, "ann", step_id="a", landed=False).carried_out
    assert isinstance(rows.land(world.run_id, "a", "do", again.fence, again.token, "1"), Closed)


@pytest.mark.parametrize(
    ("times", "on_failure", "end", "letters"),
    [(0, "stop", "failed", 1), (0, "compensate", "compensated", 1), (9, "stop", "cancelled", 0)],
)
def test_the_end_of_a_run_writes_the_letter_about_a_doubt_that_no_worker_could_go_on_with(
    world: World, times: int, on_failure: str, end: str, letters: int
) -> None:
    """Whoever gave it back died before writing it. Not where it would have been tried again, had nobody cancelled."""
    world.accept(on_failure=on_failure, on_doubt="end").admit(world.step("a", 0, effect="keyed"))
    world.store.guard.fail_step(world.ref, "a", world.claim("a", "first").fence, "first", Fact.MAYBE, "{}", True)
    world.clock.advance(60_000)
    world.store.runs.retry_due(world.ref, "a")
    claim = (world.ref, "a", world.claim("a", "second").fence, "second")
    lacked = '{"kind":"unknown_action","message":"no worker supports act","path":null}'
    world.store.guard.hand_back(*claim, Fact.NONE, "unknown_action", 0, times, 0, lacked)
    decisions.cancel(world.desk, world.run_id, "ann")
    assert world.status("a") == "in_doubt"
    world.settle()
    if on_failure == "compensate":
        world.undo("a")
        world.settle()
    assert world.run_status == end
    found = [(letter.step_id, letter.reason[:18]) for letter in world.ledger.letters(10)]
    assert found == [("a", "no worker supports")] * letters


def test_what_the_end_of_a_run_owed_is_told_before_it_is_started_over(world: World) -> None:
    """Whoever settled it died before the letter and the end in the ledger; a person was quicker than a supervisor."""
    world.accept(on_failure="stop").admit(world.step("a", 0))
    granted = world.claim("a", "first")
    said = json.dumps({"kind": "unknown_action", "message": "no worker supports demo", "path": None})
    world.store.guard.fail_step(world.ref, "a", granted.fence, "first", Fact.NONE, said, False)
    world.store.runs.settle(world.ref, 1)
    assert decisions.retry(world.desk, world.run_id, "ann").outcome == "retried:2"
    assert [letter.reason for letter in world.ledger.letters(10)] == ["no worker supports demo"]
    assert (world.run.status, world.row.status) == ("running", "running")


def test_a_run_of_which_nothing_is_left_to_do_ends_when_it_is_started_over(world: World) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0, effect="keyed", max_attempts=1))
    world.fail("a", Fact.MAYBE)
    world.settle()
    assert world.row.status == "failed"
    assert decisions.resolve(world.desk, world.run_id, "ann", step_id="a", landed=True).carried_out
    assert decisions.retry(world.desk, world.run_id, "ann").outcome == "retried:2"
    assert world.row.status == "running"
    assert world.store.views.due(world.ref)["settles"] > 0
    world.settle()
    assert (world.run.status, world.row.status) == ("succeeded", "succeeded")


# ---- waits


def test_a_wait_that_is_over_ends_its_run_and_leaves_a_letter(world: World) -> None:
    waiting(world)
    settings = world_settings()
    assert end_waits.run_once(world.app, world.store, world.ledger, settings) == Counts()
    world.clock.advance(86_400_001)
    counts = end_waits.run_once(world.app, world.store, world.ledger, settings)
    assert (counts.taken, counts.moved, counts.sent) == (1, 1, 1)
    was_refused(world)
    (letter,) = world.ledger.letters(10)
    assert (letter.kind, letter.step_id, letter.reason) == ("step", "a", "nobody approved this step in time")


def test_a_doubt_that_nobody_settles_ends_its_run_and_leaves_a_letter(world: World) -> None:
    doubtful(world)
    world.clock.advance(86_400_001)
    end_waits.run_once(world.app, world.store, world.ledger, world_settings())
    world.settle()
    assert (world.run.status, world.run.reason) == ("failed", "in_doubt:a")
    (letter,) = world.ledger.letters(10)
    assert [attempt["attempt"] for attempt in letter.content["attempts"]][:1] == ["1"]


UNANSWERED = {
    "approval": "nobody approved this step in time",
    "doubt": "nobody said in time whether its effect happened",
}


@pytest.mark.parametrize("asked", UNANSWERED)
def test_a_letter_about_a_wait_that_was_not_written_is_owed_by_the_end_of_the_run(world: World, asked: str) -> None:
    """Whoever ended the wait died before it."""
    (waiting if asked == "approval" else doubtful)(world)
    world.clock.advance(86_400_001)
    world.store.runs.wait_over(world.ref, "a")
    assert world.ledger.letters(10) == []
    world.settle()
    (letter,) = world.ledger.letters(10)
    assert (letter.kind, letter.step_id, letter.reason) == ("step", "a", UNANSWERED[asked])
    assert letter.content["waited_since"] > 0


def owed(world: World) -> tuple[Any, ...]:
    step = world.store.views.step(world.ref, "a")
    assert step is not None
    return step.given_up


@pytest.mark.parametrize("asked", UNANSWERED)
def test_what_was_owed_about_a_step_is_forgotten_when_it_begins_again(world: World, asked: str) -> None:
    """Its next loss would be told in the words of the last generation."""
    (waiting if asked == "approval" else doubtful)(world)
    world.clock.advance(86_400_001)
    world.store.runs.wait_over(world.ref, "a")
    assert len(owed(world)) == 1
    world.settle()
    if asked == "doubt":
        decisions.resolve(world.desk, world.run_id, "ann", step_id="a", landed=False)
    assert decisions.retry(world.desk, world.run_id, "ann").carried_out
    assert owed(world) == ()


def test_who_answers_while_the_wait_is_being_ended_leaves_no_letter(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(world)
    world.clock.advance(86_400_001)
    wait_over = world.store.runs.wait_over

    def answered_first(ref: RunRef, step_id: str) -> Any:
        assert decisions.approve(world.desk, world.run_id, "ann").carried_out
        return wait_over(ref, step_id)

    monkeypatch.setattr(world.store.runs, "wait_over", answered_first)
    end_waits.run_once(world.app, world.store, world.ledger, world_settings())
    assert (world.run.status, world.ledger.letters(10)) == ("running", [])


def test_an_answer_in_time_ends_the_wait(world: World) -> None:
    waiting(world)
    decisions.approve(world.desk, world.run_id, "ann")
    world.clock.advance(86_400_001)
    assert end_waits.run_once(world.app, world.store, world.ledger, world_settings()) == Counts()
    assert world.ledger.letters(10) == []


def world_settings() -> Any:
    from orchestrator.settings import settings

    return settings()
