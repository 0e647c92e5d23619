"""A submission becomes a run: read, resolve the policy, remember in the ledger, create in the store, send for planning.

Every write may be the last before a crash, and every write may be repeated: the ledger's row is unique by run id, the
store's too, and a plan message that was not sent is due. So a submission that is delivered again, whether by the broker
or by its sender, ends as the one run it named.
"""

from collections.abc import Mapping
from typing import Any, Final

from orchestrator import dead_letters, dispatch, names, policies
from orchestrator.deliveries import door
from orchestrator.dispatch import App
from orchestrator.errors import StoreRefused, SubmissionConflict, SubmissionRefused
from orchestrator.ledger import AcceptedRun, ConflictingSubmission, Ledger, LedgerRun
from orchestrator.policies import FROM_BROKER, Stage
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.new import NewRun
from orchestrator.store.replies import Conflict, Created
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import bind, emit
from orchestrator.telemetry.text import without_secrets
from schemas.dead_letter import DeadLetterKind
from schemas.ids import RunRef, run_id_for, session_key
from schemas.issues import Issue
from schemas.policy import Policy, policy_hash, policy_text
from schemas.run import (
    Submission,
    SubmissionInvalid,
    SubmissionLimits,
    SubmitAnswer,
    read_submission,
    submission_hash,
    submission_text,
)
from schemas.states import RunStatus

SHOWN_ISSUES: Final = 20
CORRECT: Final = "correct these fields and submit again"


# ---- decisions: no clock, no service


def read(fields: Mapping[str, Any], settings: Settings, args: tuple[Any, ...] = ()) -> Submission:
    """The submission of a message, or SubmissionRefused with every path that is wrong."""
    if args:
        raise refusal([Issue("args", "positional", "a submission is sent as keyword arguments only")])
    limits = SubmissionLimits(goal_bytes=settings.goal_bytes, plan_bytes=settings.plan_bytes)
    try:
        return read_submission(fields, limits)
    except SubmissionInvalid as invalid:
        raise refusal(list(invalid.issues)) from None


def refusal(issues: list[Issue], hint: str | None = CORRECT) -> SubmissionRefused:
    """All that is wrong in one message: a caller without our code sees nothing but the text."""
    told = "; ".join(f"{issue.path or '(submission)'}: {issue.message}" for issue in issues[:SHOWN_ISSUES])
    shown = without_secrets(told)
    more = f"; and {len(issues) - SHOWN_ISSUES} more" if len(issues) > SHOWN_ISSUES else ""
    refused = SubmissionRefused(shown + more, path=issues[0].path or None, hint=hint)
    refused.faults = tuple((issue.path, issue.kind, _message(issue)) for issue in issues)
    return refused


def _message(issue: Issue) -> str:
    """As it stands behind its path, which may say that it is a secret."""
    return without_secrets(f"{issue.path}: {issue.message}").removeprefix(f"{issue.path}: ")


def resolve_policy(submission: Submission, settings: Settings, principal: str = FROM_BROKER) -> tuple[Stage, ...]:
    """How the run's policy comes about, or SubmissionRefused naming what the request would widen."""
    try:
        return policies.stages(settings, submission.policy, submission.deadline_s, principal)
    except SubmissionRefused as widened:
        issue = Issue(widened.path or "policy", "policy_widened", widened.message)
        raise refusal([issue], widened.hint) from None


def run_id_of(submission: Submission, principal: str, fallback_id: str) -> str:
    """The run that this submission is, or will be."""
    return run_id_for(principal, submission.session_id, submission.request_id or fallback_id)


def to_accept(submission: Submission, policy: Policy, principal: str, fallback_id: str, namespace: str) -> AcceptedRun:
    """The row the ledger is asked to keep. fallback_id: names the request when its sender did not."""
    return AcceptedRun(
        run_id=run_id_of(submission, principal, fallback_id),
        session=session_key(submission.session_id),
        session_id=submission.session_id,
        request_id=submission.request_id or fallback_id,
        principal=principal,
        submission_hash=submission_hash(submission),
        submission_text=submission_text(submission),
        policy_text=policy_text(policy),
        policy_hash=policy_hash(policy),
        context_hash=submission.context_hash(),
        deadline_ms=round(policy.deadline_s * 1000),
        planner=submission.planner,
        namespace=namespace,
        callback=submission.callback,
    )


def to_create(row: LedgerRun, settings: Settings) -> NewRun:
    """The run the store is asked for, from the row that stands. A ready plan has no planner."""
    sent = Submission.model_validate_json(row.submission_text)
    policy = Policy.model_validate_json(row.policy_text)
    return NewRun(
        submission_hash=row.submission_hash,
        request_id=row.request_id,
        session_id=row.session_id,
        principal=row.principal,
        policy_text=row.policy_text,
        policy_hash=row.policy_hash,
        context_hash=row.context_hash,
        planner=sent.planner or "",
        on_failure=policy.failing.value,
        deadline_ms=row.deadline_ms,
        queue=names.queue(settings.prefix, "plan"),
        limit_ms=_ms(settings.planner_timeout_s),
        stop_grace_ms=_ms(policy.stop_grace_s),
        lease_ms=_ms(settings.lease_s),
        tries=settings.planner_attempts,
        backoff_ms=_ms(settings.backoff_s),
        backoff_max_ms=_ms(settings.backoff_max_s),
        on_doubt=policy.doubting.value,
        wait_ms=_ms(policy.wait_s),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


# ---- writes, in their order


def submit(
    app: App,
    store: Store,
    ledger: Ledger,
    settings: Settings,
    submission: Submission,
    fallback_id: str,
    principal: str = FROM_BROKER,
) -> SubmitAnswer:
    """Accept a submission once.

    SubmissionRefused: the policy does not allow it, or nothing would be posted to its callback; SubmissionConflict: its
    request_id belongs to another submission. LedgerUnavailable, StoreRefused (the ledger is too far behind): nothing
    was accepted. StoreUnavailable: it may be remembered; repeat it to create the run.
    """
    policy, layers = _resolved(ledger, submission, settings, principal, fallback_id)
    accepting = to_accept(submission, policy, principal, fallback_id, settings.namespace)
    _refuse_callback(ledger, settings, accepting)
    _refuse_beyond_the_lag(store, settings, accepting.run_id)
    row = _remember(ledger, accepting)
    bind(run_id=row.run_id, session_id=row.session_id, request_id=row.request_id, policy_hash=row.policy_hash)
    emit(events.PolicyResolved(layers))
    if row.ended_at is not None or _was_lost(store, row):
        return SubmitAnswer(run_id=row.run_id, status=RunStatus(row.status), created=False)
    answer = _create(app, store, ledger, row, to_create(row, settings))
    emit(events.RunAccepted(answer.created, submission.planner))
    return answer


def _resolved(
    ledger: Ledger, submission: Submission, settings: Settings, principal: str, fallback_id: str
) -> tuple[Policy, tuple[str, ...]]:
    """The policy, and the layers that had a say. A run that was accepted before keeps its own, whatever holds now."""
    try:
        resolved = resolve_policy(submission, settings, principal)
    except SubmissionRefused:
        row = ledger.run(run_id_of(submission, principal, fallback_id))
        if row is None or not row.is_of(submission_hash(submission)):
            raise
        return Policy.model_validate_json(row.policy_text), ()
    return resolved[-1].policy, policies.heard(resolved)


def _refuse_callback(ledger: Ledger, settings: Settings, accepting: AcceptedRun) -> None:
    """SubmissionRefused: the end would be told to nobody. Not of a run that was accepted before, whatever holds now."""
    found = door.fault_of(accepting.callback, settings) if accepting.callback is not None else None
    if found is None:
        return
    row = ledger.run(accepting.run_id)
    if row is None or not row.is_of(accepting.submission_hash):
        raise refusal([found[0]], found[1])


def _refuse_beyond_the_lag(store: Store, settings: Settings, run_id: str) -> None:
    """Before it is accepted anywhere: what the ledger is behind by must stay bounded. Runs under way go on."""
    waiting = store.stream.length(store.keys.shard_of(run_id))
    if waiting >= settings.undrained_most:
        raise StoreRefused(
            f"{waiting} transitions of this run's shard wait for the ledger, so no new run is taken",
            path="MANDOR_UNDRAINED_MOST",
            hint="is the ledger away, or no worker on the supervise queue? see `mandor doctor`, then submit it again",
        )


def _was_lost(store: Store, row: LedgerRun) -> bool:
    """Whether the store has lost the run, which had a plan. Created anew, it would know of nothing that was done."""
    return row.plan_hash is not None and store.views.run(RunRef(row.run_id, row.session)) is None


def _remember(ledger: Ledger, run: AcceptedRun) -> LedgerRun:
    accepted = ledger.accept(run)
    if isinstance(accepted, ConflictingSubmission):
        raise _conflict(run.run_id)
    if accepted.run.namespace not in ("", run.namespace):
        raise SubmissionConflict(
            f"this request_id belongs to run {run.run_id} of another namespace, which shares the ledger",
            path="request_id",
            hint="use another request_id, or the namespace that accepted it",
        )
    return accepted.run


def _create(app: App, store: Store, ledger: Ledger, row: LedgerRun, run: NewRun) -> SubmitAnswer:
    ref = RunRef(row.run_id, row.session)
    reply = store.runs.create_run(ref, run)
    if isinstance(reply, Conflict):
        raise _conflict(row.run_id)
    if isinstance(reply, Created):
        known = ledger.run(row.run_id)
        went_on = known is not None and (known.ended_at is not None or known.plan_hash is not None)
        if went_on and store.runs.forget_fresh(ref):  # and was lost since: whoever builds it again knows more of it
            return SubmitAnswer(run_id=row.run_id, status=row.status, created=False)
        dispatch.publish(app, reply.publish)
        return SubmitAnswer(run_id=row.run_id, status=RunStatus.ACCEPTED, created=True)
    return SubmitAnswer(run_id=row.run_id, status=RunStatus(reply.status), created=False)


def _conflict(run_id: str) -> SubmissionConflict:
    return SubmissionConflict(
        f"this request_id belongs to run {run_id}, which was submitted with other content",
        path="request_id",
        hint="send the same content, or another request_id",
    )


# ---- what is left of a bad one


def bury(
    app: App,
    ledger: Ledger,
    settings: Settings,
    refused: SubmissionRefused,
    fields: Mapping[str, Any],
    task_id: str,
) -> str:
    """Keep a submission that was refused over the broker, where its sender may never ask for the answer."""
    emit(events.RunRefused(refused.kind, (refused.path,) if refused.path else ()))
    content = {"submission": kept(fields, settings), "refusal": refused.message, "task_id": task_id}
    return dead_letters.write(app, ledger, DeadLetterKind.SUBMISSION, refused.message, f"submission:{task_id}", content)


def kept(fields: Mapping[str, Any], settings: Settings) -> Any:
    """What was sent, whole if a submission may be this long, else its beginning as text."""
    text = repr(dict(fields))
    most = settings.goal_bytes + settings.plan_bytes
    return dict(fields) if len(text) <= most else {"cut": True, "bytes": len(text), "beginning": text[:4096]}
