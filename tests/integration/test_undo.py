"""One delivery after another of real undos: what is undone, how often, in which order, and what a person is told."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from orchestrator.ledger.tables import records
from schemas.dead_letter import DeadLetterKind
from schemas.states import EffectClass, Fact
from tests.support.servers import Server
from tests.support.undoing import Doubled, Office, Params, claim_and_die, come_late, opened, row_of, write
from tests.support.workbench import Run, narrowed, workbench
from workers.actions.files import create_file
from workers.actions.records import mutate_record
from workers.context import Context, NoEffect, PermanentError, Snooze
from workers.outcomes import LeaseLost, TimeUp
from workers.reports import Done, GivenUp, Later, Nothing

WITH_EFFECT = tuple(effect.value for effect in EffectClass if effect is not EffectClass.PURE)
BOX = "9c1f0a52-7d3e-4b88-a6f4-2e5d7c8b9a01"


@pytest.fixture
def office(redis_server: Server, namespace: str, tmp_path: Path) -> Office:
    return opened(workbench(redis_server.url, namespace, tmp_path))


# ---- it works


def test_what_a_failed_run_has_done_is_undone_backwards(office: Office) -> None:
    for effect in WITH_EFFECT:
        office.declare(effect, effect)
    run = office.failed_after(*WITH_EFFECT)
    assert run.undo_all() == ["s3", "s2", "s1", "s0"]
    assert office.order == ["s3", "s2", "s1", "s0"]
    assert [(told.x, told.done) for told in office.undone] == [(i, Doubled(value=2 * i)) for i in (3, 2, 1, 0)]
    assert run.state.status == "compensated"
    assert [row_of(run, f"s{i}") for i in range(4)] == ["AlreadyLanded"] * 4
    assert office.bench.letters == []


def test_a_pure_step_owes_nothing(office: Office) -> None:
    office.bench.registry.action("look", effect="pure")(_function(lambda params, ctx: 1))
    run = office.failed_after("look")
    assert run.undo_all() == []
    assert run.state.status == "failed"


def test_a_policy_that_stops_undoes_nothing(office: Office) -> None:
    office.declare("act", "keyed")
    run = office.failed_after("act", policy=narrowed(on_failure="stop"))
    assert run.undo_all() == []
    assert (run.state.status, run.step("s0").status) == ("failed", "completed")


def test_a_cancelled_run_is_undone(office: Office) -> None:
    office.declare("act", "keyed")
    run = office.bench.planned({"action": "act", "params": {}}, {"action": "act", "params": {}})
    run.deliver("s0")
    office.bench.store.runs.cancel(run.ref, 1)
    assert run.undo_all() == ["s0"]
    assert (run.state.status, run.state.reason) == ("compensated", "cancelled")


@pytest.mark.parametrize("effect", WITH_EFFECT)
def test_copies_of_the_message_undo_once(office: Office, effect: str) -> None:
    office.declare("act", effect)
    run = office.failed_after("act")
    run.settle()
    assert [type(run.undo()) for _ in range(3)] == [Done, Done, Done]
    assert office.order == ["s0"]


def test_a_compensation_is_told_who_it_is(office: Office) -> None:
    office.declare("act", "keyed")
    run = office.failed_after("act", "act")
    run.undo_all()
    ctx = office.undone[-1].ctx
    assert (ctx.run_id, ctx.step_id, ctx.attempt, ctx.in_doubt) == (run.ref.run_id, "s0", 1, False)
    assert ctx.idempotency_key == f"idem:{run.ref.run_id}:s0:0:undo"
    assert ctx.fencing_token > run.step("s0").fence


def test_a_step_in_doubt_is_undone_without_a_result(office: Office) -> None:
    def act(params: Params, ctx: Context) -> Doubled:
        raise TimeoutError("no answer")

    declared = office.bench.registry.action("act", effect="once")(act)
    declared.compensation(_taking(office))
    run = office.bench.planned({"action": "act", "params": {}})
    run.deliver()
    assert run.step().status == "in_doubt"
    run.undo_all()
    (told,) = office.undone
    assert (told.done, told.ctx.in_doubt) == (None, True)
    assert (run.step().status, run.state.status) == ("compensated", "compensated")


def _taking(office: Office) -> Any:
    def take_back(params: Params, done: Doubled | None, ctx: Context) -> None:
        office.note(params, done, ctx, None)

    return take_back


def _function(act: Callable[[Params, Context], Any]) -> Any:
    def run(params: Params, ctx: Context) -> Any:
        return act(params, ctx)

    return run


# ---- it fails


def test_an_undo_that_fails_twice_is_tried_again(office: Office) -> None:
    office.declare("act", "keyed", attempts=3)
    run = office.failed_after("act")
    office.faults += [ValueError("no answer"), ValueError("no answer")]
    run.settle()
    assert run.undo() == Later("ValueError: no answer")
    assert json.loads(office.bench.store.views.undo_error(run.ref, "s0") or "{}")["kind"] == "step_error"
    run.wait_out_backoff()
    run.undo()
    run.wait_out_backoff()
    assert isinstance(run.undo(), Done)
    run.settle()
    assert (run.state.status, office.order) == ("compensated", ["s0"])
    assert office.bench.store.views.undo_error(run.ref, "s0") is None
    assert office.bench.letters == []


def test_an_undo_has_at_least_two_tries_whatever_its_step_had(office: Office) -> None:
    office.declare("act", "keyed", attempts=1)
    run = office.failed_after("act")
    office.faults += [ValueError("no answer")]
    run.settle()
    run.undo()
    run.wait_out_backoff()
    assert isinstance(run.undo(), Done)


@pytest.mark.parametrize("effect", WITH_EFFECT)
def test_an_undo_given_up_is_a_letter_and_the_others_go_on(office: Office, effect: str) -> None:
    office.declare("act", effect)
    run = office.failed_after("act", "act", "act")
    office.faults.append(PermanentError("the card is gone"))
    assert run.undo_all() == ["s2", "s1", "s0"]
    assert office.order == ["s1", "s0"]
    assert run.state.status == "compensation_failed"
    assert [run.step(f"s{i}").status for i in range(3)] == ["compensated", "compensated", "compensation_failed"]
    (letter,) = office.bench.ledger.letters(10, run_id=run.ref.run_id)
    assert (letter.kind, letter.step_id) == (DeadLetterKind.UNDO, "s2")
    assert letter.reason == f"s2 (act, {effect}) could not be undone: the card is gone"
    assert letter.content["error"]["kind"] == "permanent"
    assert letter.content["result"] == {"value": 4}
    assert letter.content["step"]["params"] == {"x": 2}


def test_a_once_undo_that_raised_is_not_tried_again(office: Office) -> None:
    office.declare("act", "once", attempts=3)
    run = office.failed_after("act")
    office.faults.append(TimeoutError("no answer"))
    run.undo_all()
    assert (run.step("s0").status, office.undone) == ("compensation_failed", [])


def test_a_once_undo_without_effect_is_tried_again(office: Office) -> None:
    office.declare("act", "once", attempts=3)
    run = office.failed_after("act")
    office.faults.append(NoEffect("the bank was closed"))
    run.settle()
    assert isinstance(run.undo(), Later)
    run.wait_out_backoff()
    assert isinstance(run.undo(), Done)


def test_without_a_compensation_there_is_one_letter_by_name(office: Office) -> None:
    office.bench.registry.action("payments.charge", effect="keyed")(_function(lambda params, ctx: 1))
    run = office.failed_after("payments.charge")
    run.undo_all()
    assert run.state.status == "compensation_failed"
    (letter,) = office.bench.letters
    assert letter.reason == "no compensation declared for payments.charge"
    assert run.step("s0").undo.attempt == 1  # type: ignore[union-attr]


def test_snoozing_counts_no_attempt(office: Office) -> None:
    office.declare("act", "keyed", undo=lambda _params, _done, _ctx: Snooze(5) if len(office.undone) < 4 else None)
    run = office.failed_after("act")
    run.settle()
    for _ in range(4):
        assert isinstance(run.undo(), Later)
        run.wait_out_backoff(ms=5_000)
    assert isinstance(run.undo(), Done)
    assert [told.ctx.attempt for told in office.undone] == [1, 1, 1, 1, 1]


def test_a_worker_without_the_action_leaves_the_undo_to_others(office: Office) -> None:
    office.declare("act", "keyed")
    run = office.failed_after("act")
    run.settle()
    actions, office.bench.registry._actions = office.bench.registry._actions, {}
    assert isinstance(run.undo(), Later)
    office.bench.registry._actions = actions
    run.wait_out_backoff()
    assert isinstance(run.undo(), Done)
    assert office.undone[0].ctx.attempt == 1


def test_an_undo_snoozes_for_as_long_as_its_run_had_and_is_given_up_then(office: Office) -> None:
    day_s = 86_400
    office.declare("act", "keyed", undo=lambda _params, _done, _ctx: Snooze(day_s))
    run = office.failed_after("act", policy=narrowed(deadline_s=1200))
    run.settle()
    assert isinstance(run.undo(), Later)
    run.wait_out_backoff(ms=1_200_000)
    assert isinstance(run.undo(), GivenUp)
    given_up(run, "snooze")


def test_an_undo_that_no_worker_can_do_is_given_up_after_a_while(office: Office) -> None:
    office.declare("act", "keyed")
    run = office.failed_after("act")
    run.settle()
    office.bench.registry._actions = {}
    for _ in range(4):
        assert isinstance(run.undo(), Later)
        run.wait_out_backoff(ms=3_000)
    office.bench.clock.advance(600_000)
    assert isinstance(run.undo(), GivenUp)
    given_up(run, "no worker supports act")


def given_up(run: Run, why: str) -> None:
    """A person is told, and the run ends."""
    (letter,) = run.bench.letters
    assert (letter.kind, letter.step_id) == (DeadLetterKind.UNDO, "s0")
    assert why in letter.reason
    run.settle()
    assert run.state.status == "compensation_failed"


def test_a_stranger_among_the_undone_is_not_due(office: Office) -> None:
    """A message that came too early, or for a step that has nothing to undo."""
    office.declare("act", "keyed")
    run = office.failed_after("act", "act")
    assert run.undo("s0") == Nothing("stop")
    run.settle()
    assert run.undo("s0") == Nothing("not_due")
    assert run.undo("s2") == Nothing("not_due")


# ---- it is cut off


@pytest.mark.parametrize("effect", ["idempotent", "keyed", "transactional"])
def test_a_child_that_died_while_undoing_is_followed_at_once(office: Office, effect: str) -> None:
    office.declare("act", effect)
    run = office.failed_after("act")
    run.settle()
    claim_and_die(run)
    assert isinstance(run.undo(), Done)
    assert [told.ctx.attempt for told in office.undone] == [2]


def test_a_child_that_died_after_its_undo_landed_did_it(office: Office) -> None:
    office.declare("act", "keyed")
    run = office.failed_after("act")
    run.settle()
    lost = claim_and_die(run)
    effects = office.bench.ledger.effects
    effects.land(run.ref.run_id, "s0", "undo", lost.step.fence, lost.step.token, "null")
    assert isinstance(run.undo(), Done)
    assert (run.step("s0").status, office.undone) == ("compensated", [])


def test_a_child_that_died_in_a_once_undo_leaves_it_to_a_person(office: Office) -> None:
    office.declare("act", "once", attempts=3)
    run = office.failed_after("act", "act")
    run.settle()
    lost = claim_and_die(run, "s1")
    effects, token = office.bench.ledger.effects, lost.step.token
    effects.open(run.ref.run_id, "s1", "undo", lost.step.fence, token, EffectClass.ONCE)
    run.undo("s1")
    assert run.step("s1").status == "compensation_failed"
    assert [letter.kind for letter in office.bench.letters] == [DeadLetterKind.UNDO]
    assert office.bench.outbox.sent("undo") == ["s1", "s0"]


@pytest.mark.parametrize("effect", WITH_EFFECT)
def test_a_compensation_frozen_until_somebody_else_has_taken_over_changes_nothing(office: Office, effect: str) -> None:
    runs: list[Run] = []

    def taken_over(*_: Any) -> None:
        run = runs.pop()
        undo = run.step("s0").undo
        assert undo is not None
        office.bench.ledger.effects.close(run.ref.run_id, "s0", "undo", undo.fence)
        office.bench.store.guard.expire_undo(run.ref, "s0", undo.fence, Fact.NONE)

    if effect == "transactional":
        declare_taken_over(office, taken_over)
    else:
        office.declare("act", effect, undo=taken_over)
    run = office.failed_after("act")
    run.settle()
    runs.append(run)
    assert isinstance(run.undo(), Nothing)
    assert run.step("s0").status == "compensating"
    assert row_of(run, "s0") == "Fresh"


def declare_taken_over(office: Office, taken_over: Callable[..., None]) -> None:
    def act(params: Params, ctx: Context) -> Doubled:
        with ctx.ledger().begin() as connection:
            ctx.effect(connection, Doubled(value=1))
        return Doubled(value=1)

    def take_back(params: Params, done: Doubled | None, ctx: Context) -> None:
        taken_over()
        with ctx.ledger().begin() as connection:
            ctx.effect(connection, None)

    office.bench.registry.action("act", effect="transactional")(act).compensation(take_back)


# ---- what is built in


@pytest.fixture
def built_in(office: Office) -> Office:
    office.bench.registry._add_action(create_file)
    office.bench.registry._add_action(mutate_record)
    return office


def change(step_id: str, **changes: Any) -> dict[str, Any]:
    return {"id": step_id, "action": "mutate_record", "params": {"entity_id": BOX, "changes": changes}}


def failing_after(office: Office, *steps: dict[str, Any], name: str = "run") -> Run:
    run = office.bench.planned(*steps, {"id": "bad", "action": "fail", "params": {}}, name=name)
    for step in steps:
        assert isinstance(run.deliver(step["id"]), Done)
    run.deliver("bad")
    return run


def data(office: Office) -> Any:
    record = office.bench.ledger.record(BOX)
    assert record is not None
    return record.version, json.loads(record.data_text)


def test_a_record_gets_its_content_back(built_in: Office) -> None:
    first = built_in.bench.planned(change("a", lid="open", size=1))
    first.deliver("a")
    run = failing_after(built_in, change("a", lid="shut"), change("b", size=2), change("c", lid="ajar"), name="second")
    assert data(built_in) == (4, {"lid": "ajar", "size": 2})
    assert run.undo_all() == ["c", "b", "a"]
    assert run.state.status == "compensated"
    assert data(built_in) == (7, {"lid": "open", "size": 1})
    changes = built_in.bench.ledger.record_changes(run.ref.run_id)
    assert [(one.version_after, one.undone_version) for one in changes] == [(2, 7), (3, 6), (4, 5)]


def test_a_record_that_the_step_made_is_left_empty(built_in: Office) -> None:
    run = failing_after(built_in, change("a", lid="open"))
    run.undo_all()
    assert data(built_in) == (2, {})


def test_a_record_that_somebody_else_has_changed_is_a_persons_business(built_in: Office) -> None:
    run = failing_after(built_in, change("a", lid="shut"))
    built_in.bench.planned(change("x", lid="ajar"), name="other").deliver("x")
    run.undo_all()
    assert data(built_in) == (2, {"lid": "ajar"})
    assert (run.step("a").status, run.state.status) == ("compensation_failed", "compensation_failed")
    (letter,) = built_in.bench.letters
    assert "is at version 2; this step made version 1" in letter.reason
    assert row_of(run, "a") == "Closed" or row_of(run, "a") == "Fresh"


def test_a_record_that_was_changed_behind_our_back_is_a_persons_business_too(built_in: Office) -> None:
    run = failing_after(built_in, change("a", lid="shut"))
    with built_in.bench.ledger.begin() as connection:
        connection.execute(update(records).values(version=2, data_text='{"lid":"gone"}'))
    run.undo_all()
    assert data(built_in) == (2, {"lid": "gone"})
    assert run.state.status == "compensation_failed"


def test_a_record_that_a_hand_changed_without_a_version_is_a_persons_business_too(built_in: Office) -> None:
    run = failing_after(built_in, change("a", lid="shut"))
    with built_in.bench.ledger.begin() as connection:
        connection.execute(update(records).values(data_text='{"lid":"mended"}'))
    run.undo_all()
    assert data(built_in) == (1, {"lid": "mended"})
    assert run.state.status == "compensation_failed"
    (letter,) = built_in.bench.letters
    assert "has not the content of version 1" in letter.reason


def test_another_runs_change_that_was_undone_is_in_nobodys_way(built_in: Office) -> None:
    run = failing_after(built_in, change("a", lid="shut"))
    other = failing_after(built_in, change("x", lid="ajar"), name="other")
    other.undo_all()
    run.undo_all()
    assert (other.state.status, run.state.status) == ("compensated", "compensated")
    assert data(built_in) == (4, {})


def test_files_are_taken_away(built_in: Office) -> None:
    run = failing_after(built_in, write("a", "sub/a.txt"), write("b", "b.txt"), write("c", "sub/a.txt", "y"))
    folder = built_in.bench.services.workspaces.path(run.ref.run_id)
    assert run.undo_all() == ["c", "b", "a"]
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert run.state.status == "compensated"


def test_a_file_that_was_written_since_is_left(built_in: Office) -> None:
    run = failing_after(built_in, write("a", "a.txt"))
    later = built_in.bench.services.workspaces.open(run.ref.run_id, 1000)
    later.write("a.txt", b"somebody's")
    run.undo_all()
    assert later.read("a.txt", max_bytes=100) == b"somebody's", "until the workspace goes"
    assert (run.state.status, built_in.bench.letters) == ("compensated", [])


def test_a_file_in_doubt_is_taken_away_and_cannot_come_back(built_in: Office) -> None:
    """The worker was lost; whether it has written the file, nobody knows. It wakes up when all is over."""
    bench = built_in.bench
    run = bench.planned(write("a", "a.txt"), policy=narrowed(limits={"attempts": 1}))
    granted = bench.store.guard.claim_step(run.ref, "a", generation=1, claim_id="c", worker="host:1:1")
    bench.clock.advance(60_000)
    bench.ledger.effects.close(run.ref.run_id, "a", "do", granted.fence)  # type: ignore[union-attr]
    bench.store.guard.expire_lease(run.ref, "a", granted.fence, Fact.MAYBE)  # type: ignore[union-attr]
    assert run.undo_all() == ["a"]
    zombie = bench.services.workspaces.open(run.ref.run_id, granted.fence)  # type: ignore[union-attr]
    with pytest.raises(Exception, match="has written this path"):
        zombie.write("a.txt", b"late")
    assert run.state.status == "compensated"


# ---- what comes late


def frozen_until_all_is_over(office: Office, effect: str, raises: Exception | None = None) -> tuple[Run, list[str]]:
    """A step whose worker is frozen past its last guard: it is closed, undone, the run ended; then the effect comes.
    raises: how its action ends after that.
    """
    world: list[str] = []
    runs: list[Run] = []

    def act(params: Params, ctx: Context) -> Doubled:
        run, step = runs[0], runs[0].step()
        office.bench.clock.advance(60_000)
        found = office.bench.ledger.effects.close(run.ref.run_id, "s0", "do", step.fence)
        assert found.state in ("none", "open")
        fact = Fact.NONE if effect == "transactional" else Fact.MAYBE
        office.bench.store.guard.expire_lease(run.ref, "s0", step.fence, fact)
        run.undo_all()
        if effect == "transactional":
            with ctx.ledger().begin() as connection:
                ctx.effect(connection, Doubled(value=1))
                world.append("did")
        world.append("did")
        if raises is not None:
            raise raises
        return Doubled(value=1)

    def take_back(params: Params, done: Doubled | None, ctx: Context) -> None:
        assert (done, ctx.in_doubt) == (None, True)
        if "did" in world:
            world.remove("did")
            world.append(f"undone by {ctx.idempotency_key.split(':', 4)[-1]}")

    office.bench.registry.action("act", effect=effect, attempts=1)(act).compensation(take_back)
    run = office.bench.planned({"action": "act", "params": {}})
    runs.append(run)
    assert isinstance(run.deliver(), Nothing)
    return run, world


@pytest.mark.parametrize("effect", ["idempotent", "keyed", "once"])
def test_an_effect_that_comes_when_all_is_over_is_undone_once_more(office: Office, effect: str) -> None:
    run, world = frozen_until_all_is_over(office, effect)
    ended = run.state
    assert (ended.status, world) == ("compensated", ["did"])
    assert [letter.reason for letter in office.bench.letters] == ([] if effect == "idempotent" else ["late_effect"])
    (late,) = [one for wave in office.bench.outbox.waves for one in wave if one.kind == "late"]
    for _ in range(3):
        run.undo_late(late.fence)
    assert world == [f"undone by undo:late:{late.fence}"]
    assert run.state == ended
    assert row_of(run, "s0", "late") == "AlreadyLanded"


ENDINGS = {
    "told to stop": LeaseLost("this attempt no longer holds its claim"),
    "no time left": TimeUp("the attempt has used up its time limit"),
    "no answer": TimeoutError("no answer"),
    "no use": PermanentError("refused"),
    "snooze": Snooze(1),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("effect", ["idempotent", "keyed", "once"])
def test_what_may_have_come_when_all_is_over_is_looked_for_once_more(office: Office, effect: str, ending: str) -> None:
    """Its action raises instead of returning: nobody knows whether it is out, and the compensation is asked to look."""
    run, world = frozen_until_all_is_over(office, effect, ENDINGS[ending])
    ended = run.state
    assert (ended.status, world) == ("compensated", ["did"])
    (late,) = [one for wave in office.bench.outbox.waves for one in wave if one.kind == "late"]
    run.undo_late(late.fence)
    assert (world, run.state) == ([f"undone by undo:late:{late.fence}"], ended)


@pytest.mark.parametrize("effect", ["idempotent", "keyed", "once"])
def test_an_action_that_vouches_for_it_has_nothing_to_be_undone(office: Office, effect: str) -> None:
    run, _ = frozen_until_all_is_over(office, effect, NoEffect("nothing was sent"))
    assert office.bench.outbox.sent("late") == []
    assert office.bench.ledger.late.of(run.ref.run_id, "s0") is None


def test_a_worker_that_has_not_the_action_leaves_what_came_late_to_another(office: Office) -> None:
    run, world = frozen_until_all_is_over(office, "keyed")
    (late,) = [one for wave in office.bench.outbox.waves for one in wave if one.kind == "late"]
    action = office.bench.registry._actions.pop("act")
    assert run.undo_late(late.fence) == Nothing("unknown_action")
    assert (world, [letter.kind for letter in office.bench.letters]) == (["did"], [DeadLetterKind.STEP])
    office.bench.registry._actions["act"] = action
    run.undo_late(late.fence)
    assert world == [f"undone by undo:late:{late.fence}"]


def test_two_attempts_that_come_late_are_both_undone(office: Office) -> None:
    """The second while the first is being undone."""
    run, world = frozen_until_all_is_over(office, "keyed")
    takes_back = office.bench.registry._actions["act"].undo
    assert takes_back is not None

    def undo(*given: Any) -> Any:
        done = takes_back(*given)
        if len(world) == 1:
            come_late(office, run)
            world.append("did")
        return done

    office.bench.registry._actions["act"].undo = undo
    first = office.bench.outbox.waves[-1][0].fence
    for _ in range(2):
        run.undo_late(first)
    second = office.bench.ledger.late.of(run.ref.run_id, "s0")
    assert second is not None
    for _ in range(2):
        run.undo_late(second.fence)
    assert world == [f"undone by undo:late:{fence}" for fence in (first, second.fence)]
    assert office.bench.ledger.late.of(run.ref.run_id, "s0") is None


@pytest.mark.parametrize("effect", ["idempotent", "keyed", "once"])
def test_what_comes_late_before_its_undo_begins_is_undone_by_that(office: Office, effect: str) -> None:
    calls: list[str] = []
    office.declare("act", effect, undo=lambda _params, _done, ctx: calls.append(ctx.idempotency_key))
    run = office.failed_after("act")
    run.settle()
    come_late(office, run)
    run.undo()
    assert len(calls) == 1
    assert office.bench.outbox.sent("late") == []
    assert office.bench.ledger.late.of(run.ref.run_id, "s0") is None


def test_a_transaction_never_comes_late(office: Office) -> None:
    run, world = frozen_until_all_is_over(office, "transactional")
    assert (run.state.status, world) == ("failed", [])
    assert office.bench.outbox.sent("late") == []


def test_a_late_effect_that_cannot_be_undone_is_a_second_letter(office: Office) -> None:
    run, world = frozen_until_all_is_over(office, "keyed")
    office.bench.registry._actions["act"].undo = _raising
    assert isinstance(run.undo_late(1), GivenUp)
    assert [letter.kind for letter in office.bench.letters] == [DeadLetterKind.STEP, DeadLetterKind.UNDO]
    assert world == ["did"]


def _raising(*_: Any) -> None:
    raise ValueError("no answer")


def test_an_effect_that_comes_while_its_step_is_being_undone_is_seen_by_whoever_undoes_it(office: Office) -> None:
    office.declare("act", "keyed", undo=lambda *_: come_late(office, runs[0]))
    run = office.failed_after("act")
    runs = [run]
    run.settle()
    run.undo()
    assert [one.kind for wave in office.bench.outbox.waves for one in wave if one.step_id == "s0"][-1] == "late"


def test_nothing_is_late_in_an_ordinary_undo(office: Office) -> None:
    office.declare("act", "keyed")
    run = office.failed_after("act")
    run.undo_all()
    assert office.bench.outbox.sent("late") == []
    assert run.undo_late(run.step("s0").fence + 100) == Nothing("undone")  # it can be asked for, and is done once
    assert run.undo_late(run.step("s0").fence + 100) == Nothing("AlreadyApplied")
