"""Runs whose planners' answers were refused, submissions that were none, and the letters about them."""

from typing import Any

import pytest

from orchestrator import dead_letters, progress, submission
from orchestrator.errors import SubmissionRefused
from orchestrator.store.replies import PlanGranted
from orchestrator.telemetry.logs import identity
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef
from tests.support.installation import Installation


def refused_run(ours: Installation, fields: dict[str, Any], task_id: str) -> RunRef:
    """A run that has ended as dead_lettered, in the store and in the ledger."""
    read = submission.read(fields, ours.settings)
    with identity(job_id=task_id):
        run_id = submission.submit(ours.app, ours.store, ours.ledger, ours.settings, read, task_id).run_id
    row = ours.ledger.run(run_id)
    assert row is not None
    ref = RunRef(run_id, row.session)
    refuse_plan(ours, ref)
    return ref


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
