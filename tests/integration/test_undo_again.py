"""A person has a letter about an undo replayed: the step is undone once more, once, whatever breaks off or forgets."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import dead_letters, late_effects, progress, triage
from orchestrator.cli.dealing import sentence
from orchestrator.decisions import Desk
from orchestrator.errors import DecisionRefused
from orchestrator.ledger import LedgerRun
from orchestrator.recovery import restore
from orchestrator.recovery.restore import Site
from orchestrator.store.keys import RUN_PARTS
from orchestrator.store.replies import UndoGivenUp
from orchestrator.supervisors import apply_decisions, audit_runs, drain_ledger
from orchestrator.telemetry.logs import identity
from orchestrator.triage import Dealt
from schemas.dead_letter import DeadLetter, DeadLetterKind, DeadLetterStatus
from schemas.states import EffectClass
from tests.support import forgetting
from tests.support.installation import celery_app
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, workbench
from workers import givenup
from workers.context import Context, NoEffect, PermanentError
from workers.services import Letter

PLACES = ("decide", "reopen_run", "decision_done", "outcome")


class Params(BaseModel):
    x: int = 1


class Closed(PermanentError, NoEffect):
    """Nothing was undone, for sure."""


class Crash(BaseException):
    """The process ends here."""


def crash(*_: Any, **__: Any) -> Any:
    raise Crash


@dataclass
class Office:
    """Actions whose compensations fail until it is open; and what was undone."""

    bench: Workbench
    site: Site
    server: Server
    open: bool = False
    refusal: type[PermanentError] = PermanentError
    undone: list[str] = field(default_factory=list)
    ahead_ms: int = 0

    def declare(self, effect: str) -> None:
        def act(params: Params, ctx: Context) -> Params:
            return params

        def take_back(params: Params, done: Params | None, ctx: Context) -> None:
            if not self.open:
                raise self.refusal("the office is closed")
            self.undone.append(ctx.step_id)

        self.bench.registry.action(effect, effect=effect)(act).compensation(take_back)

    @property
    def desk(self) -> Desk:
        return Desk(self.site.app, self.bench.store, self.bench.ledger)

    def failed(self, *actions: str) -> Run:
        """A run whose steps, each needing the one before, were done and could not be undone."""
        steps = [{"action": action, "params": {"x": i}} for i, action in enumerate((*actions, "fail"))]
        run = self.bench.planned(*steps)
        for i in range(len(steps)):
            run.deliver(f"s{i}")
        run.undo_all()
        self.tell(run)
        assert self.row(run).status == "compensation_failed"
        return run

    def row(self, run: Run) -> LedgerRun:
        found = self.bench.ledger.run(run.ref.run_id)
        assert found is not None
        return found

    def letters(self, run: Run) -> list[DeadLetter]:
        """Those about undos, in the order in which they were given up."""
        return self.bench.ledger.letters(9, kind=DeadLetterKind.UNDO, run_id=run.ref.run_id)[::-1]

    def replay(self, letter: DeadLetter, by: str = "ann") -> Dealt:
        return triage.replay(self.desk, letter.id, by)

    def tell(self, run: Run) -> None:
        with identity(run_id=run.ref.run_id):
            progress.settle_due(self.site.app, self.bench.store, self.bench.ledger, run.ref)

    def finish(self, run: Run) -> str:
        """Deliver what is to be undone until there is nothing more."""
        run = replace(run, generation=run.state.generation)
        for _ in range(9):
            self.tell(run)
            if run.state.ended_at:
                return self.row(run).status
            for step in self.bench.store.views.steps(run.ref):
                if step.undo is not None and step.undo.state == "dispatched":
                    run.undo(step.id)
        raise AssertionError(f"it does not end: {self.bench.store.views.steps(run.ref)}")

    def drain(self) -> None:
        self.bench.clock.advance(2000)
        drain_ledger.run_once(self.bench.store, self.bench.ledger, self.bench.settings)

    def repeat(self) -> None:
        apply_decisions.run_once(self.site.app, self.bench.store, self.bench.ledger)

    def let_go(self, run: Run) -> None:
        """What the state store does with a run when its time is over."""
        keys = self.bench.store.keys
        self.server.client.delete(keys.state(run.ref), *(keys.part(run.ref, name) for name in RUN_PARTS))

    def build(self) -> None:
        """What is missing is built again, once holders of claims have ended."""
        audit_runs.audit(self.site, [0])
        restore.recover(self.site)
        self.ahead_ms += 60_000
        assert restore.recover(self.site) == []


@pytest.fixture
def office(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[Office]:
    prefix = f"{namespace}."
    bench = workbench(redis_server.url, namespace, tmp_path, queue_prefix=prefix)
    with celery_app(redis_server.url, queue_prefix=prefix, home=tmp_path, namespace=namespace) as app:
        made = Office(bench, Site(app, bench.store, bench.ledger, bench.settings, "me"), redis_server)
        clock = bench.ledger.now_ms
        bench.ledger.losses._clock = lambda: clock() + made.ahead_ms
        for effect in ("keyed", "once"):
            made.declare(effect)

        def failing(params: Params, ctx: Context) -> None:
            raise PermanentError("no")

        bench.registry.action("fail", effect="pure")(failing)
        yield made


def test_it_is_undone_once_more_and_the_run_ends_anew_also_in_the_ledger(office: Office) -> None:
    run = office.failed("keyed")
    (letter,) = office.letters(run)
    office.open = True
    assert triage.foresee(office.desk, letter.id) == f"undo step s0 of run {run.ref.run_id} again"
    dealt = office.replay(letter)
    assert (dealt.carried_out, dealt.outcome, dealt.run_id, dealt.step_id) == (True, "undoing:2", run.ref.run_id, "s0")
    row = office.row(run)
    assert (row.status, row.generation, row.ended_at) == ("compensating", 2, None)
    told = office.replay(letter, "bob")
    assert (told.made, told.by, told.outcome) == (False, "ann", "undoing:2")
    again = "step s0 is undone again, in generation 2 of the run"
    assert sentence(dealt) == again
    with pytest.raises(DecisionRefused, match=f"replayed by ann at .*; what came of it: {again}"):
        triage.drop(office.desk, letter.id, "bob", "nothing is to be done")
    assert office.finish(run) == "compensated"
    assert (office.undone, office.row(run).reason) == (["s0"], "step_failed:s1")
    assert office.letters(run)[0].status is DeadLetterStatus.REPLAYED
    (decision,) = office.bench.ledger.decisions_of(run.ref.run_id)
    assert (decision.kind, decision.step_id, decision.made_by, decision.outcome) == ("undo", "s0", "ann", "undoing:2")


def test_one_that_fails_again_is_a_letter_of_its_own(office: Office) -> None:
    run = office.failed("keyed")
    (first,) = office.letters(run)
    office.replay(first)
    assert office.finish(run) == "compensation_failed"
    _, second = office.letters(run)
    office.open = True
    assert office.replay(second).outcome == "undoing:3"
    assert (office.finish(run), office.undone, len(office.letters(run))) == ("compensated", ["s0"], 2)


def test_many_at_once_have_each_step_undone_once_and_the_last_one_first(office: Office) -> None:
    run = office.failed("keyed", "keyed")
    letters = office.letters(run)
    office.open = True
    together = threading.Barrier(4)

    def replay(number: int) -> str | None:
        together.wait()
        return office.replay(letters[number % 2], f"p{number}").outcome

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(replay, range(4))) == {"undoing:2"}
    assert (office.finish(run), office.undone) == ("compensated", ["s1", "s0"])


@pytest.mark.parametrize("place", PLACES)
def test_it_is_finished_wherever_it_broke_off(office: Office, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = office.failed("keyed")
    (letter,) = office.letters(run)
    office.open = True
    with monkeypatch.context() as patched:
        broken = office.bench.ledger.triage if place == "outcome" else office.bench.ledger
        patched.setattr(broken, "done" if place == "outcome" else place, crash)
        with pytest.raises(Crash):
            office.replay(letter)
    office.repeat()
    told = office.replay(letter, "bob")
    assert (told.made, told.by, told.outcome) == (False, "ann", "undoing:2")
    assert (office.finish(run), office.undone) == ("compensated", ["s0"])


def test_a_compensation_that_is_declared_by_now_is_called(office: Office) -> None:
    def act(params: Params, ctx: Context) -> Params:
        return params

    def take_back(params: Params, done: Params | None, ctx: Context) -> None:
        office.undone.append(ctx.step_id)

    declared = office.bench.registry.action("bare", effect="keyed")(act)
    run = office.failed("bare")
    (letter,) = office.letters(run)
    assert letter.reason == "no compensation declared for bare"
    office.replay(letter)
    assert office.finish(run) == "compensation_failed"
    declared.compensation(take_back)
    assert office.replay(office.letters(run)[1]).outcome == "undoing:3"
    assert (office.finish(run), office.undone) == ("compensated", ["s0"])


def test_a_once_undo_that_may_have_happened_is_left_to_a_person(office: Office) -> None:
    run = office.failed("once")
    (letter,) = office.letters(run)
    with pytest.raises(DecisionRefused, match="nobody knows whether it was undone"):
        office.replay(letter)
    assert office.letters(run)[0].status is DeadLetterStatus.OPEN


def test_a_once_undo_that_did_not_happen_is_begun_again_and_may_be_under_way_when_that_is_told(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.refusal = Closed
    run = office.failed("once")
    (letter,) = office.letters(run)
    with monkeypatch.context() as patched:
        patched.setattr(office.bench.ledger.triage, "done", crash)
        with pytest.raises(Crash):
            office.replay(letter)
    step, rows = run.step(), office.bench.ledger.effects
    rows.open(run.ref.run_id, "s0", "undo", step.fence + 100, step.token, EffectClass.ONCE)
    office.repeat()
    assert office.replay(letter, "bob").outcome == "undoing:2"


def test_a_step_of_a_run_that_was_undone_says_what_to_do_instead(office: Office) -> None:
    run = office.failed("keyed")
    about = (office.site.app, office.bench.ledger, run.ref, "s1", 1, "retry_exhausted", {"generation": 1})
    letter_id = dead_letters.about_step(*about)
    with pytest.raises(DecisionRefused, match="undone in part") as caught:
        triage.replay(office.desk, letter_id, "ann")
    assert caught.value.hint == f"submit it again, then `mandor dlq drop {letter_id} --reason …`"


def test_what_came_late_is_not_begun_again(office: Office) -> None:
    run = office.failed("keyed")
    office.bench.services.write_letter(late_letter(run))
    late = next(letter for letter in office.letters(run) if letter.reason.startswith(late_effects.UNDO_REASON))
    with pytest.raises(DecisionRefused, match="came late"):
        office.replay(late)


def late_letter(run: Run) -> Letter:
    told = late_effects.given_up(run.bench.store, run.ref, run.step(), 7, late_effects.LOST)
    return Letter(DeadLetterKind.UNDO, run.ref, "s0", told.reason, told.content, told.dedup_key)


# ---- the store has let go of it, or forgets it


@pytest.mark.parametrize("gone", ["all of it", "its steps"])
def test_a_run_that_the_store_has_let_go_is_built_again(office: Office, gone: str) -> None:
    run = office.failed("keyed", "keyed")
    first, second = office.letters(run)
    was_due = run.state.deadline_at
    office.drain()
    if gone == "all of it":
        office.let_go(run)
    else:
        office.server.client.delete(office.bench.store.keys.part(run.ref, "steps"))
    office.open = True
    assert office.replay(first).outcome == "undoing:2"
    kept = office.replay(second, "bob")
    assert (kept.made, kept.outcome) == (True, None)
    office.repeat()  # it is still to be built
    office.build()
    assert run.state.deadline_at != was_due  # nobody takes it for one that is overdue
    office.repeat()
    assert office.finish(run) == "compensated"
    assert sorted(office.undone) == ["s0", "s1"]
    assert office.replay(second).outcome == "begun_before"
    assert len(office.letters(run)) == 2


def test_a_run_of_which_too_little_is_known_is_refused(office: Office) -> None:
    run = office.failed("keyed")
    (letter,) = office.letters(run)
    office.let_go(run)
    with pytest.raises(DecisionRefused, match="knows too little"):
        office.replay(letter)
    assert office.letters(run)[0].status is DeadLetterStatus.OPEN


@pytest.mark.parametrize("drained", [True, False], ids=["heard of", "not heard of"])
def test_what_was_begun_again_is_not_forgotten(office: Office, drained: bool) -> None:
    """One of two: the other was given up for good, and stays so."""
    run = office.failed("keyed", "keyed")
    office.drain()
    office.open = True
    office.replay(office.letters(run)[0])
    if drained:
        office.drain()
    forgetting.forget(office.server.client, office.bench.settings.namespace)
    office.build()
    assert office.finish(run) == "compensation_failed"
    assert (office.undone, len(office.letters(run)), run.state.generation) == (["s1"], 2, 2)


@pytest.mark.parametrize("drained", [True, False], ids=["heard of", "not heard of"])
def test_what_the_store_alone_was_told_is_not_forgotten(office: Office, drained: bool) -> None:
    """Whoever replays it dies before the ledger takes the end back, and then the store forgets."""
    run = office.failed("keyed")
    (letter,) = office.letters(run)
    office.drain()
    office.open = True
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(office.bench.ledger, "reopen_run", crash)
        with pytest.raises(Crash):
            office.replay(letter)
    if drained:
        office.drain()
    office.let_go(run)
    office.repeat()
    office.build()
    assert (office.finish(run), office.undone, run.state.generation) == ("compensated", ["s0"], 2)


def test_what_was_begun_again_outlives_two_losses(office: Office) -> None:
    """The decisions are asked again after the first, and answered otherwise."""
    run = office.failed("keyed", "keyed")
    office.drain()
    office.open = True
    for letter in office.letters(run):
        office.replay(letter)
    history, clock = office.bench.ledger.history, office.bench.ledger.now_ms
    for later_ms in (120_000, 240_000):  # what was decided longer ago than a minute is not asked again
        history._clock = lambda later_ms=later_ms: clock() + later_ms  # type: ignore[misc]
        forgetting.forget(office.server.client, office.bench.settings.namespace)
        office.build()
        office.repeat()
        office.drain()
    assert (office.finish(run), office.undone) == ("compensated", ["s1", "s0"])


def test_one_that_was_decided_before_a_generation_began_is_not_taken_for_a_retry(office: Office) -> None:
    """A third was taken back by hand."""
    run = office.failed("keyed", "keyed", "keyed")
    by_hand, first, late = office.letters(run)
    triage.drop(office.desk, by_hand.id, "ann", "by hand")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(office.bench.ledger, "decide", crash)
        with pytest.raises(Crash):
            office.replay(late)
    office.open = True
    office.replay(first)
    assert office.finish(run) == "compensation_failed"
    office.drain()
    office.repeat()
    assert run.state.generation == 3
    forgetting.forget(office.server.client, office.bench.settings.namespace)
    office.build()
    assert (office.finish(run), office.undone) == ("compensation_failed", ["s1", "s0"])


def test_whoever_gave_it_up_and_was_frozen_writes_no_letter_about_the_undo_that_was_begun_since(office: Office) -> None:
    run = office.failed("keyed")
    (letter,) = office.letters(run)
    office.replay(letter)
    run = replace(run, generation=2)
    office.bench.store.guard.claim_undo(run.ref, "s0", generation=2, claim_id="other", worker="other")
    givenup.after_undo(run.message("s0"), office.bench.services, UndoGivenUp(()), letter.content["fence"])
    assert len(office.letters(run)) == 1
