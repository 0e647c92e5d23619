"""The decisions of a submission, without a service."""

from typing import Any

import pytest

from orchestrator import submission
from orchestrator.errors import SubmissionRefused
from orchestrator.ledger import LedgerRun
from orchestrator.settings import Settings
from schemas.ids import is_run_id
from schemas.states import RunStatus

SETTINGS = Settings()
FIELDS: dict[str, Any] = {"planner": "orders.fulfil", "context": {"order": 7}, "session_id": "alice"}


def accepted(fallback: str = "task-1", **changes: Any) -> Any:
    read = submission.read({**FIELDS, **changes}, SETTINGS)
    policy = submission.resolve_policy(read, SETTINGS)[-1].policy
    return submission.to_accept(read, policy, "celery", fallback, "mandor")


def refused(fields: dict[str, Any], args: tuple[Any, ...] = (), settings: Settings = SETTINGS) -> SubmissionRefused:
    with pytest.raises(SubmissionRefused) as caught:
        submission.resolve_policy(submission.read(fields, settings, args), settings)
    return caught.value


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"nope": 1}, "nope"),
        ({"planner": None}, "planner"),
        ({"planner": "p", "plan": "{}"}, "planner"),
        ({"context": [1]}, "context"),
        ({"context": {"n": 2**60}}, "context.n"),
        ({"context": {"n": float("inf")}}, "context.n"),
        ({"goal": 5}, "goal"),
        ({"deadline_s": 10**9}, "deadline_s"),
        ({"deadline_s": 7200.0}, "deadline_s"),
        ({"policy": {"max_steps": 5000}}, "policy.max_steps"),
        ({"policy": {"nope": 1}}, "policy.nope"),
        ({"callback": "https://x#y"}, "callback"),
        ({"call_back": "https://x"}, "call_back"),
        ({"session_id": ""}, "session_id"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(changes: dict[str, Any], path: str) -> None:
    error = refused({**FIELDS, **changes})
    assert error.path is not None
    assert error.path.startswith(path)
    assert path in error.args[0]


def test_positional_arguments_are_refused() -> None:
    assert refused({}, ({"goal": "x"},)).path == "args"


def test_a_size_limit_names_its_setting() -> None:
    small = Settings(goal_bytes=100, plan_bytes=100)
    assert "MANDOR_GOAL_BYTES" in str(refused({**FIELDS, "goal": "x" * 101}, settings=small))
    assert "MANDOR_PLAN_BYTES" in str(refused({"plan": "x" * 101}, settings=small))


def test_all_faults_are_told_at_once_but_not_without_end() -> None:
    error = refused({**FIELDS, "goal": 1, "session_id": 2, **{f"x{i}": 0 for i in range(50)}})
    assert "goal" in error.message
    assert "session_id" in error.message
    assert "more" in error.message
    assert len(error.message) < 4000


def test_the_same_request_is_the_same_run() -> None:
    first, again = accepted("task-1", request_id="r"), accepted("task-2", request_id="r")
    assert first == again
    assert is_run_id(first.run_id)


def test_without_a_request_id_the_task_stands_in() -> None:
    assert accepted("task-1").run_id == accepted("task-1").run_id
    assert accepted("task-1").run_id != accepted("task-2").run_id
    assert accepted("task-1").request_id == "task-1"


def test_a_session_keeps_requests_apart() -> None:
    assert accepted(request_id="r").run_id != accepted(request_id="r", session_id="bob").run_id
    assert accepted(request_id="r", session_id=None).session == "-"


def test_the_hash_is_of_what_was_sent() -> None:
    one, same = accepted(request_id="r", goal=None), accepted(request_id="r")
    other = accepted(request_id="r", context={"order": 8})
    assert one.submission_hash == same.submission_hash != other.submission_hash
    assert one.context_hash != other.context_hash


def test_another_policy_of_the_installation_is_no_other_submission() -> None:
    read = submission.read({**FIELDS, "request_id": "r"}, SETTINGS)
    narrow = Settings(max_steps=5)
    rows = [
        submission.to_accept(read, submission.resolve_policy(read, given)[-1].policy, "celery", "t", "mandor")
        for given in (SETTINGS, narrow)
    ]
    assert rows[0].submission_hash == rows[1].submission_hash
    assert rows[0].policy_hash != rows[1].policy_hash


def test_the_store_is_asked_for_what_the_ledger_has() -> None:
    row = accepted(deadline_s=60.0)
    stands = LedgerRun(
        **{name: getattr(row, name) for name in type(row).__slots__},
        accepted_at=1,
        generation=1,
        status=RunStatus.ACCEPTED,
        reason=None,
        version=0,
        ended_at=None,
        plan_hash=None,
    )
    asked = submission.to_create(stands, SETTINGS)
    assert (asked.planner, asked.deadline_ms, asked.queue) == ("orders.fulfil", 60_000, "mandor.plan")
    assert asked.policy_hash == row.policy_hash
    assert (asked.limit_ms, asked.stop_grace_ms, asked.tries) == (110_000, 10_000, 3)


def test_what_is_kept_of_a_bad_submission_is_bounded() -> None:
    small = Settings(goal_bytes=1000, plan_bytes=1000)
    assert submission.kept({"goal": "x"}, small) == {"goal": "x"}
    cut = submission.kept({"goal": "x" * 5000}, small)
    assert cut["cut"] is True
    assert len(cut["beginning"]) == 4096
