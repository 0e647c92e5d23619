"""What came late, and nobody was told to undo: a supervisor finds it in the ledger."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from celery import Celery

from orchestrator import dispatch, late_effects, progress
from orchestrator.ledger import Closed, Ledger, Opened, open_ledger
from orchestrator.settings import Settings, settings
from orchestrator.supervisors import trigger_compensation
from orchestrator.supervisors.passes import Counts
from orchestrator.telemetry.logs import identity
from schemas.states import EffectClass, Fact
from tests.support.installation import celery_app
from tests.support.ledgers import fresh_ledger, run_named, url_of
from tests.support.servers import Server
from tests.support.stores import Clock, Scene, clocked_store, new_step, ref_of

CHECK_MS, LIMIT_MS, GRACE_MS = 10_000, 60_000, 10_000


@dataclass
class Late:
    """A run whose only step is closed as in doubt; ledger and store go by one clock."""

    scene: Scene
    app: Celery
    ledger: Ledger
    settings: Settings
    queue: str
    fence: int
    token: str

    def undo(self) -> None:
        """Undo the step, and close the run."""
        with identity():
            progress.settle(self.app, self.scene.store, self.ledger, self.scene.ref, 1)
            self.scene.undo("a")
            progress.settle(self.app, self.scene.store, self.ledger, self.scene.ref, 1)
        self.messages()

    def come(self, earlier: int = 0) -> None:
        """The newest attempt, or one before it, lands."""
        answer = self.ledger.effects.land(self.scene.ref.run_id, "a", "do", self.fence - earlier, self.token, "1")
        assert isinstance(answer, Closed)

    def leave(self) -> None:
        """The same attempt, but its action raises."""
        assert self.ledger.effects.leave(self.scene.ref.run_id, "a", "do", self.fence).late

    def begin(self, fence: int | None = None) -> None:
        """A worker begins to undo what came late."""
        rows, run_id = self.ledger.effects, self.scene.ref.run_id
        assert rows.open(run_id, "a", "late", fence or self.fence, self.token, EffectClass.ONCE) == Opened()

    def after(self, ms: int) -> Counts:
        """The counts of a pass so much later."""
        self.scene.clock.advance(ms)
        with identity():
            return trigger_compensation.run_once(self.app, self.scene.store, self.ledger, self.settings)

    def messages(self) -> int:
        """How many messages lay in the steps' queue; they are taken away."""
        count = dispatch.queue_depth(self.app, self.queue)
        self.app.backend.client.delete(self.queue)
        return count

    def letters(self) -> list[tuple[str, str]]:
        """But the one about the loss of its last worker, which the end of each such run owes."""
        found = [(letter.kind, letter.reason) for letter in self.ledger.letters(10)]
        return [letter for letter in found if letter[1] not in ("in_doubt", "retry_exhausted")]


@pytest.fixture
def made(redis_server: Server, namespace: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Late]:
    """Of class keyed, unless the test's parameter says otherwise."""
    effect = getattr(request, "param", "keyed")
    store, clock = clocked_store(redis_server.url, namespace)
    fresh_ledger(tmp_path)
    ledger = open_ledger(url_of(tmp_path / "ledger.db"), clock=lambda: clock.now)
    ledger.accept(run_named("r", namespace=namespace))
    with celery_app(redis_server.url, queue_prefix=f"{namespace}.", home=tmp_path) as app:
        yield doubtful(Scene(store, clock, ref_of("r")), app, ledger, f"{namespace}.steps", effect)
        store.close()


def doubtful(scene: Scene, app: Celery, ledger: Ledger, queue: str, effect: str) -> Late:
    scene.accept().admit(new_step("a", 0, effect=effect, max_attempts=1, queue=queue))
    granted = scene.claim("a")
    ledger.effects.close(scene.ref.run_id, "a", "do", granted.fence)
    advance_past_lease(scene.clock)
    scene.store.guard.expire_lease(scene.ref, "a", granted.fence, Fact.MAYBE)
    return Late(scene, app, ledger, settings(), queue, granted.fence, granted.token)


def advance_past_lease(clock: Clock) -> None:
    clock.advance(60_000)


def test_a_lost_message_is_sent_again_until_somebody_begins(made: Late) -> None:
    made.undo()
    made.come()
    assert (made.after(CHECK_MS - 1), made.messages()) == (Counts(), 0)
    for _ in range(3):
        assert (made.after(CHECK_MS).sent, made.messages()) == (1, 1)
    made.begin()
    assert (made.after(CHECK_MS).sent, made.messages()) == (0, 0)
    made.ledger.effects.land(made.scene.ref.run_id, "a", "late", made.fence, made.token, "null")
    assert made.after(10 * LIMIT_MS) == Counts()


@pytest.mark.parametrize("made", ["keyed", "once", "idempotent"], indirect=True)
def test_who_dies_before_telling_of_it_leaves_a_letter_all_the_same(made: Late, request: pytest.FixtureRequest) -> None:
    made.undo()
    made.come()
    for _ in range(2):
        made.after(CHECK_MS)
    harmless = "idempotent" in request.node.name
    assert made.letters() == ([] if harmless else [("step", "late_effect")])
    made.messages()


@pytest.mark.parametrize("made", ["keyed", "once", "idempotent"], indirect=True)
def test_who_raised_when_all_was_over_has_it_looked_for(made: Late) -> None:
    made.undo()
    made.leave()
    assert (made.after(CHECK_MS).sent, made.messages(), made.letters()) == (1, 1, [])


@pytest.mark.parametrize("made", ["keyed", "once", "idempotent"], indirect=True)
def test_of_what_nobody_looks_for_a_person_is_told(made: Late, request: pytest.FixtureRequest) -> None:
    """The run has ended, and the step was not undone."""
    made.leave()
    made.after(CHECK_MS)
    assert made.letters() == []
    with identity():
        made.scene.undo("a", well=False)
        progress.settle(made.app, made.scene.store, made.ledger, made.scene.ref, 1)
    made.messages()
    assert made.after(CHECK_MS).sent == 0
    letters = [letter for letter in made.letters() if letter[0] == "step"]
    assert letters == ([] if "idempotent" in request.node.name else [("step", "late_effect")])
    assert made.after(CHECK_MS) == Counts()


def test_one_that_cannot_be_dealt_with_stands_in_nobodys_way(made: Late) -> None:
    """Its step's record is damaged; it has waited longer than the other."""
    other = ref_of("other")
    made.ledger.accept(run_named("other", namespace=made.scene.store.keys.namespace))
    second = doubtful(Scene(made.scene.store, made.scene.clock, other), made.app, made.ledger, made.queue, "keyed")
    for late in (made, second):
        late.undo()
        late.come()
        made.scene.clock.advance(1)
    keys = made.scene.store.keys
    made.app.backend.client.hset(keys.part(made.scene.ref, "steps"), "a", "{")
    counts = made.after(CHECK_MS)
    assert (counts.taken, counts.failed, counts.sent) == (2, 1, 1)
    assert made.after(CHECK_MS - 1) == Counts()
    made.messages()


def test_those_of_another_namespace_are_its_own_and_stand_in_nobodys_way(
    made: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = run_named("theirs", namespace="another")
    made.ledger.accept(theirs)
    made.ledger.effects.close(theirs.run_id, "a", "do", 1)
    made.ledger.effects.land(theirs.run_id, "a", "do", 1, made.token, "1")
    made.scene.clock.advance(1)
    made.undo()
    made.come()
    monkeypatch.setattr(late_effects, "AT_ONCE", 1)
    assert made.after(CHECK_MS).sent == 1


def test_each_late_effect_that_cannot_be_undone_has_a_letter(made: Late) -> None:
    made.undo()
    for number in (0, 1):
        made.come(number)
        made.begin(made.fence + number)
        made.after(LIMIT_MS + GRACE_MS + 1)
    assert [kind for kind, _ in made.letters()] == ["undo", "undo", "step"]
    assert made.after(10 * LIMIT_MS) == Counts()


def test_a_refused_landing_that_undoing_took_over_is_told_when_the_run_ends(made: Late) -> None:
    """Its process died before its letter, and no supervisor had looked yet."""
    made.come()
    made.ledger.effects.open(made.scene.ref.run_id, "a", "undo", made.fence + 1, made.token, EffectClass.KEYED)
    made.undo()
    assert made.letters() == [("step", "late_effect")]
    assert made.after(CHECK_MS) == Counts()


def test_a_worker_that_is_lost_while_it_undoes_is_missed(made: Late) -> None:
    made.undo()
    made.come()
    made.begin()
    made.after(CHECK_MS)
    made.after(LIMIT_MS + GRACE_MS - CHECK_MS)
    assert made.letters() == [("step", "late_effect")]
    made.after(1)
    reason = "a late effect of a (demo) could not be undone: the worker that undid it was lost"
    assert made.letters() == [("undo", reason), ("step", "late_effect")]
    assert made.messages() == 0
    assert made.after(10 * LIMIT_MS) == Counts()


def test_while_the_run_moves_its_own_undo_sees_to_it(made: Late) -> None:
    made.come()
    assert (made.after(CHECK_MS).sent, made.after(CHECK_MS).taken) == (0, 1)
    made.undo()
    assert made.after(CHECK_MS).sent == 1
    made.messages()


def test_what_was_never_undone_stays(made: Late) -> None:
    """Undoing the step was given up: there is a letter about it, and nothing is undone behind that person's back."""
    with identity():
        progress.settle(made.app, made.scene.store, made.ledger, made.scene.ref, 1)
        made.scene.undo("a", well=False)
        progress.settle(made.app, made.scene.store, made.ledger, made.scene.ref, 1)
    made.messages()
    made.come()
    assert (made.after(CHECK_MS).sent, made.after(CHECK_MS)) == (0, Counts())


def test_a_store_that_lost_a_run_which_has_not_ended_is_waited_for(made: Late) -> None:
    """It may come back from its file, or be built again; what is owed stays owed until then."""
    made.come()
    state = made.scene.store.keys.state(made.scene.ref)
    client = made.app.backend.client
    client.rename(state, f"{state}.away")
    for _ in range(3):
        assert made.after(CHECK_MS).taken >= 1
    assert made.letters() == []
    client.rename(f"{state}.away", state)
    made.undo()
    assert made.after(CHECK_MS).sent == 1
    made.messages()


def test_what_the_store_has_forgotten_is_a_persons_business(made: Late) -> None:
    made.undo()
    made.come()
    made.app.backend.client.delete(made.scene.store.keys.state(made.scene.ref))
    made.after(CHECK_MS)
    reason = "a late effect of a could not be undone: the state store has forgotten the run"
    assert made.letters() == [("undo", reason)]
    assert made.after(CHECK_MS) == Counts()
