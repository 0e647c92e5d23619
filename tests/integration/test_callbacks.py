"""Callbacks on real servers: submitted, owed by every end, posted, given up, replayed; and whoever dies in between."""

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator import replays, submission, tasks, triage
from orchestrator.cli.command import run as run_command
from orchestrator.decisions import Desk
from orchestrator.deliveries import deliver
from orchestrator.deliveries.guard import read_allowed
from orchestrator.deliveries.post import Poster
from orchestrator.errors import ConfigError, DecisionRefused, LedgerUnavailable, SubmissionRefused
from orchestrator.ledger import Accepted, Delivery, DeliveryState, Due, LetterDecision, LetterFilter, Outcome
from orchestrator.lookup import Lookup
from orchestrator.replays import Wish
from orchestrator.settings import settings
from orchestrator.supervisors import audit_runs, deliver_callbacks, settle_runs
from orchestrator.telemetry.logs import identity, snapshot
from schemas.callback import delivery_id
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef
from schemas.run import CallbackView, SubmitAnswer
from schemas.states import RunStatus
from tests.support.deaths import When, doors
from tests.support.installation import Installation, installation
from tests.support.ledgers import run_named
from tests.support.letters import refuse_plan, refused_run, refused_submission
from tests.support.receiver import OLD_SECRET, SECRET, Receiver, is_signed, receiving
from tests.support.servers import Server
from workers.cli import mandor

HOUR_MS = 3_600_000
FIELDS: dict[str, Any] = {"planner": "orders.fulfil", "goal": "fulfil it"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def ours(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[Installation]:
    given = {"webhook_secrets": f"{SECRET} {OLD_SECRET}", "webhook_allowed": "127.0.0.1/32", "webhook_attempts": 2}
    given |= {"webhook_backoff_s": 0.001, "webhook_backoff_max_s": 1}
    prefix = f"{namespace}."
    with installation(redis_server.url, tmp_path, namespace=namespace, queue_prefix=prefix, shards=1, **given) as made:
        yield made


def owed(ours: Installation, receiver: Receiver, name: str = "t1") -> Due:
    """A run has ended, and this is to be told."""
    ref = refused_run(ours, {**FIELDS, "callback": receiver.url()}, name)
    told = ours.ledger.deliveries.newest_of(ref.run_id)
    assert told is not None
    return Due(told.id, 0)


def attempt(ours: Installation, due: Due) -> Outcome | None:
    with identity():
        return deliver.deliver(ours.app, ours.ledger, ours.settings, due)


def standing(ours: Installation, due: Due) -> Delivery:
    told = ours.ledger.deliveries.one(due.id)
    assert told is not None
    return told


def given_up(ours: Installation, receiver: Receiver) -> tuple[Due, str]:
    """After all its attempts, and the letter about it."""
    due = owed(ours, receiver)
    receiver.then = 500
    for tried in range(ours.settings.webhook_attempts):
        attempt(ours, Due(due.id, tried))
    (letter,) = ours.ledger.letters(9, kind=DeadLetterKind.DELIVERY)
    return due, letter.id


def submit(ours: Installation, callback: str, name: str = "t1") -> SubmitAnswer:
    read = submission.read({**FIELDS, "callback": callback}, ours.settings)
    with identity():
        return submission.submit(ours.app, ours.store, ours.ledger, ours.settings, read, name)


# ---- the door


def test_who_could_not_be_told_is_refused_with_the_mend(ours: Installation) -> None:
    with pytest.raises(SubmissionRefused) as caught:
        submit(ours, "http://169.254.169.254/latest/meta-data/")
    assert caught.value.path == "callback"
    assert "MANDOR_WEBHOOK_ALLOWED" in str(caught.value)
    assert ours.ledger.listed(9) == []


def test_without_a_secret_nothing_with_a_callback_is_accepted(ours: Installation, monkeypatch: Any) -> None:
    bare = ours.settings.model_copy(update={"webhook_secrets": type(ours.settings.webhook_secrets)("")})
    unsigned = Installation(ours.app, ours.store, ours.ledger, bare)
    with pytest.raises(SubmissionRefused) as caught:
        submit(unsigned, "https://example.com/")
    assert "MANDOR_WEBHOOK_SECRETS" in str(caught.value)
    accepted = submit(ours, "https://example.com/")
    assert submit(unsigned, "https://example.com/") == accepted.model_copy(update={"created": False})


# ---- posted


def test_an_end_is_told_once_signed_by_both_secrets(ours: Installation, receiver: Receiver) -> None:
    due = owed(ours, receiver)
    outcome = attempt(ours, due)
    assert outcome is not None
    assert outcome.state is DeliveryState.DELIVERED
    assert attempt(ours, due) is None
    (one,) = receiver.received
    assert (one.id, one.path) == (due.id, "/hook")
    assert is_signed(one, SECRET)
    assert is_signed(one, OLD_SECRET)
    assert one.said["type"] == "run.dead_lettered"
    assert set(one.said["data"]) == {
        *("run_id", "request_id", "session_id", "status", "reason", "generation", "ended_at")
    }


def test_a_message_about_what_is_due_is_sent_once(ours: Installation, receiver: Receiver) -> None:
    due = owed(ours, receiver)
    first = deliver_callbacks.run_once(ours.app, ours.ledger, ours.settings)
    assert (first.taken, first.sent) == (1, 1)
    assert deliver_callbacks.run_once(ours.app, ours.ledger, ours.settings).taken == 0
    (raw,) = ours.app.backend.client.lrange(ours.queue("deliver"), 0, -1)
    assert json.loads(raw)["headers"]["task"] == "orchestrator.deliver"
    assert due.id in json.loads(raw)["headers"]["kwargsrepr"]


def test_a_full_queue_gets_no_more(ours: Installation, receiver: Receiver) -> None:
    owed(ours, receiver)
    for _ in range(deliver_callbacks.MOST_WAITING):
        ours.app.send_task("somebody.else", queue=ours.queue("deliver"))
    assert deliver_callbacks.run_once(ours.app, ours.ledger, ours.settings).taken == 0


def test_two_at_once_post_once(ours: Installation, receiver: Receiver) -> None:
    due = owed(ours, receiver)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _: attempt(ours, due), range(2)))
    assert outcomes.count(None) == 1
    assert len(receiver.received) == 1


def test_what_is_not_wanted_is_told_no_more(ours: Installation, receiver: Receiver) -> None:
    due = owed(ours, receiver)
    receiver.then = 410
    attempt(ours, due)
    assert standing(ours, due).state is DeliveryState.DISABLED
    assert ours.ledger.letters(9, kind=DeadLetterKind.DELIVERY) == []


def test_who_dies_between_post_and_note_has_it_posted_again_under_the_same_id(
    ours: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = owed(ours, receiver)

    def away(*_: object) -> bool:
        raise LedgerUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(ours.ledger.deliveries, "note", away)
        with pytest.raises(LedgerUnavailable):
            attempt(ours, due)
    assert attempt(ours, due) is None
    told = standing(ours, due)
    assert (told.state, told.attempts) == (DeliveryState.PENDING, 1)
    attempt(ours, Due(due.id, told.attempts))
    assert standing(ours, due).state is DeliveryState.DELIVERED
    assert [one.id for one in receiver.received] == [due.id, due.id]


def test_what_kills_its_worker_each_time_is_given_up_unposted(ours: Installation, receiver: Receiver) -> None:
    due = owed(ours, receiver)
    for tried in range(ours.settings.webhook_attempts):
        assert ours.ledger.deliveries.claim(Due(due.id, tried), 0) is not None
    attempt(ours, Due(due.id, ours.settings.webhook_attempts))
    assert standing(ours, due).error == "none_left"
    assert receiver.received == []
    assert len(ours.ledger.letters(9, kind=DeadLetterKind.DELIVERY)) == 1


def test_with_fewer_attempts_allowed_than_were_made_the_last_one_is_told_of(
    ours: Installation, receiver: Receiver
) -> None:
    due = owed(ours, receiver)
    for tried in range(ours.settings.webhook_attempts):
        claim = ours.ledger.deliveries.claim(Due(due.id, tried), 0)
        assert claim is not None
        assert ours.ledger.deliveries.note(claim, Outcome(DeliveryState.PENDING, 503, "status", 0))
    attempt(ours, Due(due.id, ours.settings.webhook_attempts))
    (letter,) = ours.ledger.letters(9, kind=DeadLetterKind.DELIVERY)
    assert (standing(ours, due).status_code, receiver.received) == (503, [])
    assert "status 503" in letter.reason


def test_what_is_logged_of_a_delivery_names_its_run(ours: Installation, receiver: Receiver) -> None:
    due = owed(ours, receiver)
    with identity():
        deliver.deliver(ours.app, ours.ledger, ours.settings, due)
        said = snapshot()
    row = ours.ledger.run(said["run_id"] or "")
    assert row is not None
    assert (said["request_id"], said["session_id"]) == (row.request_id, row.session_id)


def test_without_a_secret_nothing_is_begun(ours: Installation, receiver: Receiver) -> None:
    due = owed(ours, receiver)
    bare = ours.settings.model_copy(update={"webhook_secrets": type(ours.settings.webhook_secrets)("")})
    with identity(), pytest.raises(ConfigError):
        deliver.deliver(ours.app, ours.ledger, bare, due)
    assert standing(ours, due).attempts == 0


def test_an_end_that_a_copy_of_the_ledger_does_not_know_is_told_again_under_its_id(
    ours: Installation, receiver: Receiver, tmp_path: Path
) -> None:
    """The copy was made when the run was under way; what came later it does not have."""
    answer = submit(ours, receiver.url())
    row = ours.ledger.run(answer.run_id)
    assert row is not None
    file, copy = ours.settings.ledger.removeprefix("sqlite:///"), tmp_path / "copy.db"
    with closing(sqlite3.connect(file)) as lies, closing(sqlite3.connect(copy)) as kept:
        lies.backup(kept)
    refuse_plan(ours, RunRef(answer.run_id, row.session))
    attempt(ours, Due(delivery_id(answer.run_id, 1), 0))

    ours.ledger.close()
    copy.replace(file)
    assert ours.ledger.deliveries.newest_of(answer.run_id) is None
    for supervisor in (audit_runs, settle_runs):
        with identity():
            supervisor.run_once(ours.app, ours.store, ours.ledger, ours.settings)
    (due,) = ours.ledger.deliveries.take(ours.settings.namespace, 9, 1000)
    attempt(ours, due)
    assert [one.id for one in receiver.received] == [delivery_id(answer.run_id, 1)] * 2
    assert receiver.received[0].body == receiver.received[1].body


def test_who_cannot_sign_says_so_under_its_own_name(
    ours: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    due = owed(ours, receiver)
    bare = ours.settings.model_copy(update={"webhook_secrets": type(ours.settings.webhook_secrets)("")})
    monkeypatch.setattr(tasks, "ledger", lambda: ours.ledger)
    monkeypatch.setattr(tasks, "settings", lambda: bare)
    with caplog.at_level("ERROR"):
        assert tasks.deliver.apply(kwargs={"delivery_id": due.id, "attempts": 0}).state == "IGNORED"
    assert "supervisor.failed  supervisor=deliver kind=config" in caplog.text


def test_of_an_answer_only_its_status_is_kept(ours: Installation, receiver: Receiver) -> None:
    """wh-05"""
    due, letter_id = given_up(ours, receiver)
    told, letter = standing(ours, due), ours.ledger.letter(letter_id)
    assert (told.status_code, told.error, told.attempts) == (500, "status", 2)
    assert letter is not None
    assert letter.reason == "the callback was given up after 2 attempts: status 500"
    assert letter.content == {
        "delivery_id": due.id,
        "generation": 1,
        "url": receiver.url(),
        "attempts": 2,
        "status_code": 500,
        "error": "status",
    }


# ---- whoever dies at a write


class Died(BaseException):
    """The process ends here."""


def dies_once(ours: Installation, write: str, when: str, patch: pytest.MonkeyPatch) -> None:
    """The next process that comes to this write, before it or behind it."""
    real = getattr(ours.ledger.deliveries, write)

    def fatal(*given: Any, **named: Any) -> Any:
        patch.setattr(ours.ledger.deliveries, write, real)
        if when == "after":
            real(*given, **named)
        raise Died

    patch.setattr(ours.ledger.deliveries, write, fatal)


def rounds(ours: Installation, patch: pytest.MonkeyPatch) -> None:
    """Each an hour behind the one before, until nothing can be due any more."""
    for hour in range(2 * ours.settings.webhook_attempts + 2):
        patch.setattr(ours.ledger.deliveries, "_clock", lambda hour=hour: ours.ledger.now_ms() + hour * HOUR_MS)
        with suppress(Died):
            for due in ours.ledger.deliveries.take(ours.settings.namespace, 9, 1000):
                attempt(ours, due)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("write", "answer", "end"),
    [
        ("take", 204, DeliveryState.DELIVERED),
        ("claim", 204, DeliveryState.DELIVERED),
        ("note", 204, DeliveryState.DELIVERED),
        ("claim", 500, DeliveryState.GIVEN_UP),
        ("note", 500, DeliveryState.GIVEN_UP),
        ("give_up", 500, DeliveryState.GIVEN_UP),
    ],
)
def test_whoever_dies_at_a_write_is_followed_by_another(
    ours: Installation,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    write: str,
    answer: int,
    end: DeliveryState,
    when: str,
) -> None:
    due, receiver.then = owed(ours, receiver), answer
    dies_once(ours, write, when, monkeypatch)
    rounds(ours, monkeypatch)
    assert standing(ours, due).state is end
    assert {one.id for one in receiver.received} == {due.id}
    unheard = (write, when, answer) == ("note", "before", 204)  # it was told, and nobody knew
    begun_only = (write, when, answer) == ("claim", "after", 500)
    usual = 1 if answer == 204 else ours.settings.webhook_attempts
    assert len(receiver.received) == usual + unheard - begun_only
    assert len(ours.ledger.letters(9, kind=DeadLetterKind.DELIVERY)) == (end is DeliveryState.GIVEN_UP)


@pytest.mark.parametrize(("when", "sent"), [("before", 1), ("after", 2)])
def test_whoever_dies_at_a_message_about_what_is_due_is_followed_by_another(
    ours: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, when: When, sent: int
) -> None:
    due, made = owed(ours, receiver), doors(monkeypatch)
    supervise = partial(deliver_callbacks.run_once, ours.app, ours.ledger, ours.settings)
    made.begin([(1, when)])
    assert not made.lives(supervise)
    assert [write.name for write in made.passed] == ["ledger Deliveries.take", "publish deliver"]
    made.begin()
    monkeypatch.setattr(ours.ledger.deliveries, "_clock", lambda: ours.ledger.now_ms() + HOUR_MS)
    assert supervise().sent == 1
    assert ours.app.backend.client.llen(ours.queue("deliver")) == sent
    for _ in range(sent):
        attempt(ours, due)
    assert len(receiver.received) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_dies_at_a_replay_is_followed_by_another(
    ours: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    due, letter_id = given_up(ours, receiver)
    desk, receiver.then = Desk(ours.app, ours.store, ours.ledger), 204
    dies_once(ours, "send_again", when, monkeypatch)
    with pytest.raises(Died):
        triage.replay(desk, letter_id, "ann")
    assert triage.replay(desk, letter_id, "bob").outcome == f"posted_again:{due.id}"
    rounds(ours, monkeypatch)
    assert standing(ours, due).state is DeliveryState.DELIVERED
    assert len(receiver.received) == ours.settings.webhook_attempts + 1


# ---- replayed


def test_a_letter_about_a_callback_has_it_posted_again_once(ours: Installation, receiver: Receiver) -> None:
    due, letter_id = given_up(ours, receiver)
    desk = Desk(ours.app, ours.store, ours.ledger)
    assert triage.foresee(desk, letter_id) == f"post callback {due.id} again"
    dealt = [triage.replay(desk, letter_id, name) for name in ("ann", "bob")]
    assert [one.made for one in dealt] == [True, False]
    assert {(one.by, one.outcome, one.carried_out) for one in dealt} == {("ann", f"posted_again:{due.id}", True)}
    receiver.then = 200
    (again,) = ours.ledger.deliveries.take(ours.settings.namespace, 9, 1000)
    attempt(ours, again)
    assert standing(ours, due).state is DeliveryState.DELIVERED
    assert [one.id for one in receiver.received] == [due.id] * 3
    assert all(is_signed(one) for one in receiver.received)
    triage.replay(desk, letter_id, "cid")
    assert ours.ledger.deliveries.take(ours.settings.namespace, 9, 1000) == []


def test_a_replay_that_broke_off_is_carried_out_by_the_next(ours: Installation, receiver: Receiver) -> None:
    due, letter_id = given_up(ours, receiver)
    desk = Desk(ours.app, ours.store, ours.ledger)
    details = json.dumps({"way": "post", "delivery_id": due.id, "attempts": 2})
    ours.ledger.triage.replay(letter_id, ours.settings.namespace, "ann", None, details)
    assert standing(ours, due).state is DeliveryState.GIVEN_UP
    assert triage.replay(desk, letter_id, "bob").by == "ann"
    assert standing(ours, due).state is DeliveryState.PENDING


def decided_and_not_done(ours: Installation, due: Due, letter_id: str) -> LetterDecision:
    """Somebody has decided to replay it, and died."""
    details = json.dumps({"way": "post", "delivery_id": due.id, "attempts": 2})
    made = ours.ledger.triage.replay(letter_id, ours.settings.namespace, "ann", None, details)
    assert isinstance(made, LetterDecision)
    return made


def given_up_again(ours: Installation, due: Due) -> None:
    """A person had it sent again, in vain."""
    assert ours.ledger.deliveries.send_again(due.id)
    for tried in range(standing(ours, due).attempts, standing(ours, due).attempts + 2):
        attempt(ours, Due(due.id, tried))
    assert standing(ours, due).state is DeliveryState.GIVEN_UP


def test_a_repeat_says_what_the_first_one_did(ours: Installation, receiver: Receiver) -> None:
    due, letter_id = given_up(ours, receiver)
    desk, letter = Desk(ours.app, ours.store, ours.ledger), ours.ledger.letter(letter_id)
    assert letter is not None
    made = decided_and_not_done(ours, due, letter_id)
    said = replays.carry_out(desk, letter, made)
    receiver.then = 200
    attempt(ours, Due(due.id, 2))
    assert said == replays.carry_out(desk, letter, made) == f"posted_again:{due.id}"
    assert standing(ours, due).state is DeliveryState.DELIVERED


def test_a_replay_that_comes_too_late_says_so(ours: Installation, receiver: Receiver) -> None:
    due, letter_id = given_up(ours, receiver)
    decided_and_not_done(ours, due, letter_id)
    given_up_again(ours, due)
    given_up_again(ours, due)
    dealt = triage.replay(Desk(ours.app, ours.store, ours.ledger), letter_id, "bob")
    assert dealt.outcome == "posted_before:given up"
    assert standing(ours, due).state is DeliveryState.GIVEN_UP


def test_a_letter_about_an_older_round_is_refused(ours: Installation, receiver: Receiver) -> None:
    due, letter_id = given_up(ours, receiver)
    given_up_again(ours, due)
    with pytest.raises(DecisionRefused, match="is given up, after what was done since"):
        triage.replay(Desk(ours.app, ours.store, ours.ledger), letter_id, "ann")


def test_one_that_was_delivered_late_after_all_is_not_replayed(ours: Installation, receiver: Receiver) -> None:
    due = owed(ours, receiver)
    frozen = ours.ledger.deliveries.claim(due, 0)
    assert frozen is not None
    receiver.then = 500
    attempt(ours, Due(due.id, 1))
    (letter,) = ours.ledger.letters(9, kind=DeadLetterKind.DELIVERY)
    assert ours.ledger.deliveries.note(frozen, Outcome(DeliveryState.DELIVERED, 204))
    with pytest.raises(DecisionRefused, match="is delivered") as caught:
        triage.replay(Desk(ours.app, ours.store, ours.ledger), letter.id, "ann")
    assert f"mandor dlq drop {letter.id}" in str(caught.value.hint)


def test_given_up_again_is_another_letter(ours: Installation, receiver: Receiver) -> None:
    due, letter_id = given_up(ours, receiver)
    triage.replay(Desk(ours.app, ours.store, ours.ledger), letter_id, "ann")
    for tried in (2, 3):
        attempt(ours, Due(due.id, tried))
    letters = ours.ledger.triage.listed(9, wanted=LetterFilter(kind=DeadLetterKind.DELIVERY))
    assert [one.status for one in letters] == ["open", "replayed"]


def test_the_letter_of_a_run_that_was_pruned_and_came_again_is_another(ours: Installation, receiver: Receiver) -> None:
    receiver.then = 500
    for ended_at in (100, 200):
        run = run_named("again", namespace=ours.settings.namespace, callback=receiver.url())
        assert isinstance(ours.ledger.accept(run), Accepted)
        ours.ledger.end_run(run.run_id, 1, RunStatus.SUCCEEDED, None, 9, ended_at)
        for tried in range(ours.settings.webhook_attempts):
            attempt(ours, Due(delivery_id(run.run_id, 1), tried))
        assert ours.ledger.prune(ours.ledger.now_ms() + 1, 0, 100).runs == 1
    assert len(ours.ledger.letters(9, kind=DeadLetterKind.DELIVERY)) == 2


def test_a_letter_about_a_run_that_is_gone_is_refused(ours: Installation, receiver: Receiver) -> None:
    _, letter_id = given_up(ours, receiver)
    ours.ledger.prune(ours.ledger.now_ms() + 1, 0, 100)
    with pytest.raises(DecisionRefused, match="let go of run"):
        triage.replay(Desk(ours.app, ours.store, ours.ledger), letter_id, "ann")


def replayed_at_once(ours: Installation, letter_id: str) -> list[triage.Dealt]:
    """By two people, each with what a process of its own has."""
    desk = Desk(ours.app, ours.store, ours.ledger)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda name: triage.replay(desk, letter_id, name), ("ann", "bob")))


def test_two_people_at_once_have_a_callback_posted_again_once(ours: Installation, receiver: Receiver) -> None:
    due, letter_id = given_up(ours, receiver)
    dealt = replayed_at_once(ours, letter_id)
    assert sorted(one.made for one in dealt) == [False, True]
    assert len({one.by for one in dealt}) == 1
    assert len(ours.ledger.triage.decisions(letter_id)) == 1
    told = standing(ours, due)
    assert (told.state, told.attempts, told.attempts_before) == (DeliveryState.PENDING, 2, 2)


def test_two_people_at_once_have_a_submission_submitted_once(ours: Installation) -> None:
    """It was refused where it was accepted, and is right by now."""
    letter_id = refused_submission(ours, {**FIELDS, "goal": ""})
    fixed = Wish(edited=json.dumps(FIELDS))
    desk = Desk(ours.app, ours.store, ours.ledger)
    with ThreadPoolExecutor(2) as pool:
        dealt = list(pool.map(lambda name: triage.replay(desk, letter_id, name, wish=fixed), ("ann", "bob")))
    assert sorted(one.made for one in dealt) == [False, True]
    assert len({one.run_id for one in dealt}) == 1
    assert [one.run_id for one in ours.ledger.listed(9)] == [dealt[0].run_id]


# ---- shown, and sent again by hand


def says(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run_command(mandor, list(arguments)) == code
    return capsys.readouterr().out


def test_a_run_shows_where_its_callback_stands(
    ours: Installation, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = submit(ours, receiver.url(), "other")
    waits = Lookup(ours.ledger, ours.store).run(answer.run_id).callback
    assert waits == CallbackView(url=receiver.url(), state="waits_for_end")
    due, _ = given_up(ours, receiver)
    told = json.loads(says(capsys, "run", "show", standing(ours, due).run_id, "--json"))["callback"]
    assert (told["id"], told["state"], told["status_code"], told["due_at"]) == (due.id, "given_up", 500, None)
    shown = says(capsys, "run", "show", standing(ours, due).run_id)
    assert f"given up: {receiver.url()}, status 500, 2 attempts" in " ".join(shown.split())


def test_what_was_delivered_is_sent_again_when_a_person_says_so(
    ours: Installation, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    due = owed(ours, receiver)
    run_id = standing(ours, due).run_id
    says(capsys, "webhook", "redeliver", run_id, code=1)
    attempt(ours, due)
    assert json.loads(says(capsys, "webhook", "redeliver", run_id, "--json"))["id"] == due.id
    attempt(ours, Due(due.id, 1))
    assert [one.id for one in receiver.received] == [due.id] * 2


def test_a_url_is_tried(ours: Installation, receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    settings.cache_clear()
    receiver.replies = [204, 500]
    assert json.loads(says(capsys, "webhook", "test", receiver.url(), "--json"))["status_code"] == 204
    assert says(capsys, "webhook", "test", receiver.url(), code=1) == "status 500\n"
    says(capsys, "webhook", "test", "http://user@x/", code=2)
    says(capsys, "webhook", "test", "http://10.0.0.1/", code=1)
    assert [one.said["type"] for one in receiver.received] == ["mandor.test"] * 2
    assert all(is_signed(one) for one in receiver.received)


def test_what_a_resolver_answers_does_not_act_on_the_terminal(
    ours: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    poster = Poster(read_allowed("hooks.test"), 5, lambda host, port: ["\b1.2.3.4"])
    monkeypatch.setattr(deliver, "poster_of", lambda _: poster)
    said = says(capsys, "webhook", "test", "http://hooks.test/", code=1)
    assert "is no address" in said
    assert "\b" not in said
