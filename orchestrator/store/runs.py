"""All other writes: accepting, planning, ending and sweeping runs. Each call is one script, one round trip."""

from collections.abc import Callable, Collection
from typing import Any, Literal

from orchestrator.store.decided import (
    Ending,
    Kept,
    NoStep,
    NotClosed,
    Noted,
    Paused,
    Resumed,
    Retried,
    StillInDoubt,
    TooLate,
    Undoing,
)
from orchestrator.store.guard import Verdict, granted_fields, publish_list, settle_message, verdict
from orchestrator.store.keys import of_member
from orchestrator.store.new import NewPlan, NewRun, step_words
from orchestrator.store.replies import (
    Admitted,
    Again,
    Busy,
    Compensating,
    Confirmed,
    Conflict,
    Created,
    Dispatch,
    Due,
    Duty,
    Exhausted,
    Exists,
    Failed,
    Fenced,
    Later,
    NotDue,
    OtherGeneration,
    Owing,
    PlanGranted,
    Publish,
    Rejected,
    Republish,
    Resting,
    RetryAt,
    Settled,
    Stop,
    Stored,
    UnknownRun,
    Waiting,
)
from orchestrator.store.scripts import Reply, Scripts
from schemas.ids import RunRef

PlanClaim = PlanGranted | Busy | Stored | Stop | NotDue | Exhausted | OtherGeneration | UnknownRun
Settling = Settled | Compensating | Owing | Waiting | OtherGeneration | UnknownRun
Decision = Ending | TooLate | Waiting | OtherGeneration | UnknownRun
# of which a shard remembers the last pass: the duties, and what is not in `due`
Pass = Duty | Literal["drain", "audit"]
Settlement = Verdict | NotDue | OtherGeneration
Retry = Retried | StillInDoubt | NoStep | Kept | TooLate | OtherGeneration | UnknownRun
# how long a member that a pass took stays away from the next pass, should the first one die
TAKEN_MS = 10_000


class Runs:
    """Runs: accepted, planned, ended, swept."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    # ---- accept and plan

    def forget_fresh(self, ref: RunRef) -> bool:
        """Take back a run that was created and has not moved since. False: it has."""
        return self._call("forget_fresh", ref).word != "moved_on"

    def create_run(self, ref: RunRef, new: NewRun) -> Created | Exists | Conflict:
        """Accept a run once; judged by submission_hash. Created.publish: the plan message."""
        reply = self._call(
            "create_run",
            ref,
            submission_hash=new.submission_hash,
            request_id=new.request_id,
            session_id=new.session_id,
            principal=new.principal,
            policy=new.policy_text,
            policy_hash=new.policy_hash,
            context_hash=new.context_hash,
            planner=new.planner,
            on_failure=new.on_failure,
            on_doubt=new.on_doubt,
            wait_ms=new.wait_ms,
            deadline_ms=new.deadline_ms,
            queue=new.queue,
            limit_ms=new.limit_ms,
            stop_grace_ms=new.stop_grace_ms,
            lease_ms=new.lease_ms,
            tries=new.tries,
            backoff_ms=new.backoff_ms,
            backoff_max_ms=new.backoff_max_ms,
        )
        if reply.word == "created":
            return Created(reply["version"], (_plan_message(ref, 1, reply),))
        return Exists(reply["status"]) if reply.word == "exists" else Conflict()

    def claim_plan(self, ref: RunRef, generation: int, claim_id: str, worker: str) -> PlanClaim:
        """The lease for planning; takes over a lease that has lapsed. Exhausted: expire_plan ends it."""
        reply = self._call("claim_plan", ref, generation=generation, claim_id=claim_id, worker=worker)
        return _PLAN_CLAIMS[reply.word](reply)

    def admit_plan(self, ref: RunRef, fence: int, claim_id: str, plan: NewPlan) -> Admitted | Fenced | UnknownRun:
        """Store an accepted plan's steps, all at once, and free those that need nothing."""
        rest = [word for step in plan.steps for word in step_words(step)]
        reply = self._call(
            "admit_plan",
            ref,
            rest=rest,
            fence=fence,
            claim_id=claim_id,
            plan_id=plan.plan_id,
            plan_hash=plan.plan_hash,
            max_parallel=plan.max_parallel,
            inputs_bytes=plan.inputs_bytes,
            total=len(plan.steps),
        )
        if reply.word == "admitted":
            return Admitted(publish_list(reply, ref), reply["total"])
        return _fenced(reply)

    def reject_plan(
        self, ref: RunRef, fence: int, claim_id: str, reason: str, error_text: str
    ) -> Rejected | Fenced | UnknownRun:
        """The planner's answer was refused for good: the run is dead_lettered. error_text: what is wrong with it."""
        reply = self._call("reject_plan", ref, fence=fence, claim_id=claim_id, reason=reason, error=error_text)
        return Rejected() if reply.word == "rejected" else _fenced(reply)

    def fail_plan(
        self, ref: RunRef, fence: int, claim_id: str, error_text: str, retryable: bool, delay_ms: int = 0
    ) -> RetryAt | Failed | Fenced | UnknownRun:
        """The planner raised or was not reachable. delay_ms: the least wait before it is asked again."""
        reply = self._call(
            "fail_plan",
            ref,
            fence=fence,
            claim_id=claim_id,
            error=error_text,
            retryable=int(retryable),
            delay_ms=delay_ms,
        )
        if reply.word == "retry_at":
            return RetryAt(reply["at_ms"])
        return Failed(publish_list(reply, ref)) if reply.word == "failed" else _fenced(reply)

    def expire_plan(self, ref: RunRef) -> Again | Failed | NotDue | UnknownRun:
        """A planning lease has lapsed: the planner is asked again, or the run has failed."""
        reply = self._call("expire_plan", ref)
        if reply.word == "again":
            return Again((_plan_message(ref, reply["generation"], reply),))
        if reply.word == "failed":
            return Failed(publish_list(reply, ref))
        return NotDue(reply["status"]) if reply.word == "not_due" else UnknownRun()

    # ---- end

    def settle(self, ref: RunRef, generation: int, *, undo: bool = True) -> Settling:
        """Close the run if nothing of it moves any more, or begin to undo it; a closed run answers Settled again.

        undo: whether undoing may begin. If not, a run whose steps are to be undone answers Owing, and does not move.
        """
        reply = self._call("settle", ref, generation=generation, undo=int(undo))
        if reply.word == "settled":
            return Settled(**reply.fields)
        if reply.word == "compensating":
            return Compensating(publish_list(reply, ref))
        return Owing() if reply.word == "owing" else _not_over(reply)

    def confirm_end(self, ref: RunRef, generation: int) -> Confirmed | Waiting | OtherGeneration | UnknownRun:
        """The ledger has the end of this generation: the run leaves `due`, its keys get their last lifetime."""
        reply = self._call("confirm_end", ref, generation=generation)
        return Confirmed() if reply.word == "confirmed" else _not_over(reply)

    def deadline(self, ref: RunRef) -> Decision:
        """End the run if its time is up."""
        return self._decision("deadline", ref)

    # ---- people's decisions; each names the generation it was made in, and is dropped in another. One that is repeated
    # with the same call_id answers what it answered; without one, every call is a decision of its own.

    def cancel(self, ref: RunRef, generation: int, call_id: str | None = None) -> Decision:
        """End the run because somebody decided so in this generation."""
        return self._decision("cancel", ref, generation=generation, call_id=call_id)

    def pause(
        self, ref: RunRef, generation: int, by: str, call_id: str | None = None
    ) -> Paused | TooLate | OtherGeneration | UnknownRun:
        """Start nothing new. What runs goes on, and so does the deadline."""
        reply = self._call("pause", ref, generation=generation, by=by, call_id=call_id)
        return Paused(reply["since"]) if reply.word == "paused" else _undecided(reply)

    def resume(
        self, ref: RunRef, generation: int, by: str, call_id: str | None = None
    ) -> Resumed | TooLate | OtherGeneration | UnknownRun:
        """Go on after pause. TooLate: it was not paused."""
        reply = self._call("resume", ref, generation=generation, by=by, call_id=call_id)
        return Resumed(_with_plan(reply, ref)) if reply.word == "resumed" else _undecided(reply)

    def approve(
        self, ref: RunRef, step_id: str, generation: int, by: str, *, allowed: bool, call_id: str | None = None
    ) -> Settlement | Noted:
        """Say whether a step may start. Noted: its turn has not come yet. A refusal fails the step and ends the run."""
        said = {"step_id": step_id, "generation": generation, "by": by, "allowed": int(allowed)}
        reply = self._call("approve", ref, call_id=call_id, **said)
        return Noted() if reply.word == "noted" else _settlement(reply, ref)

    def resolve(
        self,
        ref: RunRef,
        step_id: str,
        fence: int,
        generation: int,
        by: str,
        *,
        landed: bool,
        result_text: str = "null",
        call_id: str | None = None,
    ) -> Settlement | NotClosed:
        """Say what became of the attempt with this fence, which left its step in doubt. Its effect row must say so
        before."""
        reply = self._call(
            "resolve",
            ref,
            step_id=step_id,
            fence=fence,
            generation=generation,
            by=by,
            landed=int(landed),
            result_text=result_text,
            call_id=call_id,
        )
        return NotClosed() if reply.word == "not_closed" else _settlement(reply, ref)

    def retry(
        self,
        ref: RunRef,
        generation: int,
        by: str,
        deadline_ms: int,
        again: Collection[str] = (),
        new_keys: Collection[str] = (),
        call_id: str | None = None,
    ) -> Retry:
        """Start an ended run over, in a new generation. TooLate: it has not ended, or something was undone.

        again: completed steps that are not kept; new_keys: steps that get another idempotency key.
        """
        named = {"generation": generation, "by": by, "deadline_ms": deadline_ms, "again_count": len(again)}
        reply = self._call("retry", ref, rest=[*again, *new_keys], call_id=call_id, **named)
        if reply.word == "retried":
            return Retried(reply["generation"], reply["total"], _with_plan(reply, ref), bool(reply["queue"]))
        match reply.word:
            case "in_doubt":
                return StillInDoubt(reply["step_id"])
            case "no_step":
                return NoStep(reply["step_id"])
            case "kept":
                return Kept(reply["step_id"])
        return _undecided(reply)

    def undo_again(
        self, ref: RunRef, step_id: str, fence: int, by: str, call_id: str | None = None
    ) -> Undoing | NotDue | TooLate | OtherGeneration | UnknownRun:
        """Have a step undone once more whose undo with this fence was given up. NotDue: something has come of it
        since; TooLate: the run was not undone, or all of it was."""
        reply = self._call("undo_again", ref, step_id=step_id, fence=fence, by=by, call_id=call_id)
        if reply.word == "undoing":
            return Undoing(reply["generation"], publish_list(reply, ref))
        return NotDue(reply["status"]) if reply.word == "not_due" else _undecided(reply)

    # ---- sweep

    def wait_over(self, ref: RunRef, step_id: str) -> Settlement:
        """Nobody has answered for a step in time: it counts as failure."""
        return _settlement(self._call("wait_over", ref, step_id=step_id), ref)

    def retry_due(self, ref: RunRef, step_id: str | None) -> Verdict | NotDue:
        """A wait is over: the step (None: the planner) is sent again."""
        reply = self._call("retry_due", ref, step_id=step_id)
        if reply.word == "not_due":
            return NotDue(reply["status"])
        if reply.word == "plan_again":
            return Again((_plan_message(ref, reply["generation"], reply),))
        return verdict(reply, ref)

    def check_dispatch(
        self, ref: RunRef, step_id: str | None, queue_empty: bool
    ) -> Republish | Later | NotDue | UnknownRun:
        """Was the step's message (None: the plan's) lost, or is the backlog long?"""
        reply = self._call("check_dispatch", ref, step_id=step_id, queue_empty=int(queue_empty))
        if reply.word == "later":
            return Later(reply["at_ms"])
        if reply.word == "not_due":
            return NotDue(reply["status"])
        if reply.word != "republish":
            return UnknownRun()
        message = (
            _plan_message(ref, reply["generation"], reply) if step_id is None else _step_message(ref, step_id, reply)
        )
        return Republish((message,), reply["checks"])

    def begin_pass(self, shard: int, duty: Pass, interval_ms: int) -> bool:
        """May a pass over this shard start? Not while another is younger than half the interval."""
        return self._scripts.call("begin_pass", shard, duty=duty, interval_ms=interval_ms).word == "ok"

    def take_due(self, shard: int, duty: Duty, limit: int) -> tuple[Due, ...] | Resting:
        """Up to limit members whose time has come. What the caller does not finish comes again after TAKEN_MS."""
        reply = self._scripts.call("take_due", shard, duty=duty, limit=limit, again_ms=TAKEN_MS)
        if reply.word == "resting":
            return Resting(reply["until_ms"])
        return tuple(Due(*of_member(name)) for name in reply["members"])

    def _call(self, name: str, ref: RunRef, *, call_id: str | None = None, **args: Any) -> Reply:
        named = args if call_id is None else {**args, "call_id": call_id}
        return self._scripts.call(name, self._scripts.keys.shard_of(ref.run_id), ref, **named)

    def _decision(self, name: str, ref: RunRef, **args: Any) -> Decision:
        reply = self._call(name, ref, **args)
        match reply.word:
            case "ending":
                generation = reply["generation"]
                return Ending((settle_message(ref, generation),) if reply["settle"] else ())
            case "too_late":
                return TooLate(reply["status"])
            case "waiting":
                return Waiting(reply["status"])
            case "other_generation":
                return OtherGeneration(reply["generation"])
        return UnknownRun()


def _undecided(reply: Reply) -> TooLate | OtherGeneration | UnknownRun:
    if reply.word == "too_late":
        return TooLate(reply["status"])
    return OtherGeneration(reply["generation"]) if reply.word == "other_generation" else UnknownRun()


def _not_over(reply: Reply) -> Waiting | OtherGeneration | UnknownRun:
    if reply.word == "waiting":
        return Waiting(reply["status"])
    return OtherGeneration(reply["generation"]) if reply.word == "other_generation" else UnknownRun()


def _settlement(reply: Reply, ref: RunRef) -> Settlement:
    if reply.word == "not_due":
        return NotDue(reply["status"])
    return OtherGeneration(reply["generation"]) if reply.word == "other_generation" else verdict(reply, ref)


def _with_plan(reply: Reply, ref: RunRef) -> Publish:
    """The steps to be sent, or the plan message where the run has none yet."""
    if reply["queue"]:
        return (_plan_message(ref, reply["generation"], reply),)
    return publish_list(reply, ref)


def _plan_message(ref: RunRef, generation: int, reply: Reply) -> Dispatch:
    return Dispatch("plan", ref, generation, None, 0, reply["queue"], reply["limit_ms"])


def _step_message(ref: RunRef, step_id: str, reply: Reply) -> Dispatch:
    return Dispatch(reply["kind"], ref, reply["generation"], step_id, reply["index"], reply["queue"], reply["limit_ms"])


_PLAN_CLAIMS: dict[str, Callable[[Reply], PlanClaim]] = {
    "exhausted": lambda reply: Exhausted(reply["attempts"]),
    "granted": lambda reply: PlanGranted(**granted_fields(reply)),
    "busy": lambda _reply: Busy(),
    "stored": lambda _reply: Stored(),
    "stop": lambda reply: Stop(reply["status"]),
    "not_due": lambda reply: NotDue(reply["status"]),
    "other_generation": lambda reply: OtherGeneration(reply["generation"]),
    "unknown": lambda _reply: UnknownRun(),
}


def _fenced(reply: Reply) -> Fenced | UnknownRun:
    return Fenced(reply["current"]) if reply.word == "fenced" else UnknownRun()
