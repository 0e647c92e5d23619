"""One delivery of one run's plan message: from the claim to the first steps on their way.

    claim -> the plan the ledger has, or ask the planner -> ledger -> the door -> ledger -> admit -> chord -> publish
                                              ^------ refused: up to two repairs

The ledger keeps each answer before it is judged and the plan before the store hears of it: whatever dies in between,
an answer that was stored is not paid for again. Answers the door refuses are given back to a planner that can mend
them; when that is over they end the run and are kept whole in a dead letter. A planner that raises or runs out of time
is asked again, as often as its run allows.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from orchestrator import dead_letters
from orchestrator.admission import Admission, PayloadDrift, readmit, validate_handoff
from orchestrator.admission.repair import MAX_REPAIRS, Refusal
from orchestrator.errors import LedgerUnavailable, StoreUnavailable
from orchestrator.ledger import LedgerRun
from orchestrator.recovery.rebuild import as_admitted
from orchestrator.store.guard import settle_message
from orchestrator.store.replies import Admitted, Exhausted, Failed, PlanGranted, Rejected, RetryAt
from orchestrator.telemetry import events, logs, planned, signals
from schemas.canonical import canonical_text
from schemas.dead_letter import DeadLetterKind
from schemas.ids import plan_task_id
from schemas.messages import PlanMessage
from schemas.policy import Policy
from schemas.run import Submission
from workers import answers, failures, givenup, signs
from workers.answers import Refused, RefusedAnswer
from workers.identity import worker_id
from workers.lease import Lease, Renewal, Terms
from workers.newplan import new_plan
from workers.plan_context import PlanContext
from workers.planners import Answer, call_planner, ready_plan
from workers.reports import GivenUp, Later, Nothing, Planned, Report, word
from workers.services import Letter, Services


class PlannerStopped(Exception):
    """The planner raised what would have ended its process."""


@dataclass(frozen=True)
class Planning:
    """One granted claim on a run's planning. granted_at: before it was asked for, on time.monotonic's clock."""

    message: PlanMessage
    granted: PlanGranted
    granted_at: float
    claim_id: str
    run: LedgerRun
    services: Services

    @property
    def policy(self) -> Policy:
        return Policy.model_validate_json(self.granted.policy_text)

    @property
    def submission(self) -> Submission:
        return Submission.model_validate_json(self.run.submission_text)

    @property
    def planner(self) -> str | None:
        """Its name; None for a plan that came ready with the submission."""
        return self.submission.planner

    def context(self, number: int, repair: Refusal | None) -> PlanContext:
        """What the planner is handed for its answer of that number."""
        submission = self.submission
        return PlanContext(
            run_id=self.message.run_id,
            session_id=self.granted.session_id,
            goal=submission.goal,
            context_text=canonical_text(submission.context_value()),
            context_hash=self.granted.context_hash,
            policy=self.policy,
            catalogue=self.services.registry.catalogue(),
            repair=repair,
            call_key=f"plan:{self.message.run_id}:{self.message.generation}:{number}",
            until=self.granted_at + self.granted.limit_ms / 1000,
        )


def plan_run(message: PlanMessage, services: Services) -> Report:
    """Plan the run, if that is due. StoreMoved and StoreAmnesia are raised; LedgerUnavailable before anything began."""
    with logs.identity(run_id=message.run_id, job_id=plan_task_id(message.run_id), worker_id=worker_id()):
        try:
            return _deliver(message, services)
        except StoreUnavailable as away:
            return Nothing(away.kind)


def _deliver(message: PlanMessage, services: Services) -> Report:
    run = services.ledger.run(message.run_id)
    if run is None:
        return Nothing("unknown_run")
    claim_id, granted_at = uuid4().hex, time.monotonic()
    claim = services.store.runs.claim_plan(message.ref, message.generation, claim_id, worker_id())
    if isinstance(claim, PlanGranted):
        return _plan(Planning(message, claim, granted_at, claim_id, run, services))
    if isinstance(claim, Exhausted):
        return _give_up(message, services)
    logs.emit(events.ClaimRefused(word(claim), getattr(claim, "status", None)))
    return Nothing(word(claim))


def _plan(planning: Planning) -> Report:
    granted = planning.granted
    logs.bind(
        request_id=granted.request_id,
        session_id=granted.session_id,
        policy_hash=granted.policy_hash,
        state_version=granted.version,
    )
    signs.compare_policy(granted)
    terms = Terms(
        granted.fence, granted.lease_ms, granted.limit_ms, granted.stop_grace_ms, planning.granted_at, "planner"
    )
    with Lease(terms, _renewal(planning)) as lease:
        try:
            admission = _admission(planning, lease)
        except Refused as refused:
            return _reject(planning, lease, refused)
        except Exception as error:  # noqa: BLE001  (a planner may raise anything; it is judged, not lost)
            return _fail(planning, lease, error)
        return _admit(planning, lease, admission)


def _give_up(message: PlanMessage, services: Services) -> Report:
    """The last attempt lost its worker: the end of the run, then the letter, for which its end in the ledger waits."""
    ended = services.store.runs.expire_plan(message.ref)
    if isinstance(ended, Failed):
        givenup.after_last_plan(message, services)
        logs.emit(planned.PlannerFailed("", failures.WORKER_LOST, will_retry=False, exhausted=True))
    services.publisher.publish(getattr(ended, "publish", ()))
    return GivenUp("the planner did not finish within its attempts")


def _renewal(planning: Planning) -> Callable[[], Renewal]:
    guard, message = planning.services.store.guard, planning.message
    return lambda: guard.renew_lease(message.ref, None, planning.granted.fence, planning.claim_id)


# ---- the plan


def _admission(planning: Planning, lease: Lease) -> Admission:
    """The plan that stands in the ledger for this generation, put there now if there was none."""
    ledger, message = planning.services.ledger, planning.message
    stored = lease.patiently(lambda: ledger.plan(message.run_id, message.generation))
    if stored is not None:
        return _readmit(planning, stored.plan_text)
    made = _ask(planning, lease)
    grace_ms = round(planning.policy.stop_grace_s * 1000)
    steps = as_admitted(new_plan(made, planning.policy, planning.services.settings), grace_ms)
    keep = (message.run_id, message.generation, made.plan_hash, made.plan_text, planning.planner, steps)
    stands = lease.patiently(lambda: ledger.store_plan(*keep))
    return made if stands.plan_hash == made.plan_hash else _readmit(planning, stands.plan_text)


def _ask(planning: Planning, lease: Lease) -> Admission:
    """The plan of the first answer that the door takes. Refused: none was taken, and there will be no other."""
    stored = _stored_answers(planning, lease)
    refusals: list[RefusedAnswer] = []
    try:
        while True:
            number = len(refusals)
            answer = stored[number] if number < len(stored) else _new_answer(planning, lease, refusals)
            try:
                return _judged(planning, answer)
            except PayloadDrift as drift:
                refusals.append(RefusedAnswer(answer, drift))
            if number == MAX_REPAIRS or not _can_repair(planning):
                raise Refused(refusals) from None
            logs.emit(planned.AnswerRefused(number, len(refusals[-1].drift.issues), _kinds(refusals[-1].drift)))
    finally:
        lease.action_returned()


def _judged(planning: Planning, answer: Answer) -> Admission:
    admission = validate_handoff(
        answer.raw,
        catalogue=planning.services.registry.catalogue(),
        policy=planning.policy,
        context_hash=planning.granted.context_hash,
        finish_reason=answer.finish_reason,
    )
    logs.emit(planned.PlanAdmitted(admission.plan_id, len(admission.steps), admission.extracted))
    return admission


def _can_repair(planning: Planning) -> bool:
    """A ready plan has nobody to mend it, and code would write the same again."""
    return planning.planner is not None and planning.services.registry.find_planner(planning.planner).repairs


# ---- answers


def _stored_answers(planning: Planning, lease: Lease) -> list[Answer]:
    """What an earlier delivery was answered and had no time to act on."""
    ledger, message = planning.services.ledger, planning.message
    if planning.planner is None:
        return [ready_plan(planning.submission.plan or "")]
    rows = lease.patiently(lambda: ledger.planner_answers(message.run_id, message.generation))
    return [answers.stored_answer(row) for row in rows]


def _new_answer(planning: Planning, lease: Lease, refusals: list[RefusedAnswer]) -> Answer:
    """Ask the planner, and keep its answer before anything else is done with it. Answers the one that stands."""
    lease.check()
    name, number = planning.planner or "", len(refusals)
    repair = refusals[-1].as_refusal() if refusals else None
    answer = answers.bounded(_call(planning, name, planning.context(number, repair)), planning.policy.plan_bytes)
    ledger, message = planning.services.ledger, planning.message
    keep = (message.run_id, message.generation, number, name, answers.raw_text(answer), answers.details_text(answer))
    return answers.stored_answer(lease.patiently(lambda: ledger.store_answer(*keep)))


def _call(planning: Planning, name: str, ctx: PlanContext) -> Answer:
    logs.emit(planned.PlannerCalled(name, planning.granted.attempt))
    started = time.monotonic()
    try:
        answer = call_planner(planning.services.registry.find_planner(name), ctx)
    except Exception:
        raise
    except BaseException as error:  # what would end the process is the planner's failure like any other
        raise PlannerStopped(f"{type(error).__name__}: {error}") from error
    finally:
        logs.emit(signals.LoopEnded("planner", duration_ms := int((time.monotonic() - started) * 1000)))
    logs.emit(planned.PlannerAnswered(name, duration_ms, len(answer.raw.encode(errors="surrogatepass"))))
    return answer


def _readmit(planning: Planning, plan_text: str) -> Admission:
    """A stored plan, judged by what this worker knows today."""
    try:
        return readmit(
            plan_text,
            catalogue=planning.services.registry.catalogue(),
            policy=planning.policy,
            context_hash=planning.granted.context_hash,
        )
    except PayloadDrift as drift:
        raise Refused([RefusedAnswer(Answer(plan_text), drift)]) from None


# ---- how it ends


def _admit(planning: Planning, lease: Lease, admission: Admission) -> Report:
    services, message, granted = planning.services, planning.message, planning.granted
    steps = new_plan(admission, planning.policy, services.settings)
    admit = services.store.runs.admit_plan
    reply = lease.patiently(lambda: admit(message.ref, granted.fence, planning.claim_id, steps))
    if isinstance(reply, Admitted):
        services.publisher.open_chord(message.ref, message.generation, reply.total)
        services.publisher.publish(reply.publish)
        return Planned()
    return Nothing(word(reply))


def _reject(planning: Planning, lease: Lease, refused: Refused) -> Report:
    """The letter first: a run that ends as dead_lettered has one."""
    services, message = planning.services, planning.message
    letter = _letter(planning, refused)
    try:
        letter_id = lease.patiently(lambda: services.write_letter(letter))
    except LedgerUnavailable as away:
        return Nothing(away.kind)
    drift = refused.drift
    paths = tuple(issue.path for issue in drift.issues)
    logs.emit(planned.PlanRejected(len(drift.issues), paths, letter_id, _kinds(drift)))
    reject, fence, said = services.store.runs.reject_plan, planning.granted.fence, failures.error_text(drift, 0)
    reply = lease.patiently(lambda: reject(message.ref, fence, planning.claim_id, drift.kind, said))
    if isinstance(reply, Rejected):
        services.publisher.publish((settle_message(message.ref, message.generation),))
        return GivenUp(failures.message_of(drift))
    return Nothing(word(reply))


def _kinds(drift: PayloadDrift) -> tuple[str, ...]:
    return tuple(sorted({issue.kind for issue in drift.issues}))


def _letter(planning: Planning, refused: Refused) -> Letter:
    message = planning.message
    content = {
        "planner": planning.planner,
        "generation": message.generation,
        "context_hash": planning.granted.context_hash,
        "policy_hash": planning.granted.policy_hash,
        "attempts": answers.attempts(refused),
    }
    dedup_key = dead_letters.plan_key(message.run_id, message.generation)
    return Letter(DeadLetterKind.PLAN, message.ref, None, str(refused), content, dedup_key)


def _fail(planning: Planning, lease: Lease, error: BaseException) -> Report:
    """The planner raised, was unknown or could not be asked: again later, or the run has failed."""
    services, message = planning.services, planning.message
    fail, fence, said = services.store.runs.fail_plan, planning.granted.fence, failures.error_text(error, 0)
    again, delay_ms = failures.is_retryable(error), failures.delay_ms(error)
    reply = lease.patiently(lambda: fail(message.ref, fence, planning.claim_id, said, again, delay_ms))
    planner, where = planning.planner or "ready plan", events.where(error)
    will_retry, exhausted = isinstance(reply, RetryAt), again and isinstance(reply, Failed)
    logs.emit(planned.PlannerFailed(planner, failures.kind_of(error), will_retry, where, exhausted))
    if isinstance(reply, RetryAt):
        return Later(failures.message_of(error))
    if isinstance(reply, Failed):
        services.publisher.publish(reply.publish)
        return GivenUp(failures.message_of(error))
    return Nothing(word(reply))
