"""The idempotency guard: who may try a step, and what becomes of a try. Each call is one script, one round trip.

Every call answers words (orchestrator.store.replies) and raises only StoreUnavailable, StoreMoved and StoreAmnesia.
"""

from collections.abc import Callable
from typing import Any, Literal

from orchestrator.store.replies import (
    Again,
    Busy,
    CloseFirst,
    Committed,
    Completed,
    Dispatch,
    Ended,
    Failed,
    Fenced,
    Granted,
    InDoubt,
    InputsTooLarge,
    Lost,
    NotDue,
    NotLapsed,
    Other,
    OtherGeneration,
    Publish,
    Renewed,
    RetryAt,
    Skipped,
    Stop,
    StopNow,
    TooOften,
    UndoGivenUp,
    UndoGranted,
    UnknownRun,
)
from orchestrator.store.scripts import Reply, Scripts
from schemas.ids import RunRef
from schemas.states import Fact

Refused = Busy | Completed | Stop | NotDue | CloseFirst | OtherGeneration | UnknownRun
Claim = Granted | InputsTooLarge | Refused
UndoClaim = UndoGranted | Refused
Kind = Literal["do", "undo"]
Verdict = RetryAt | Again | Committed | Failed | Skipped | InDoubt | TooOften | Fenced | UnknownRun

UndoVerdict = Verdict | UndoGivenUp


class Guard:
    """Claims of steps: asked for, renewed, ended."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def claim_step(self, ref: RunRef, step_id: str, *, generation: int, claim_id: str, worker: str) -> Claim:
        """Ask for the right to run one attempt. claim_id is random per task execution, so that a repeat after a lost
        reply gets its own grant again; worker is host:pid:start. The attempt is counted here, before user code."""
        reply = self._call("claim_step", ref, step_id, generation=generation, claim_id=claim_id, worker=worker)
        return _claim(reply, ref, generation)

    def renew_lease(
        self, ref: RunRef, step_id: str | None, fence: int, claim_id: str, kind: Kind = "do"
    ) -> Renewed | Lost | StopNow:
        """The holder lives; also after a lapse that nobody has ended. step_id None: the lease of planning."""
        reply = self._call("renew_lease", ref, step_id, fence=fence, claim_id=claim_id, kind=kind)
        if reply.word == "ok":
            return Renewed(reply["lease_end"])
        return StopNow(reply["reason"]) if reply.word == "stop" else Lost()

    def complete_step(self, ref: RunRef, step_id: str, fence: int, claim_id: str, result_text: str) -> Verdict:
        """Commit: Committed, or Fenced (thrown away). result_text: canonical JSON, within the policy's result_bytes."""
        return self._verdict("complete_step", ref, step_id, fence=fence, claim_id=claim_id, result_text=result_text)

    def fail_step(
        self,
        ref: RunRef,
        step_id: str,
        fence: int,
        claim_id: str,
        fact: Fact,
        error_text: str,
        retryable: bool,
        result_text: str = "",
        delay_ms: int = 0,
    ) -> Verdict:
        """The attempt raised. fact: what closing its effect row answered; landed completes it with result_text.
        delay_ms: the least wait before the next one."""
        return self._verdict(
            "fail_step",
            ref,
            step_id,
            fence=fence,
            claim_id=claim_id,
            fact=fact.value,
            error=error_text,
            retryable=int(retryable),
            result_text=result_text,
            delay_ms=delay_ms,
        )

    def hand_back(
        self,
        ref: RunRef,
        step_id: str,
        fence: int,
        claim_id: str,
        fact: Fact,
        reason: str,
        delay_ms: int,
        max_times: int,
        min_age_ms: int,
        error_text: str,
        result_text: str = "",
    ) -> Verdict:
        """Not now: the attempt is given back uncounted and due in delay_ms. TooOften when this reason came more than
        max_times and for min_age_ms: the step has failed."""
        return self._verdict(
            "hand_back",
            ref,
            step_id,
            fence=fence,
            claim_id=claim_id,
            fact=fact.value,
            reason=reason,
            delay_ms=delay_ms,
            max_times=max_times,
            min_age_ms=min_age_ms,
            error=error_text,
            result_text=result_text,
        )

    def end_claim(self, ref: RunRef, step_id: str | None, worker: str) -> Ended | Other | UnknownRun:
        """The worker's parent has reaped the child `worker`: its claim counts as lapsed, its death as proven."""
        reply = self._call("end_claim", ref, step_id, worker=worker)
        if reply.word == "ended":
            return Ended(reply["fence"])
        return Other() if reply.word == "other" else UnknownRun()

    def expire_lease(
        self, ref: RunRef, step_id: str, fence: int, fact: Fact, result_text: str = ""
    ) -> Verdict | NotLapsed:
        """End a claim whose holder is gone, after closing its effect row. Again: the step is dispatched at once."""
        reply = self._call("expire_lease", ref, step_id, fence=fence, fact=fact.value, result_text=result_text)
        return NotLapsed(reply["lease_end"]) if reply.word == "not_lapsed" else verdict(reply, ref)

    # ---- undoing

    def claim_undo(self, ref: RunRef, step_id: str, *, generation: int, claim_id: str, worker: str) -> UndoClaim:
        """Ask for the right to undo a step; granted once everything that needed it is undone."""
        reply = self._call("claim_undo", ref, step_id, generation=generation, claim_id=claim_id, worker=worker)
        if reply.word == "granted":
            return _undo_granted(reply)
        return _UNDO_CLAIMS[reply.word](reply)

    def complete_undo(self, ref: RunRef, step_id: str, fence: int, claim_id: str) -> UndoVerdict:
        """The step is undone: Committed, or Fenced."""
        return self._undo_verdict("complete_undo", ref, step_id, fence=fence, claim_id=claim_id)

    def fail_undo(
        self,
        ref: RunRef,
        step_id: str,
        fence: int,
        claim_id: str,
        fact: Fact,
        error_text: str,
        retryable: bool,
        reason: str = "",
        delay_ms: int = 0,
        max_times: int = 0,
        min_age_ms: int = 0,
        most_age_ms: int = 0,
    ) -> UndoVerdict:
        """The undo raised. fact: what closing its row (kind undo) answered. With a reason it is given back as by
        hand_back; it is given up when that came too often, or for most_age_ms (0: however long)."""
        return self._undo_verdict(
            "fail_undo",
            ref,
            step_id,
            fence=fence,
            claim_id=claim_id,
            fact=fact.value,
            error=error_text,
            retryable=int(retryable),
            reason=reason,
            delay_ms=delay_ms,
            max_times=max_times,
            min_age_ms=min_age_ms,
            most_age_ms=most_age_ms,
        )

    def expire_undo(self, ref: RunRef, step_id: str, fence: int, fact: Fact) -> UndoVerdict:
        """End an undo's claim whose holder is gone, after closing its row."""
        return self._undo_verdict("expire_undo", ref, step_id, fence=fence, fact=fact.value)

    def _undo_verdict(self, name: str, ref: RunRef, step_id: str, **args: Any) -> UndoVerdict:
        reply = self._call(name, ref, step_id, **args)
        return UndoGivenUp(publish_list(reply, ref)) if reply.word == "given_up" else verdict(reply, ref)

    def _call(self, name: str, ref: RunRef, step_id: str | None, **args: Any) -> Reply:
        return self._scripts.call(name, self._scripts.keys.shard_of(ref.run_id), ref, step_id=step_id, **args)

    def _verdict(self, name: str, ref: RunRef, step_id: str, **args: Any) -> Verdict:
        return verdict(self._call(name, ref, step_id, **args), ref)


def settle_message(ref: RunRef, generation: int) -> Dispatch:
    """The message that has the run looked at and closed."""
    return Dispatch("settle", ref, generation)


def publish_list(reply: Reply, ref: RunRef) -> Publish:
    """The messages a reply asks for: freed steps, and `settle` when nothing of the run moves any more."""
    generation = reply.fields.get("generation", 1)
    steps = tuple(
        Dispatch(kind, ref, generation, step_id, index, queue, limit_ms)
        for step_id, index, queue, limit_ms, kind in reply.fields.get("publish", ())
    )
    return (*steps, settle_message(ref, generation)) if reply.fields.get("settle") else steps


def _claim(reply: Reply, ref: RunRef, generation: int) -> Claim:
    make = _CLAIMS.get(reply.word)
    if make is not None:
        return make(reply)
    publish = (settle_message(ref, generation),)
    assert reply.word == "inputs_too_large", reply.word
    return InputsTooLarge(reply["bytes"], reply["limit"], publish)


def granted_fields(reply: Reply) -> dict[str, Any]:
    """A grant's fields as its dataclass names them."""
    fields = dict(reply.fields)
    fields["policy_text"] = fields.pop("policy")
    fields["session_id"] = fields["session_id"] or None
    return fields


def _granted(reply: Reply) -> Granted:
    fields = granted_fields(reply)
    flat = fields["inputs"]
    fields["inputs"] = dict(zip(flat[::2], flat[1::2], strict=True))
    return Granted(**fields)


def _undo_granted(reply: Reply) -> UndoGranted:
    fields = dict(reply.fields)
    done_text = fields.pop("done") or None
    done_fence = fields.pop("done_fence")
    return UndoGranted(_granted(Reply(reply.word, fields)), done_text, done_fence)


_UNDO_CLAIMS: dict[str, Callable[[Reply], Refused]] = {
    "busy": lambda _reply: Busy(),
    "completed": lambda reply: Completed(reply["fence"]),
    "stop": lambda reply: Stop(reply["status"]),
    "not_due": lambda reply: NotDue(reply["status"]),
    "close_first": lambda reply: CloseFirst(reply["fence"], reply["effect"], reply["token"]),
    "other_generation": lambda reply: OtherGeneration(reply["generation"]),
    "unknown": lambda _reply: UnknownRun(),
}
_CLAIMS: dict[str, Callable[[Reply], Claim]] = {"granted": _granted, **_UNDO_CLAIMS}

_VERDICTS: dict[str, Callable[[Reply, Publish], Verdict]] = {
    "committed": lambda reply, publish: Committed(publish, bool(reply["settle"]), reply["version"]),
    "retry_at": lambda reply, publish: RetryAt(reply["at_ms"], publish),
    "again": lambda _reply, publish: Again(publish),
    "failed": lambda _reply, publish: Failed(publish),
    "skipped": lambda _reply, publish: Skipped(publish),
    "in_doubt": lambda _reply, publish: InDoubt(publish),
    "too_often": lambda _reply, publish: TooOften(publish),
    "fenced": lambda reply, _publish: Fenced(reply["current"]),
    "unknown": lambda _reply, _publish: UnknownRun(),
}


def verdict(reply: Reply, ref: RunRef) -> Verdict:
    """What became of a claim that ended."""
    return _VERDICTS[reply.word](reply, publish_list(reply, ref))
