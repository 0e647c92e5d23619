"""One submission, one run: at any crash between two writes, and however often it is sent."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from orchestrator import dispatch, submission
from orchestrator.client import Client
from orchestrator.errors import (
    LedgerUnavailable,
    NoAnswer,
    StoreRefused,
    StoreUnavailable,
    SubmissionConflict,
    SubmissionRefused,
)
from orchestrator.settings import Settings
from orchestrator.store.replies import PlanGranted
from orchestrator.supervisors import drain_ledger
from orchestrator.telemetry.logs import identity
from schemas.canonical import canonical_text, sha256_hex
from schemas.ids import RunRef
from schemas.policy import Policy
from schemas.run import SubmitAnswer
from schemas.states import RunStatus
from tests.support.installation import Installation, installation
from tests.support.servers import Server
from tests.support.stores import ref_of

FIELDS: dict[str, Any] = {"planner": "orders.fulfil", "context": {"order": 7}}


class Crash(Exception):
    """The process ends here."""


@pytest.fixture
def ours(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[Installation]:
    prefix = f"{namespace}."
    with installation(redis_server.url, tmp_path, namespace=namespace, queue_prefix=prefix, shards=2) as made:
        yield made


def submit(ours: Installation, task_id: str = "task-1", **changes: Any) -> SubmitAnswer:
    read = submission.read({**FIELDS, **changes}, ours.settings)
    with identity(job_id=task_id):
        return submission.submit(ours.app, ours.store, ours.ledger, ours.settings, read, task_id)


def crash(*_: Any, **__: Any) -> Any:
    raise Crash


def plan_messages(ours: Installation, server: Server) -> int:
    return int(server.client.llen(ours.queue("plan")))


def test_a_submission_is_remembered_created_and_sent_for_planning(ours: Installation, redis_server: Server) -> None:
    answer = submit(ours, session_id="alice", request_id="r1")
    assert (answer.status, answer.created) == (RunStatus.ACCEPTED, True)
    row = ours.ledger.run(answer.run_id)
    assert row is not None
    state = ours.store.views.run(RunRef(row.run_id, row.session))
    assert state is not None
    assert (state.status, state.policy_hash, state.context_hash) == ("accepted", row.policy_hash, row.context_hash)
    assert plan_messages(ours, redis_server) == 1


def test_sent_again_it_is_the_run_it_was(ours: Installation, redis_server: Server) -> None:
    first = submit(ours, "task-1", request_id="r1")
    again = submit(ours, "task-2", request_id="r1")
    assert again.run_id == first.run_id
    assert (first.created, again.created) == (True, False)
    assert plan_messages(ours, redis_server) == 1


def test_the_same_request_with_other_content_changes_nothing(ours: Installation, redis_server: Server) -> None:
    first = submit(ours, request_id="r1")
    with pytest.raises(SubmissionConflict, match=first.run_id):
        submit(ours, request_id="r1", context={"order": 8})
    row = ours.ledger.run(first.run_id)
    assert row is not None
    assert '"order":7' in row.submission_text
    assert plan_messages(ours, redis_server) == 1


@pytest.mark.parametrize("context", [{"order": 7}, '{"order":7}', ' { "order": 7.0 }'])
def test_the_same_content_is_the_same_run_however_it_is_spelt(
    ours: Installation, redis_server: Server, context: Any
) -> None:
    first = submit(ours, "task-1", request_id="r1")
    again = submit(ours, "task-2", request_id="r1", context=context)
    assert (again.run_id, again.created) == (first.run_id, False)
    assert plan_messages(ours, redis_server) == 1


@pytest.mark.parametrize("context", [{"order": 7}, '{"order": 7}', '{"order":7}'])
def test_a_run_that_an_older_release_accepted_is_found_again(
    ours: Installation, redis_server: Server, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a context was kept, and hashed, as the text that was sent."""
    kept = canonical_text({**FIELDS, "context": '{"order": 7}', "request_id": "r1"})
    with monkeypatch.context() as older:
        older.setattr(submission, "submission_text", lambda _: kept)
        older.setattr(submission, "submission_hash", lambda _: sha256_hex(kept))
        first = submit(ours, "task-1", request_id="r1")
    again = submit(ours, "task-2", request_id="r1", context=context)
    assert (again.run_id, again.created) == (first.run_id, False)
    with pytest.raises(SubmissionConflict):
        submit(ours, "task-3", request_id="r1", context={"order": 8})
    redis_server.client.delete(ours.store.keys.state(RunRef(first.run_id)))
    assert submit(ours, "task-4", request_id="r1", context=context).created
    assert submit(ours, "task-5", request_id="r1", context='{"order": 7}').created is False


def test_fifty_at_once_are_one_run(ours: Installation, redis_server: Server) -> None:
    with ThreadPoolExecutor(10) as crowd:
        answers = list(crowd.map(lambda n: submit(ours, f"task-{n}", request_id="r1"), range(50)))
    assert len({answer.run_id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    assert plan_messages(ours, redis_server) == 1
    assert len(ours.ledger.listed(10)) == 1


@pytest.mark.parametrize("target", ["store.runs.create_run", "publish"])
def test_killed_between_two_writes_and_sent_again(
    ours: Installation, redis_server: Server, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    with monkeypatch.context() as broken:
        owner: Any = ours.store.runs if target.startswith("store") else dispatch
        broken.setattr(owner, target.rpartition(".")[2], crash)
        with pytest.raises(Crash):
            submit(ours)
    answer = submit(ours)
    assert answer.created is (target != "publish")
    assert len(ours.ledger.listed(10)) == 1
    row = ours.ledger.listed(1)[0]
    assert ours.store.views.run(RunRef(row.run_id, row.session)) is not None
    # a plan message that was not sent is due
    assert plan_messages(ours, redis_server) == (0 if target == "publish" else 1)
    due = redis_server.client.zcard(ours.store.keys.due(ours.store.keys.shard_of(row.run_id), "dispatches"))
    assert due == 1


def test_a_run_that_ended_and_was_forgotten_is_not_run_again(ours: Installation, redis_server: Server) -> None:
    first = submit(ours, request_id="r1")
    assert ours.ledger.end_run(first.run_id, 1, RunStatus.SUCCEEDED, None, 9, 1_800_000_000_000)
    redis_server.client.delete(ours.store.keys.state(RunRef(first.run_id)))
    answer = submit(ours, "task-2", request_id="r1")
    assert (answer.run_id, answer.status, answer.created) == (first.run_id, RunStatus.SUCCEEDED, False)
    assert ours.store.views.run(RunRef(first.run_id)) is None


def test_who_waits_is_given_no_run_that_goes_on(ours: Installation) -> None:
    """Started over, and the ledger has not heard of it yet."""
    run_id = submit(ours).run_id
    ours.ledger.end_run(run_id, 1, RunStatus.CANCELLED, None, 9, 1_800_000_000_000)
    with pytest.raises(NoAnswer, match="is accepted after"):
        Client().wait(run_id, timeout_s=0.3)
    ours.store.runs.cancel(RunRef(run_id), 1)
    assert Client().wait(run_id, timeout_s=5).status == RunStatus.CANCELLED


def test_a_run_with_a_plan_that_the_store_lost_is_not_begun_anew(ours: Installation, redis_server: Server) -> None:
    """Whoever submits again may not make it forget what was done, and undone."""
    first = submit(ours, request_id="r1")
    ours.ledger.store_plan(first.run_id, 1, "1" * 64, '{"steps":[]}', None)
    redis_server.client.delete(ours.store.keys.state(RunRef(first.run_id)))
    answer = submit(ours, "task-2", request_id="r1")
    assert (answer.run_id, answer.created) == (first.run_id, False)
    assert ours.store.views.run(RunRef(first.run_id)) is None


@pytest.mark.parametrize("ended", [True, False])
def test_a_submission_that_slept_over_a_loss_begins_nothing(
    ours: Installation, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row was read before; meanwhile the run was planned, perhaps it ended, and the store has lost it."""
    real = ours.store.runs.create_run

    def late(ref: RunRef, run: Any) -> Any:
        ours.ledger.store_plan(ref.run_id, 1, "1" * 64, '{"steps":[]}', None)
        if ended:
            ours.ledger.end_run(ref.run_id, 1, RunStatus.SUCCEEDED, None, 9, 1)
        return real(ref, run)

    monkeypatch.setattr(ours.store.runs, "create_run", late)
    answer = submit(ours, request_id="r1")
    assert answer.created is False
    assert ours.store.views.run(RunRef(answer.run_id)) is None


def test_a_request_of_another_namespace_is_not_taken_for_ours(ours: Installation) -> None:
    first = submit(ours, request_id="r1")
    other = Installation(ours.app, ours.store, ours.ledger, ours.settings.model_copy(update={"namespace": "another"}))
    with pytest.raises(SubmissionConflict, match="namespace"):
        submit(other, request_id="r1")
    assert submit(ours, request_id="r1").run_id == first.run_id


def test_nothing_is_accepted_that_is_not_remembered(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise LedgerUnavailable("gone")

    monkeypatch.setattr(ours.ledger, "accept", away)
    created: list[Any] = []
    monkeypatch.setattr(ours.store.runs, "create_run", lambda *args: created.append(args))
    with pytest.raises(LedgerUnavailable):
        submit(ours)
    assert not created


def test_a_store_that_is_away_is_repeated_into_the_same_run(
    ours: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(ours.store.runs, "create_run", away)
        with pytest.raises(StoreUnavailable):
            submit(ours)
    assert submit(ours).created


def test_a_bad_one_leaves_one_letter_and_rings(ours: Installation, redis_server: Server) -> None:
    bad = {**FIELDS, "nope": {"__type__": "uuid", "__value__": 1}}
    with pytest.raises(SubmissionRefused) as caught:
        submission.read(bad, ours.settings)
    ids = {submission.bury(ours.app, ours.ledger, ours.settings, caught.value, bad, "task-1") for _ in range(2)}
    letter = ours.ledger.letter(ids.pop())
    assert not ids
    assert letter is not None
    assert letter.content["submission"] == bad
    assert "nope" in letter.reason
    assert redis_server.client.llen(ours.queue("dlq")) == 2


def test_a_broker_that_is_away_does_not_lose_the_run(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise ConnectionRefusedError

    monkeypatch.setattr(dispatch, "_send_all", refuse)
    assert submit(ours, uuid4().hex).created


def test_ids_and_content_stay_apart(ours: Installation, redis_server: Server) -> None:
    """A plan message of a large submission is as small as any other."""
    submit(ours, goal="secret " * 10_000)
    (message,) = redis_server.client.lrange(ours.queue("plan"), 0, -1)
    assert len(message) < 8192
    assert "secret" not in str(message)


def test_too_far_behind_no_new_run_is_taken(ours: Installation) -> None:
    first = submit(ours, request_id="first")
    limited = ours.settings.model_copy(update={"undrained_most": 1})
    narrow = Installation(ours.app, ours.store, ours.ledger, limited)
    same_shard = [
        name for name in map(str, range(100)) if shard_of(ours, name) == ours.store.keys.shard_of(first.run_id)
    ]
    with pytest.raises(StoreRefused, match="wait for the ledger"):
        submit(narrow, request_id=same_shard[0])
    assert [row.request_id for row in ours.ledger.listed(10)] == ["first"]
    drain_ledger.run_once(ours.store, ours.ledger, limited)
    assert submit(narrow, request_id=same_shard[0]).created


def shard_of(ours: Installation, request_id: str) -> int:
    return ours.store.keys.shard_of(ref_of(request_id).run_id)


def test_what_the_operator_says_of_the_broker_holds_for_its_runs(ours: Installation, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"max_steps": 9, "principals": {"celery": {"max_steps": 3}, "anna": {"max_steps": 5}}}')
    settings = ours.settings.model_copy(update={"policy_file": file})
    given = submission.read(FIELDS, settings)
    for principal, most in (("celery", 3), ("anna", 5), ("bob", 9)):
        with identity(job_id=principal):
            sent = submission.submit(ours.app, ours.store, ours.ledger, settings, given, "task", principal)
        row = ours.ledger.run(sent.run_id)
        assert row is not None
        assert Policy.model_validate_json(row.policy_text).max_steps == most


def test_a_policy_that_changes_later_is_not_the_runs(ours: Installation) -> None:
    asked = {"limits": {"attempts": 2}}
    first = submit(ours, request_id="r1", policy=asked)
    row = ours.ledger.run(first.run_id)
    assert row is not None
    for today in ({"attempts": 1, "max_steps": 1}, {"attempts": 9, "max_steps": 2000}):
        settings = ours.settings.model_copy(update=today)
        assert sent_again(ours, settings, "r1", asked) == first.model_copy(update={"created": False})
    with pytest.raises(SubmissionRefused, match=r"policy\.limits\.attempts: .* asks for 2, allowed is 1"):
        sent_again(ours, ours.settings.model_copy(update={"attempts": 1}), "r2", asked)
    with pytest.raises(SubmissionRefused, match="allowed is 1"):
        sent_again(ours, ours.settings.model_copy(update={"attempts": 1}), "r1", {"limits": {"attempts": 3}})
    granted = ours.store.runs.claim_plan(RunRef(row.run_id, row.session), 1, "claim", "host:1:1")
    assert isinstance(granted, PlanGranted)
    assert (granted.policy_text, granted.policy_hash) == (row.policy_text, sha256_hex(row.policy_text))
    assert Policy.model_validate_json(granted.policy_text).limits_for("any").attempts == 2


def sent_again(ours: Installation, settings: Settings, request_id: str, policy: dict[str, Any]) -> SubmitAnswer:
    """The submission under the settings of another day."""
    read = submission.read({**FIELDS, "request_id": request_id, "policy": policy}, settings)
    with identity(job_id="again"):
        return submission.submit(ours.app, ours.store, ours.ledger, settings, read, "again")
