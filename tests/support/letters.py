"""Runs whose planners' answers were refused, submissions that were none, and the letters about them."""

from typing import Any

import pytest

from orchestrator import dead_letters, progress, submission
from orchestrator.errors import SubmissionRefused
from orchestrator.store.replies import Failed, PlanGranted
from orchestrator.telemetry.logs import identity
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef
from tests.support.installation import Installation


def refused_run(ours: Installation, fields: dict[str, Any], task_id: str) -> RunRef:
    """A run that has ended as dead_lettered, in the store and in the ledger."""
    ref = _submitted(ours, fields, task_id)
    refuse_plan(ours, ref)
    return ref


def lost_run(ours: Installation, fields: dict[str, Any], task_id: str) -> RunRef:
    """A run that has ended with the loss of its last planner's process, in the store and in the ledger."""
    ref = _submitted(ours, fields, task_id)
    for _ in range(ours.settings.planner_attempts):
        assert isinstance(ours.store.runs.claim_plan(ref, 1, "planner", "worker"), PlanGranted)
        ours.store.guard.end_claim(ref, None, "worker")
        said = ours.store.runs.expire_plan(ref)
    assert isinstance(said, Failed)
    with identity(run_id=ref.run_id):
        progress.settle(ours.app, ours.store, ours.ledger, ref, 1)
    return ref


def _submitted(ours: Installation, fields: dict[str, Any], task_id: str) -> RunRef:
    read = submission.read(fields, ours.settings)
    with identity(job_id=task_id):
        run_id = submission.submit(ours.app, ours.store, ours.ledger, ours.settings, read, task_id).run_id
    row = ours.ledger.run(run_id)
    assert row is not None
    return RunRef(run_id, row.session)


def refuse_plan(ours: Installation, ref: RunRef, generation: int = 1) -> None:
    """What a planner's worker does when the last answer was refused."""
    claim = ours.store.runs.claim_plan(ref, generation, "planner", "worker")
    assert isinstance(claim, PlanGranted)
    ours.store.runs.reject_plan(ref, claim.fence, "planner", "payload drift", "{}")
    with identity(run_id=ref.run_id):
        progress.settle(ours.app, ours.store, ours.ledger, ref, generation)


def refused_submission(ours: Installation, fields: dict[str, Any], task_id: str = "task-1") -> str:
    """The letter about a submission that is none."""
    with pytest.raises(SubmissionRefused) as caught:
        submission.read(fields, ours.settings)
    return submission.bury(ours.app, ours.ledger, ours.settings, caught.value, fields, task_id)


def letter_about(ours: Installation, ref: RunRef, reason: str, generation: int = 1, **content: Any) -> str:
    key = dead_letters.plan_key(ref.run_id, generation)
    told = {"generation": generation, **content}
    return dead_letters.write(ours.app, ours.ledger, DeadLetterKind.PLAN, reason, key, told, ref)
