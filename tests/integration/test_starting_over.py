"""An ended run is started over from a step: what is done again, what a row gives back, what a new key has anew."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from orchestrator import decisions, startover
from orchestrator.decisions import Decided
from orchestrator.errors import DecisionRefused, NotFound
from orchestrator.ledger import AlreadyLanded, Closed, Landed, Opened, open_ledger, upgrade_effects
from orchestrator.recovery.rebuild import as_admitted
from orchestrator.settings import settings
from orchestrator.startover import Again
from orchestrator.store.new import NewPlan
from orchestrator.store.replies import Granted
from schemas.ids import RunRef
from schemas.states import EffectClass, Fact
from tests.support.ledgers import url_of
from tests.support.servers import Server
from tests.support.world import World, world_on
from workers.workspace import Workspaces


@pytest.fixture
def world(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[World]:
    with world_on(redis_server, namespace, tmp_path) as made:
        yield made


def did(world: World, step_id: str, result: str, generation: int = 1) -> Granted:
    """A step whose effect lands and is committed."""
    granted = began(world, step_id, generation)
    if granted.effect != "pure":
        assert isinstance(land(world, step_id, granted, result), Landed)
    commit(world, step_id, granted, result)
    return granted


def began(world: World, step_id: str, generation: int = 1) -> Granted:
    granted = world.store.guard.claim_step(
        world.ref, step_id, generation=generation, claim_id=f"{step_id}{generation}", worker="host:2:2"
    )
    assert isinstance(granted, Granted)
    return granted


def land(world: World, step_id: str, granted: Granted, result: str) -> Any:
    return world.ledger.effects.land(world.run_id, step_id, "do", granted.fence, granted.token, result)


def open_row(world: World, step_id: str, granted: Granted) -> Any:
    effect = EffectClass(granted.effect)
    return world.ledger.effects.open(world.run_id, step_id, "do", granted.fence, granted.token, effect)


def commit(world: World, step_id: str, granted: Granted, result: str) -> None:
    generation = world.run.generation
    world.store.guard.complete_step(world.ref, step_id, granted.fence, f"{step_id}{generation}", result)


def fail(world: World, step_id: str, fact: Fact = Fact.NONE) -> None:
    granted = began(world, step_id)
    if fact is Fact.MAYBE:
        open_row(world, step_id, granted)
    world.ledger.effects.close(world.run_id, step_id, "do", granted.fence)
    world.store.guard.fail_step(world.ref, step_id, granted.fence, f"{step_id}1", fact, "{}", False)


def chain(world: World, effect: str, **changes: Any) -> None:
    """fetch -> act -> tell -> end, and aside; all is done but the end, which has failed."""
    world.accept(on_failure="stop").admit(
        world.step("fetch", 0),
        world.step("act", 1, "fetch", effect=effect, **changes),
        world.step("tell", 2, "act", effect="idempotent"),
        world.step("aside", 3, effect="keyed"),
        world.step("end", 4, "tell"),
    )
    did(world, "aside", '"aside"')
    did(world, "fetch", '"price"')


def ended(world: World) -> None:
    did(world, "act", '"acted"')
    did(world, "tell", '"told"')
    fail(world, "end")
    world.settle()


def retry(world: World, *from_steps: str, new_keys: tuple[str, ...] = ()) -> Decided:
    return decisions.retry(world.desk, world.run_id, "ann", again=Again(from_steps, new_keys))


def standing(world: World) -> dict[str, str]:
    return {step.id: step.status for step in world.store.views.steps(world.ref)}


@pytest.mark.parametrize("effect", ["transactional", "keyed", "once"])
def test_what_needs_it_is_done_again_in_order_and_what_landed_answers_for_itself(world: World, effect: str) -> None:
    chain(world, effect)
    ended(world)
    assert retry(world, "fetch").outcome == "retried:2"
    waiting = {"fetch": "dispatched", "act": "pending", "tell": "pending", "end": "pending", "aside": "completed"}
    assert standing(world) == waiting
    assert set(world.store.views.results(world.ref)) == {"aside"}
    did(world, "fetch", '"new price"', 2)
    assert standing(world)["tell"] == "pending"
    granted = began(world, "act", 2)
    rows = world.ledger.rows_of(EffectClass(effect))
    assert rows.look(world.run_id, "act", "do", granted.fence, granted.token) == AlreadyLanded('"acted"')
    assert (granted.attempt, granted.attempt_group) == (1, 0)
    commit(world, "act", granted, '"acted"')
    did(world, "tell", '"told anew"', 2)  # its row was set aside: what it did last is its result
    did(world, "end", '"end"', 2)
    world.settle()
    assert world.run.status == "succeeded"
    assert json.loads(world.store.views.result(world.ref, "tell") or "") == "told anew"
    assert world.ledger.effects.landed(world.run_id).keys() == {"act", "tell", "aside"}


@pytest.mark.parametrize("effect", ["transactional", "keyed", "once"])
def test_a_new_key_has_the_effect_once_more(world: World, effect: str) -> None:
    chain(world, effect)
    ended(world)
    assert retry(world, "act", new_keys=("act",)).outcome == "retried:2"
    assert standing(world)["fetch"] == "completed"
    granted = began(world, "act", 2)
    assert (granted.attempt_group, granted.attempt) == (1, 1)
    assert isinstance(land(world, "act", granted, '"once more"'), Landed)
    commit(world, "act", granted, '"once more"')
    again = world.store.views.step(world.ref, "act")
    assert again is not None
    assert (again.group, again.touched) == (1, False)


def test_an_old_attempt_that_wakes_up_lands_nothing_under_the_new_key(world: World) -> None:
    chain(world, "keyed")
    old = did(world, "act", '"acted"')
    did(world, "tell", '"told"')
    fail(world, "end")
    world.settle()
    retry(world, "act", new_keys=("act",))
    assert isinstance(land(world, "act", old, '"from the grave"'), Closed)
    assert isinstance(open_row(world, "act", began(world, "act", 2)), Opened)


def test_a_repeat_takes_nothing_from_what_was_done_since(world: World) -> None:
    chain(world, "keyed")
    ended(world)
    steps = world.store.views.steps(world.ref)
    again = Again(("fetch",), ("act",))
    retry(world, *again.from_steps, new_keys=again.new_keys)
    for step_id in ("fetch", "act", "tell"):
        did(world, step_id, f'"second {step_id}"', 2)
    world.ledger.effects.set_aside(world.run_id, ["act", "tell"], ["act", "tell"], max(step.fence for step in steps))
    startover.set_aside(world.ledger, world.store, RunRef(world.run_id, world.ref.session), 1, again)
    assert world.ledger.effects.landed(world.run_id).keys() == {"act", "tell", "aside"}


def test_a_landed_step_that_has_not_run_again_when_its_run_ends_is_in_doubt(world: World) -> None:
    """Its row knows better, and a person who is asked cannot say otherwise."""
    chain(world, "once")
    ended(world)
    retry(world, "fetch")
    decisions.cancel(world.desk, world.run_id, "ann")
    world.settle()
    assert standing(world) == {
        "fetch": "skipped", "act": "in_doubt", "tell": "in_doubt", "aside": "completed", "end": "skipped"
    }  # fmt: skip
    assert retry(world).outcome == "in_doubt:act"
    resolved = decisions.resolve(world.desk, world.run_id, "ann", step_id="act", landed=False)
    assert resolved.outcome == "committed"
    assert world.store.views.result(world.ref, "act") == '"acted"'
    assert retry(world).outcome == "retried:3"


@pytest.mark.parametrize("said", [{"landed": False}, {"landed": True, "result": "something else"}])
def test_what_landed_in_a_database_of_the_users_own_is_believed_too(
    world: World, tmp_path: Path, said: dict[str, Any]
) -> None:
    shop = url_of(tmp_path / "shop.db")
    upgrade_effects(shop)
    world.ledger.close()
    world.ledger = open_ledger(url_of(tmp_path / "ledger.db"), effects_urls=[shop])
    chain(world, "transactional")
    act, engine = began(world, "act"), create_engine(shop)
    with engine.begin() as sale:
        landed = world.ledger.transactional.land(world.run_id, "act", "do", act.fence, act.token, '"acted"', sale)
        assert landed == Landed()
    engine.dispose()
    commit(world, "act", act, '"acted"')
    did(world, "tell", '"told"')
    fail(world, "end")
    world.settle()
    retry(world, "fetch")
    decisions.cancel(world.desk, world.run_id, "ann")
    world.settle()
    assert standing(world)["act"] == "in_doubt"
    assert decisions.resolve(world.desk, world.run_id, "ann", step_id="act", **said).outcome == "committed"
    assert world.store.views.result(world.ref, "act") == '"acted"'
    assert "act" not in world.ledger.effects.landed(world.run_id)


def test_what_is_done_again_is_approved_again_but_for_what_landed(world: World) -> None:
    world.accept(on_failure="stop").admit(
        world.step("a", 0, effect="keyed", approval=True),
        world.step("b", 1, effect="keyed", approval=True),
        world.step("c", 2, approval=True),
        world.step("d", 3, "a", "b", "c"),
    )
    for step_id in "abc":
        decisions.approve(world.desk, world.run_id, "ann", step_id=step_id)
        did(world, step_id, "{}")
    fail(world, "d")
    world.settle()
    retry(world, "a", "b", "c", new_keys=("b",))
    assert standing(world) == {"a": "dispatched", "b": "waiting_approval", "c": "waiting_approval", "d": "pending"}


def test_an_effect_that_the_ledger_lost_can_be_had_under_a_new_key(world: World) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0, effect="keyed"), world.step("b", 1, "a"))
    commit(world, "a", began(world, "a"), "{}")
    fail(world, "b")
    world.settle()
    with pytest.raises(DecisionRefused, match="its effect in the ledger is gone"):
        retry(world, "a")
    assert retry(world, "a", new_keys=("a",)).outcome == "retried:2"


def test_a_failed_step_can_have_another_key(world: World) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0, effect="keyed"))
    fail(world, "a")
    world.settle()
    assert retry(world, new_keys=("a",)).outcome == "retried:2"
    assert began(world, "a", 2).attempt_group == 1


# ---- what is refused, before anything is written


def test_a_step_that_is_not_there_is_refused(world: World) -> None:
    chain(world, "keyed")
    ended(world)
    for path, again in (("from_steps", Again(("zz",))), ("new_keys", Again(("act",), ("zz",)))):
        with pytest.raises(NotFound, match="has no step zz") as refused:
            decisions.retry(world.desk, world.run_id, "ann", again=again)
        assert (refused.value.path, world.ledger.decisions_of(world.run_id)) == (path, [])
    reply = world.store.runs.retry(world.ref, 1, "ann", 1000, [], ["zz"])
    assert type(reply).__name__ == "NoStep"


def test_a_new_key_for_what_is_kept_is_refused(world: World) -> None:
    chain(world, "keyed")
    ended(world)
    with pytest.raises(DecisionRefused, match="step aside is completed and would be kept") as refused:
        retry(world, "fetch", new_keys=("aside",))
    assert (refused.value.path, "--from aside" in str(refused.value.hint)) == ("new_keys", True)
    assert world.ledger.decisions_of(world.run_id) == []
    assert type(world.store.runs.retry(world.ref, 1, "ann", 1000, ["fetch"], ["aside"])).__name__ == "Kept"


@pytest.mark.parametrize("effect", ["keyed", "once"])
def test_a_new_key_for_what_is_in_doubt_is_refused(world: World, effect: str) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0, effect=effect))
    fail(world, "a", Fact.MAYBE)
    world.settle()
    with pytest.raises(DecisionRefused, match="step a is in doubt") as refused:
        retry(world, "a", new_keys=("a",))
    assert (refused.value.path, "mandor run resolve" in str(refused.value.hint)) == ("new_keys", True)
    assert type(world.store.runs.retry(world.ref, 1, "ann", 1000, ["a"], ["a"])).__name__ == "StillInDoubt"
    assert world.run.generation == 1


def test_a_retry_that_the_store_will_refuse_touches_no_row(world: World) -> None:
    """Another step that runs once only is in doubt: the run stays as it is, and so does the proof of what it did."""
    world.accept(on_failure="stop").admit(
        world.step("a", 0, effect="keyed"), world.step("b", 1, effect="once"), world.step("c", 2, "a")
    )
    did(world, "a", "{}")
    fail(world, "b", Fact.MAYBE)
    world.settle()
    assert retry(world, "a", new_keys=("a",)).outcome == "in_doubt:b"
    assert world.ledger.effects.landed(world.run_id).keys() == {"a"}


def wrote_a_file(world: World, action: str = "create_file") -> None:
    world.accept(on_failure="stop").admit(
        world.step("a", 0, effect="idempotent", action=action), world.step("b", 1, "a")
    )
    did(world, "a", '{"path":"report.txt"}')
    fail(world, "b")
    world.settle()


def test_a_run_whose_workspace_is_gone_is_refused_unless_its_files_are_written_again(world: World) -> None:
    wrote_a_file(world)
    with pytest.raises(DecisionRefused, match=r"the workspace in which it wrote report\.txt is gone") as refused:
        retry(world)
    assert "--from a" in str(refused.value.hint)
    assert world.ledger.decisions_of(world.run_id) == []
    assert retry(world, "a").outcome == "retried:2"


def test_a_run_whose_workspace_is_there_is_started_over(world: World, tmp_path: Path) -> None:
    wrote_a_file(world)
    Workspaces(tmp_path).open(world.run_id, 1)
    assert retry(world).outcome == "retried:2"


@pytest.mark.parametrize("action", ["create_file", "run_command"])
def test_a_run_whose_files_were_let_go_is_refused_wherever_its_disk_is(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    wrote_a_file(world, action)
    Workspaces(tmp_path).open(world.run_id, 1)
    assert world.ledger.files.let_go(world.run_id, 1, world.run.ended_at)
    here = settings()
    for given in (here, here.model_copy(update={"ledger_url": "postgresql://elsewhere/ledger"})):
        monkeypatch.setattr(decisions, "settings", lambda given=given: given)
        with pytest.raises(DecisionRefused, match="is gone") as refused:
            retry(world)
        assert "--from a" in str(refused.value.hint)
    assert retry(world, "a").outcome == "retried:2"


@pytest.mark.parametrize("effect", ["idempotent", "once"])
def test_files_of_a_step_that_is_confined_to_the_workspace_are_missed_too(world: World, effect: str) -> None:
    """Of the users' own; the plan that the ledger keeps knows it of each step."""
    steps = (
        replace(world.step("a", 0, effect=effect, action="pages.render"), confined=True),
        world.step("b", 1, "a"),
    )
    world.accept(on_failure="stop").admit(*steps)
    plan = NewPlan("plan", "e" * 64, 100, 1_048_576, steps)
    world.ledger.history.keep_admitted(world.run_id, 1, as_admitted(plan, 0))
    wrote(world, effect)
    assert world.ledger.files.let_go(world.run_id, 1, world.run.ended_at)
    with pytest.raises(DecisionRefused, match=r"step a is completed, but the workspace in which it worked is gone"):
        retry(world)
    assert retry(world, "a", new_keys=("a",) if effect == "once" else ()).outcome == "retried:2"


def test_a_confined_step_that_never_opened_a_workspace_misses_none(world: World) -> None:
    steps = (
        replace(world.step("a", 0, effect="idempotent", action="pages.render"), confined=True),
        world.step("b", 1, "a"),
    )
    world.accept(on_failure="stop").admit(*steps)
    world.ledger.history.keep_admitted(
        world.run_id, 1, as_admitted(NewPlan("plan", "e" * 64, 100, 1_048_576, steps), 0)
    )
    wrote(world, "idempotent")
    assert retry(world).outcome == "retried:2"


def wrote(world: World, effect: str) -> None:
    if effect == "once":
        granted = began(world, "a")
        open_row(world, "a", granted)
        land(world, "a", granted, "{}")
        commit(world, "a", granted, "{}")
    else:
        did(world, "a", "{}")
    fail(world, "b")
    world.settle()


def test_a_command_whose_files_are_gone_is_done_again_under_a_new_key_alone(world: World) -> None:
    """Its row would give back its result, and no file."""
    world.accept(on_failure="stop").admit(
        world.step("a", 0, effect="once", action="run_command"), world.step("b", 1, "a")
    )
    wrote(world, "once")
    for from_steps in ((), ("a",)):
        with pytest.raises(DecisionRefused, match="in which it ran is gone") as refused:
            retry(world, *from_steps)
        assert "--from a --new-key a" in str(refused.value.hint)
    assert retry(world, "a", new_keys=("a",)).outcome == "retried:2"


def test_files_that_go_between_the_look_at_them_and_the_decision_are_missed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote_a_file(world)
    Workspaces(tmp_path).open(world.run_id, 1)
    decide = world.ledger.decide

    def let_go_first(*arguments: Any, **named: Any) -> str:
        assert world.ledger.files.let_go(world.run_id, 1, world.run.ended_at)
        return decide(*arguments, **named)

    monkeypatch.setattr(world.ledger, "decide", let_go_first)
    decided = retry(world)
    assert (decided.outcome, decided.carried_out) == ("no_files:a", False)
    assert (world.run.status, world.run.generation) == ("failed", 1)


def test_files_do_not_go_once_it_is_decided_to_start_over(world: World, tmp_path: Path) -> None:
    wrote_a_file(world)
    Workspaces(tmp_path).open(world.run_id, 1)
    world.ledger.decide(world.run_id, 1, "retry", "ann", None)
    assert not world.ledger.files.let_go(world.run_id, 1, world.run.ended_at)
    world.repeat()
    assert world.run.generation == 2
    assert not world.ledger.files.let_go(world.run_id, 1, world.run.ended_at)
