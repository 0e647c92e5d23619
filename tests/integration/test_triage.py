"""Dead letters dealt with on real servers: decided once, carried out wherever it broke off, refused by name."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import app as celery_app
from orchestrator import dead_letters, decisions, dispatch, submission, triage
from orchestrator.admission import PayloadDrift
from orchestrator.cli import letters as letters_cli
from orchestrator.cli.command import run as run_command
from orchestrator.client import Client
from orchestrator.decisions import Desk, os_user
from orchestrator.errors import DecisionRefused, NotFound, StoreUnavailable, SubmissionRefused
from orchestrator.ledger import LedgerRun, LetterFilter
from orchestrator.replays import Wish
from orchestrator.supervisors import apply_decisions
from orchestrator.supervisors.passes import Counts
from orchestrator.telemetry.logs import identity
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef
from schemas.states import Fact
from tests.support.installation import Installation, environment, installation, lasting_installation
from tests.support.letters import letter_about, lost_run, refuse_plan, refused_run, refused_submission
from tests.support.servers import Server
from tests.support.world import World, world_on
from workers.cli import mandor
from workers.context import Context
from workers.registry import Registry

FIELDS: dict[str, Any] = {"planner": "orders.fulfil", "goal": "fulfil it", "context": {"order": 7}}


class Crash(BaseException):
    """The process ends here."""


def crash(*_: Any, **__: Any) -> Any:
    raise Crash


@pytest.fixture
def ours(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[Installation]:
    prefix = f"{namespace}."
    with installation(redis_server.url, tmp_path, namespace=namespace, queue_prefix=prefix, shards=2) as made:
        yield made


@pytest.fixture
def world(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[World]:
    with world_on(redis_server, namespace, tmp_path) as made:
        yield made


@pytest.fixture
def theirs(ours: Installation, redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[Installation]:
    """Another installation on the same ledger."""
    name = f"{namespace}b"
    with lasting_installation(redis_server.url, tmp_path, namespace=name, queue_prefix=f"{name}.", shards=2) as made:
        yield made


def desk_of(ours: Installation) -> Desk:
    return Desk(ours.app, ours.store, ours.ledger)


def refused_plan(ours: Installation, task_id: str = "t1", **changes: Any) -> str:
    """The letter about a run whose planner's answers were refused."""
    ref = refused_run(ours, {**FIELDS, **changes}, task_id)
    planner = row_of(ours, ref.run_id).planner
    attempts = [{"raw": '{"steps": 3}', "errors": [{"path": "steps", "kind": "list_type", "message": "not a list"}]}]
    return letter_about(ours, ref, "steps: not a list", planner=planner, attempts=attempts)


def lost_planner(ours: Installation, task_id: str = "t1") -> str:
    """The letter about a run whose planner lost its process each time, as whoever ends the run writes it."""
    ref = lost_run(ours, FIELDS, task_id)
    (letter,) = ours.ledger.letters(9, kind=DeadLetterKind.PLAN, run_id=ref.run_id)
    assert (letter.reason, row_of(ours, ref.run_id).status) == ("retry_exhausted", "failed")
    return letter.id


def repeat(ours: Installation) -> Counts:
    return apply_decisions.run_once(ours.app, ours.store, ours.ledger)


def row_of(ours: Installation, run_id: str | None) -> LedgerRun:
    row = ours.ledger.run(run_id or "")
    assert row is not None
    return row


def runs(ours: Installation) -> int:
    return len(ours.ledger.listed(1000))


def status(ours: Installation, letter_id: str) -> str:
    letter = ours.ledger.letter(letter_id)
    assert letter is not None
    return letter.status.value


def catalogue() -> Any:
    registry = Registry()

    class Params(BaseModel):
        value: str

    @registry.action("echo", effect="pure")
    def echo(params: Params, ctx: Context) -> str:
        return params.value

    return registry.catalogue()


def plan_for(ours: Installation, value: Any) -> str:
    context_hash = submission.read(FIELDS, ours.settings).context_hash()
    steps = [{"action": "echo", "params": {"value": value}}]
    return json.dumps({"plan_id": "3f43b6b0-0b6b-4b7e-9d76-6f0b7dbd6a11", "context_hash": context_hash, "steps": steps})


# ---- a plan


def test_a_plan_is_replayed_as_one_run_whoever_asks(ours: Installation) -> None:
    letter_id, desk = refused_plan(ours, session_id="s"), desk_of(ours)
    first = triage.replay(desk, letter_id, "ann", "the prompt was mended")
    again = triage.replay(desk, letter_id, "bob")
    assert (first.made, first.word, first.carried_out) == (True, "submitted", True)
    assert (again.made, again.by, again.run_id, again.at_ms) == (False, "ann", first.run_id, first.at_ms)
    row = row_of(ours, first.run_id)
    assert (row.planner, row.session_id, row.request_id) == ("orders.fulfil", "s", f"letter:{letter_id}")
    assert json.loads(row.submission_text)["context"] == {"order": 7}
    assert (runs(ours), status(ours, letter_id)) == (2, "replayed")
    (decision,) = ours.ledger.triage.decisions(letter_id)
    assert (decision.made_by, decision.reason, decision.outcome) == ("ann", "the prompt was mended", first.outcome)


def test_a_plan_is_made_anew_by_another_planner(ours: Installation) -> None:
    letter_id = refused_plan(ours)
    made = triage.replay(desk_of(ours), letter_id, "ann", wish=Wish(planner="other"))
    assert row_of(ours, made.run_id).planner == "other"
    same = triage.replay(desk_of(ours), letter_id, "bob", wish=Wish(planner="other"))
    assert (same.made, same.by, same.run_id) == (False, "ann", made.run_id)
    with pytest.raises(DecisionRefused, match=r"replayed by ann at .*submitted"):
        triage.replay(desk_of(ours), letter_id, "bob", wish=Wish(planner="third"))


def test_many_at_once_replay_a_plan_once(ours: Installation) -> None:
    letters = [refused_plan(ours, f"t{number}") for number in range(3)]
    together = threading.Barrier(4)

    def replay(name: str) -> list[triage.Dealt]:
        dealt = []
        for letter_id in letters:
            together.wait()
            dealt.append(triage.replay(desk_of(ours), letter_id, name))
        return dealt

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(replay, ["ann", "bob", "cid", "dee"]))
    for each in zip(*answers, strict=True):
        (first,) = [one for one in each if one.made]
        assert {(one.run_id, one.by) for one in each} == {(first.run_id, first.by)}
    assert (runs(ours), repeat(ours)) == (6, Counts())


PLACES = ("before the run is accepted", "before the store has it", "before its message", "before the outcome")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("finisher", ["a supervisor", "somebody else"])
def test_a_replay_is_finished_wherever_it_broke_off(
    ours: Installation, place: str, finisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter_id, desk = refused_plan(ours), desk_of(ours)
    broken: dict[str, tuple[object, str]] = {
        "before the run is accepted": (ours.ledger, "accept"),
        "before the store has it": (ours.store.runs, "create_run"),
        "before its message": (dispatch, "publish"),
        "before the outcome": (ours.ledger.triage, "done"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(*broken[place], crash)
        with pytest.raises(Crash):
            triage.replay(desk, letter_id, "ann")
    assert status(ours, letter_id) == "replayed"
    if finisher == "a supervisor":
        assert repeat(ours) == Counts(taken=1, moved=1)
    dealt = triage.replay(desk, letter_id, "bob")
    assert (dealt.made, dealt.by, dealt.word) == (False, "ann", "submitted")
    assert row_of(ours, dealt.run_id).request_id == f"letter:{letter_id}"
    assert (runs(ours), repeat(ours)) == (2, Counts())


def test_a_replay_while_the_store_is_away_is_kept(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    letter_id, desk = refused_plan(ours), desk_of(ours)

    def away(*_: Any) -> Any:
        raise StoreUnavailable("gone", hint="start it")

    with monkeypatch.context() as patched:
        patched.setattr(ours.store.runs, "create_run", away)
        with pytest.raises(StoreUnavailable) as caught:
            triage.replay(desk, letter_id, "ann")
        assert "the decision is kept" in str(caught.value)
        assert triage.replay(desk, letter_id, "bob").outcome is None
        assert repeat(ours).failed == 1
    assert repeat(ours) == Counts(taken=1, moved=1)
    assert triage.replay(desk, letter_id, "bob").word == "submitted"


def test_what_cannot_be_carried_out_leaves_the_letter_open(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the decision and its carrying out somebody takes the run's identity."""
    letter_id, desk = refused_plan(ours), desk_of(ours)
    with monkeypatch.context() as patched:
        patched.setattr(ours.ledger, "accept", crash)
        with pytest.raises(Crash):
            triage.replay(desk, letter_id, "ann")
    read = submission.read({**FIELDS, "goal": "other", "request_id": f"letter:{letter_id}"}, ours.settings)
    with identity():
        submission.submit(ours.app, ours.store, ours.ledger, ours.settings, read, "t9")
    assert repeat(ours) == Counts(taken=1, moved=1)
    assert status(ours, letter_id) == "open"
    (decision,) = ours.ledger.triage.decisions(letter_id)
    assert (decision.outcome or "").startswith("refused:this request_id belongs to run")
    assert triage.drop(desk, letter_id, "ann", "it is taken").carried_out


def test_a_plan_whose_run_is_gone_cannot_be_replayed(ours: Installation) -> None:
    letter_id = refused_plan(ours)
    (row,) = ours.ledger.listed(9)
    assert row.ended_at is not None
    ours.ledger.prune(row.ended_at + 1, 0, 9)
    with pytest.raises(DecisionRefused, match="has let go of run"):
        triage.replay(desk_of(ours), letter_id, "ann")
    assert status(ours, letter_id) == "open"


# ---- a plan whose run is started over, too


def start_over(desk: Desk, run_id: str) -> str:
    return decisions.retry(desk, run_id, "bob").outcome


def test_a_run_that_was_started_over_is_not_submitted_again(ours: Installation) -> None:
    letter_id, desk = refused_plan(ours), desk_of(ours)
    (row,) = ours.ledger.listed(9)
    assert start_over(desk, row.run_id) == "retried:2"
    with pytest.raises(DecisionRefused, match="was started over since this letter"):
        triage.replay(desk, letter_id, "ann")
    refuse_plan(ours, RunRef(row.run_id, row.session), 2)
    with pytest.raises(DecisionRefused, match="was started over since this letter"):
        triage.replay(desk, letter_id, "ann")
    second = letter_about(ours, RunRef(row.run_id, row.session), "again", 2)
    assert triage.replay(desk, second, "ann").word == "submitted"
    assert runs(ours) == 2


def test_a_run_that_was_submitted_again_is_not_started_over(ours: Installation) -> None:
    letter_id, desk = refused_plan(ours), desk_of(ours)
    (row,) = ours.ledger.listed(9)
    triage.replay(desk, letter_id, "ann")
    with pytest.raises(DecisionRefused, match="was submitted again, for a dead letter") as caught:
        start_over(desk, row.run_id)
    assert letter_id in str(caught.value.hint)
    assert row_of(ours, row.run_id).generation == 1


def test_a_run_that_has_not_ended_as_refused_is_not_submitted_again(ours: Installation) -> None:
    """Its worker died between the letter and the end, and the next one may have got a plan."""
    with identity():
        read = submission.read(FIELDS, ours.settings)
        run_id = submission.submit(ours.app, ours.store, ours.ledger, ours.settings, read, "t1").run_id
    ref = RunRef(run_id, row_of(ours, run_id).session)
    letter_id = letter_about(ours, ref, "steps: not a list")
    with pytest.raises(DecisionRefused, match="is accepted, and may have, or get, a plan"):
        triage.replay(desk_of(ours), letter_id, "ann")
    refuse_plan(ours, ref)
    assert triage.replay(desk_of(ours), letter_id, "ann").word == "submitted"


@pytest.mark.parametrize("unplanned", [refused_plan, lost_planner])
@pytest.mark.parametrize("broken", ["the replay", "the retry"])
def test_of_a_replay_and_a_retry_that_were_both_decided_one_goes_on(
    ours: Installation, broken: str, unplanned: Callable[[Installation], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them dies behind its decision, and is carried out when the other is over."""
    letter_id, desk = unplanned(ours), desk_of(ours)
    (row,) = ours.ledger.listed(9)
    both: list[Callable[[], object]] = [
        lambda: triage.replay(desk, letter_id, "ann"),
        lambda: start_over(desk, row.run_id),
    ]
    first, other = both if broken == "the replay" else both[::-1]
    with monkeypatch.context() as patched:
        patched.setattr(ours.ledger, "accept", crash)
        patched.setattr(ours.store.runs, "retry", crash)
        with pytest.raises(Crash):
            first()
    with suppress(DecisionRefused):
        other()
    repeat(ours)
    started_over = row_of(ours, row.run_id).generation == 2
    assert (runs(ours) == 2) != started_over
    assert repeat(ours) == Counts()


@pytest.mark.parametrize("unplanned", [refused_plan, lost_planner])
def test_replays_and_retries_at_once_never_both_go_on(
    ours: Installation, unplanned: Callable[[Installation, str], str]
) -> None:
    letters = {unplanned(ours, f"t{number}"): "" for number in range(8)}
    for letter_id in letters:
        letter = ours.ledger.letter(letter_id)
        assert letter is not None
        letters[letter_id] = str(letter.run_id)
    together = threading.Barrier(2)

    def each(do: Callable[[str, str], object]) -> None:
        for letter_id, run_id in letters.items():
            together.wait()
            with suppress(DecisionRefused):
                do(letter_id, run_id)

    with ThreadPoolExecutor(2) as pool:
        replays = pool.submit(each, lambda letter_id, _: triage.replay(desk_of(ours), letter_id, "ann"))
        retries = pool.submit(each, lambda _, run_id: start_over(desk_of(ours), run_id))
        replays.result(), retries.result()
    repeat(ours)
    for letter_id, run_id in letters.items():
        again = [one for one in ours.ledger.listed(99) if one.request_id == f"letter:{letter_id}"]
        assert len(again) + row_of(ours, run_id).generation - 1 <= 1


# ---- a planner that loses its process each time


@pytest.mark.parametrize("way", ["as it is", "another planner", "a plan"])
def test_what_no_planner_survived_is_submitted_again(ours: Installation, way: str) -> None:
    letter_id, plan = lost_planner(ours), plan_for(ours, "3")
    wish = {"as it is": Wish(), "another planner": Wish(planner="other"), "a plan": Wish(edited=plan)}[way]
    first = triage.replay(desk_of(ours), letter_id, "ann", wish=wish)
    again = triage.replay(desk_of(ours), letter_id, "bob")
    assert (first.word, again.made, again.run_id) == ("submitted", False, first.run_id)
    sent = json.loads(row_of(ours, first.run_id).submission_text)
    planner = {"as it is": "orders.fulfil", "another planner": "other", "a plan": None}[way]
    assert (sent.get("planner"), sent.get("plan")) == (planner, plan if way == "a plan" else None)
    assert (runs(ours), status(ours, letter_id)) == (2, "replayed")


def test_a_run_whose_lost_planner_was_replaced_is_not_started_over(ours: Installation) -> None:
    letter_id, desk = lost_planner(ours), desk_of(ours)
    (row,) = ours.ledger.listed(9)
    triage.replay(desk, letter_id, "ann", wish=Wish(planner="other"))
    with pytest.raises(DecisionRefused, match="was submitted again, for a dead letter"):
        start_over(desk, row.run_id)
    assert row_of(ours, row.run_id).generation == 1


def test_a_run_that_failed_with_a_plan_is_not_submitted_again(world: World) -> None:
    """What its steps did stays had."""
    failed(world)
    refused = dead_letters.write(
        world.app, world.ledger, DeadLetterKind.PLAN, "drift", "p", {"generation": 1}, world.ref
    )
    with pytest.raises(DecisionRefused, match="is failed, and may have, or get, a plan"):
        triage.replay(world.desk, refused, "ann")


# ---- edited


def test_an_edited_plan_passes_the_door_before_anything_is_decided(ours: Installation) -> None:
    letter_id, desk, known = refused_plan(ours), desk_of(ours), catalogue()
    with pytest.raises(PayloadDrift) as caught:
        triage.replay(desk, letter_id, "ann", wish=Wish(edited=plan_for(ours, 3), catalogue=known))
    assert caught.value.path == "steps.0.params.value"
    assert (status(ours, letter_id), ours.ledger.triage.decisions(letter_id), runs(ours)) == ("open", [], 1)
    dealt = triage.replay(desk, letter_id, "ann", wish=Wish(edited=plan_for(ours, "3"), catalogue=known))
    row = row_of(ours, dealt.run_id)
    sent = json.loads(row.submission_text)
    assert (row.planner, sent["plan"], sent["goal"]) == (None, plan_for(ours, "3"), "fulfil it")


def test_a_replay_meets_the_policy_that_there_is_by_now(ours: Installation, tmp_path: Path) -> None:
    """dlq-05: whatever was allowed when the letter was written."""
    letter_id, desk, narrower = refused_plan(ours), desk_of(ours), tmp_path / "policy.json"
    narrower.write_text('{"actions": ["shipping.book"]}')
    with environment({"MANDOR_POLICY_FILE": str(narrower)}):
        with pytest.raises(PayloadDrift) as caught:
            triage.replay(desk, letter_id, "ann", wish=Wish(edited=plan_for(ours, "3"), catalogue=catalogue()))
        assert (caught.value.path, status(ours, letter_id)) == ("steps.0.action", "open")
        dealt = triage.replay(desk, letter_id, "ann")
    assert json.loads(row_of(ours, dealt.run_id).policy_text)["actions"] == ["shipping.book"]


def test_a_secret_that_the_letter_does_not_have_is_asked_for_in_a_plan_too(ours: Installation) -> None:
    ref = refused_run(ours, FIELDS, "t1")
    letter_id = letter_about(ours, ref, "drift", attempts=[{"raw": '{"steps": [{"password": "***"}]}', "errors": []}])
    with pytest.raises(DecisionRefused) as caught:
        triage.replay(desk_of(ours), letter_id, "ann", wish=Wish(edited=plan_for(ours, "***")))
    assert caught.value.path == "steps.0.params.value"
    assert triage.replay(desk_of(ours), letter_id, "ann", wish=Wish(edited=plan_for(ours, "hunter3"))).made


def test_stars_that_were_no_secret_may_stay(ours: Installation) -> None:
    ref = refused_run(ours, FIELDS, "t1")
    raw = json.dumps({"steps": [{"params": {"value": "one\n***\ntwo"}}], "extra": 1})
    letter_id = letter_about(ours, ref, "drift", attempts=[{"raw": raw, "prompt": "password=hunter22", "errors": []}])
    assert triage.replay(desk_of(ours), letter_id, "ann", wish=Wish(edited=plan_for(ours, "one\n***\ntwo"))).made


def test_stars_may_stay_beside_a_secret_that_is_written_in_again(ours: Installation) -> None:
    ref = refused_run(ours, FIELDS, "t1")
    raw = json.dumps({"steps": [{"params": {"value": "a *** b", "password": "hunter22"}}]})
    letter_id, desk = letter_about(ours, ref, "drift", attempts=[{"raw": raw, "errors": []}]), desk_of(ours)
    with pytest.raises(DecisionRefused) as caught:
        triage.replay(desk, letter_id, "ann", wish=Wish(edited=plan_for(ours, {"a": "a *** b", "password": "***"})))
    assert (caught.value.path, letter_id in str(caught.value.hint)) == ("steps.0.params.value.password", True)
    edited = plan_for(ours, {"a": "a *** b", "password": "hunter33"})
    assert triage.replay(desk, letter_id, "ann", wish=Wish(edited=edited)).made


def test_a_submission_is_submitted_again_once_it_is_right(ours: Installation) -> None:
    desk = desk_of(ours)
    letter_id = refused_submission(ours, {"goal": 3, "planer": "orders.fulfil", "request_id": "nightly"})
    with pytest.raises(SubmissionRefused) as caught:
        triage.replay(desk, letter_id, "ann")
    assert ("goal: " in caught.value.message, "planer: " in caught.value.message) == (True, True)
    assert {"goal", "planer"} <= {error["path"] for error in caught.value.errors()}
    assert f"mandor dlq edit {letter_id}" in str(caught.value.hint)
    for text, path in (("[1]", None), ('{"goal": ', None), ('{"goal": "g"}', "planner")):
        with pytest.raises(SubmissionRefused) as caught:
            triage.replay(desk, letter_id, "ann", wish=Wish(edited=text))
        assert caught.value.path == path
    assert status(ours, letter_id) == "open"
    right = json.dumps({"goal": "3", "planner": "orders.fulfil", "request_id": "nightly"})
    dealt = triage.replay(desk, letter_id, "ann", wish=Wish(edited=right))
    assert row_of(ours, dealt.run_id).request_id == "nightly"


def test_an_edited_submission_names_a_planner_that_there_is(ours: Installation) -> None:
    letter_id, desk = refused_submission(ours, {"goal": "g"}), desk_of(ours)
    known = replace(catalogue(), planners=frozenset({"orders.fulfil"}))
    for name, guess in (("orders.fulfill", "did you mean orders.fulfil?"), ("other", "mandor actions list")):
        wrong = Wish(edited=json.dumps({"goal": "g", "planner": name}), catalogue=known)
        with pytest.raises(SubmissionRefused) as caught:
            triage.replay(desk, letter_id, "ann", wish=wrong)
        assert (caught.value.path, guess in caught.value.message) == ("planner", True)
    assert (status(ours, letter_id), runs(ours)) == ("open", 0)
    right = Wish(edited=json.dumps({"goal": "g", "planner": "orders.fulfil"}), catalogue=known)
    assert triage.replay(desk, letter_id, "ann", wish=right).carried_out


def test_a_submission_without_a_request_id_gets_the_letter_s(ours: Installation) -> None:
    letter_id, desk = refused_submission(ours, {"goal": "g"}), desk_of(ours)
    dealt = triage.replay(desk, letter_id, "ann", wish=Wish(planner="orders.fulfil"))
    assert row_of(ours, dealt.run_id).request_id == f"letter:{letter_id}"


def test_a_secret_that_the_letter_does_not_have_is_asked_for(ours: Installation) -> None:
    desk = desk_of(ours)
    letter_id = refused_submission(ours, {"goal": "g", "context": {"user": {"password": "hunter2!"}}})
    kept = ours.ledger.letter(letter_id)
    assert kept is not None
    edited = {**kept.content["submission"], "planner": "orders.fulfil"}
    with pytest.raises(DecisionRefused) as caught:
        triage.replay(desk, letter_id, "ann", wish=Wish(edited=json.dumps(edited)))
    assert caught.value.path == "context.user.password"
    edited["context"]["moved"] = [edited["context"]["user"].pop("password")]
    with pytest.raises(DecisionRefused) as caught:
        triage.replay(desk, letter_id, "ann", wish=Wish(edited=json.dumps(edited)))
    assert caught.value.path == "context.moved.0"
    edited["context"]["user"]["password"] = edited["context"].pop("moved")[0].replace("***", "hunter3!")
    assert triage.replay(desk, letter_id, "ann", wish=Wish(edited=json.dumps(edited))).carried_out


# ---- a step


def told(world: World, step_id: str, generation: int = 1) -> str:
    content = {"action": "act", "attempts": [{"attempt": "1"}], "generation": generation}
    return dead_letters.about_step(world.app, world.ledger, world.ref, step_id, generation, "retry_exhausted", content)


def failed(world: World) -> str:
    """The letter about a step that was given up, in a run that failed."""
    world.accept(on_failure="stop").admit(world.step("a", 0), world.step("b", 1))
    world.fail("a")
    world.settle()
    if world.row.ended_at is None:
        world.claim("b")
        world.complete("b", "1")
        world.settle()
    assert world.row.status == "failed"
    return told(world, "a")


def generation(world: World) -> int:
    return world.run.generation


def test_a_step_s_run_is_started_over_once(world: World) -> None:
    letter_id = failed(world)
    first = triage.replay(world.desk, letter_id, "ann", "the bank is back")
    again = triage.replay(world.desk, letter_id, "bob")
    assert (first.outcome, first.run_id, first.step_id) == ("retried:2", world.run_id, "a")
    assert (again.made, again.by, again.outcome, again.run_id) == (False, "ann", "retried:2", world.run_id)
    assert (generation(world), world.repeat()) == (2, Counts())
    (decision,) = world.ledger.decisions_of(world.run_id)
    assert (decision.kind, decision.made_by, decision.reason) == ("retry", "ann", "the bank is back")


def test_a_second_letter_of_a_run_that_was_started_over_asks_for_nothing_more(world: World) -> None:
    one, other = failed(world), told(world, "b")
    assert triage.replay(world.desk, one, "ann").outcome == "retried:2"
    dealt = triage.replay(world.desk, other, "bob")
    assert (dealt.made, dealt.carried_out, dealt.outcome) == (True, True, "retried:2")
    assert (generation(world), len(world.ledger.decisions_of(world.run_id))) == (2, 1)


def test_many_at_once_start_a_run_over_once(world: World) -> None:
    letters = [failed(world), told(world, "b")]
    together = threading.Barrier(4)

    def replay(number: int) -> str | None:
        together.wait()
        return triage.replay(world.desk, letters[number % 2], f"p{number}").outcome

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(replay, range(4))) == {"retried:2"}
    assert (generation(world), world.repeat()) == (2, Counts())


@pytest.mark.parametrize("place", ["decide", "reopen_run", "decision_done", "outcome"])
def test_starting_over_for_a_letter_is_finished_wherever_it_broke_off(
    world: World, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter_id = failed(world)
    with monkeypatch.context() as patched:
        if place == "outcome":
            patched.setattr(world.ledger.triage, "done", crash)
        else:
            patched.setattr(world.ledger, place, crash)
        with pytest.raises(Crash):
            triage.replay(world.desk, letter_id, "ann")
    world.repeat()
    dealt = triage.replay(world.desk, letter_id, "bob")
    assert (dealt.made, dealt.by, dealt.outcome) == (False, "ann", "retried:2")
    assert (generation(world), world.row.status, world.repeat()) == (2, "running", Counts())


def test_a_step_whose_run_cannot_be_started_over_stays_a_letter(world: World) -> None:
    world.accept(on_failure="stop").admit(world.step("a", 0))
    letter_id = told(world, "a")
    with pytest.raises(DecisionRefused, match="has not ended"):
        triage.replay(world.desk, letter_id, "ann")
    letter = world.ledger.letter(letter_id)
    assert letter is not None
    assert letter.status == "open"


def test_a_doubt_is_told_and_the_letter_is_open_again(world: World) -> None:
    world.accept(on_failure="stop", on_doubt="end").admit(world.step("a", 0, effect="once"))
    world.fail("a", Fact.MAYBE)
    world.settle()
    letter_id = told(world, "a")
    dealt = triage.replay(world.desk, letter_id, "ann")
    assert (dealt.carried_out, dealt.outcome) == (False, "refused:in_doubt:a")
    letter = world.ledger.letter(letter_id)
    assert letter is not None
    assert letter.status == "open"


# ---- what is not replayed; dropped


def other_letter(world: World, kind: DeadLetterKind, reason: str = "r") -> str:
    return dead_letters.write(world.app, world.ledger, kind, reason, f"{kind}{reason}", {}, world.ref, "a")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(DeadLetterKind.MESSAGE, "r"), (DeadLetterKind.DELIVERY, "r"), (DeadLetterKind.STEP, "late_effect")],
)
def test_what_cannot_be_replayed_says_so_and_stays(world: World, kind: DeadLetterKind, reason: str) -> None:
    letter_id = other_letter(world, kind, reason)
    with pytest.raises(DecisionRefused) as caught:
        triage.replay(world.desk, letter_id, "ann")
    assert f"mandor dlq drop {letter_id}" in str(caught.value)
    assert triage.drop(world.desk, letter_id, "ann", "seen").carried_out


def test_a_letter_about_a_step_has_no_planner_to_change(world: World) -> None:
    with pytest.raises(DecisionRefused) as caught:
        triage.replay(world.desk, failed(world), "ann", wish=Wish(planner="other"))
    assert caught.value.path == "planner"


def test_who_drops_says_why_and_is_named_to_who_comes_later(world: World) -> None:
    letter_id = failed(world)
    with pytest.raises(DecisionRefused) as caught:
        triage.drop(world.desk, letter_id, "ann", " ")
    assert caught.value.path == "reason"
    assert triage.drop(world.desk, letter_id, "ann", "a test").word == "dropped"
    for late in (
        lambda: triage.replay(world.desk, letter_id, "bob"),
        lambda: triage.drop(world.desk, letter_id, "bob", "mine"),
        lambda: triage.foresee(world.desk, letter_id),
    ):
        with pytest.raises(DecisionRefused, match=r"dropped by ann at .* \(a test\)"):
            late()
    with pytest.raises(NotFound):
        triage.replay(world.desk, "nothing", "ann")


# ---- a ledger of several installations


def dlq(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run_command(mandor, ["dlq", *arguments]) == code
    return capsys.readouterr().out


def test_letters_of_others_are_neither_seen_nor_touched(
    ours: Installation, theirs: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_app, "app", ours.app)
    mine = refused_plan(ours)
    with theirs.in_force():
        of_run = refused_plan(theirs, "t2")
        refused = SubmissionRefused("no planner", path="planner")
        of_none = submission.bury(theirs.app, theirs.ledger, theirs.settings, refused, FIELDS, "t3")
    listed = json.loads(dlq(capsys, "list", "--json"))["dead_letters"]
    groups = json.loads(dlq(capsys, "list", "--groups", "--json"))["groups"]
    exported = map(json.loads, dlq(capsys, "export").splitlines())
    assert [[one["id"] for one in found] for found in (listed, exported)] == [[mine], [mine]]
    assert [(group["newest_id"], group["count"]) for group in groups] == [(mine, 1)]
    dealt = json.loads(dlq(capsys, "replay", "--kind", "plan", "--yes", "--json"))["letters"]
    assert [row["letter_id"] for row in dealt] == [mine]
    dlq(capsys, "drop", "--kind", "submission", "--reason", "a test", "--yes")
    assert [status(theirs, one) for one in (of_run, of_none)] == ["open", "open"]


def test_a_letter_of_others_is_not_found(ours: Installation, theirs: Installation) -> None:
    with theirs.in_force():
        letter_id = refused_plan(theirs)
    desk = desk_of(ours)
    for touch in (
        lambda: triage.find(desk, letter_id),
        lambda: triage.open_letter(desk, letter_id),
        lambda: triage.replay(desk, letter_id, "ann"),
        lambda: triage.drop(desk, letter_id, "ann", "a test"),
        lambda: letters_cli.whole(ours.ledger, letter_id, ours.settings.namespace),
    ):
        with pytest.raises(NotFound, match="no dead letter"):
            touch()
    assert (status(theirs, letter_id), ours.ledger.triage.decisions(letter_id)) == ("open", [])
    assert triage.drop(desk_of(theirs), letter_id, "bob", "ours").carried_out


def test_what_a_replay_would_do_is_told_without_doing_it(ours: Installation) -> None:
    letter_id, desk = refused_plan(ours), desk_of(ours)
    would = triage.foresee(desk, letter_id)
    assert (runs(ours), status(ours, letter_id)) == (1, "open")
    assert would == f"submit run {triage.replay(desk, letter_id, 'ann').run_id}"


# ---- for programs


@pytest.fixture
def client(ours: Installation, theirs: Installation, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Ours; on the same ledger lies a letter of others."""
    with theirs.in_force():
        refused_plan(theirs, "t9")
    monkeypatch.setattr(celery_app, "app", ours.app)
    monkeypatch.setattr(celery_app, "store", lambda: ours.store)
    monkeypatch.setattr(celery_app, "ledger", lambda: ours.ledger)
    return Client(ours.settings)


def test_a_program_reads_letters_page_by_page(ours: Installation, client: Client) -> None:
    other = refused_submission(ours, {"goal": "g"})
    plans = [refused_plan(ours, f"t{number}") for number in range(2)]
    assert [one.id for one in client.letters()] == [*plans[::-1], other]
    assert [one.id for one in client.letters(limit=1, before=plans[1])] == [plans[0]]
    about_plans = LetterFilter(kind=DeadLetterKind.PLAN)
    assert [one.id for one in client.letters(wanted=about_plans)] == plans[::-1]
    (first,) = client.letter_groups(limit=1)
    (second,) = client.letter_groups(before=(first.newest_at, first.fingerprint))
    assert [(one.newest.id, one.count) for one in (first, second)] == [(plans[1], 2), (other, 1)]
    assert client.letter_groups(wanted=about_plans) == [first]
    assert client.letter(other).content["submission"] == {"goal": "g"}


def test_a_program_deals_with_letters_once(ours: Installation, client: Client) -> None:
    replayed, edited, dropped = (refused_plan(ours, f"t{number}") for number in range(3))
    first = client.replay(replayed, planner="other", by="ann", reason="it is better")
    second = client.replay(replayed, planner="other", by="bob")
    assert (first.made, first.by, second.made, second.by) == (True, "ann", False, "ann")
    assert (first.run_id, row_of(ours, first.run_id).planner) == (second.run_id, "other")
    with pytest.raises(PayloadDrift):
        client.edit(edited, plan_for(ours, 3), catalogue=catalogue())
    right = client.edit(edited, plan_for(ours, "3"), catalogue=catalogue(), by="ann")
    assert json.loads(row_of(ours, right.run_id).submission_text)["plan"] == plan_for(ours, "3")
    with pytest.raises(DecisionRefused, match="replayed by ann"):
        client.edit(edited, plan_for(ours, "4"), catalogue=catalogue(), by="bob")
    assert client.drop(dropped, "a test").by == os_user()
    with pytest.raises(DecisionRefused, match=r"dropped by .* at .* \(a test\)"):
        client.drop(dropped, "mine", by="bob")
    assert [status(ours, one) for one in (replayed, edited, dropped)] == ["replayed", "replayed", "dropped"]


def test_a_program_is_told_of_letters_that_are_not_there(client: Client, theirs: Installation) -> None:
    (of_others,) = theirs.ledger.triage.listed(9)
    for letter_id in ("nothing", of_others.id):
        for touch in (
            client.letter,
            client.replay,
            lambda one: client.edit(one, "{}"),
            lambda one: client.drop(one, "a test"),
        ):
            with pytest.raises(NotFound, match="no dead letter"):
                touch(letter_id)
    assert status(theirs, of_others.id) == "open"
