"""The step protocol as it is meant, without keys, counters, slots or times: what each call answers, and what it leaves.

Written from the rules and not from the scripts: here is no `due`, no place in a list, no count to go wrong. Every call
of an exploration is held against it, on the very content it met; docs/explorer.md tells what that shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.store.views import UndoState
from schemas.states import RUN_TERMINAL
from tests.explorer.stored import Call, Content
from tests.support.stores import START

IDLE = ("pending", "dispatched", "backoff")
GOES_ON = ("running", "failing")
WITHDRAWN = ("dispatched", "backoff")
SETTLEABLE = (*GOES_ON, "failed", "cancelled")


@dataclass(frozen=True)
class Undo:
    """state: waiting (begun again, not sent), dispatched, running, backoff or over."""

    state: str
    tries: int = 0
    holder: int = 0
    dead: bool = False
    fence: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Step:
    """most: attempts; touched: some attempt may have had its effect; dead: the holder's death is proven."""

    effect: str
    needs: tuple[str, ...]
    most: int
    status: str
    touched: bool = False
    tries: int = 0
    holder: int = 0
    dead: bool = False
    undo: Undo | None = None
    kept: bool = field(default=True, compare=False)
    worker: str = field(default="", compare=False)
    undoer: str = field(default="", compare=False)

    @property
    def owes(self) -> bool:
        """Whether it is to be undone."""
        return self.status in ("in_doubt", "compensating") or (self.status == "completed" and self.effect != "pure")


@dataclass(frozen=True)
class Run:
    """compensates: what it did is undone if it fails; asks: a person is asked about what is in doubt."""

    status: str
    generation: int
    fence: int
    steps: dict[str, Step]
    compensates: bool
    asks: bool
    why: str = field(default="", compare=False)
    paused: bool = field(default=False, compare=False)

    def put(self, step_id: str, **changes: Any) -> "Run":
        return replace(self, steps={**self.steps, step_id: replace(self.steps[step_id], **changes)})

    def all(self, *statuses: str) -> bool:
        return all(step.status in statuses for step in self.steps.values())


# what a call answers, None where several words say the same; and what it leaves
Meant = tuple[str | None, Run]


def meaning(content: Content) -> Run:
    """What a content of the store says."""
    steps = {step_id: _step(content, step_id) for step_id in content.steps}
    run = content.run
    return Run(
        run.status, run.generation, run.fence, steps, run.on_failure == "compensate", run.on_doubt == "wait", run.reason
    )


def _step(content: Content, step_id: str) -> Step:
    state = content.steps[step_id]
    undo = _undo(state.undo) if state.undo else None
    return Step(
        state.effect,
        state.needs,
        state.max_attempts,
        state.status,
        state.touched,
        state.attempt,
        state.holder,
        state.dead,
        undo,
        state.lease_end > START,
        state.worker or "",
        (state.undo and state.undo.worker) or "",
    )


def _undo(state: UndoState) -> Undo:
    return Undo(state.state, state.attempt, state.holder, state.dead, state.fence)


def differences(call: Call) -> list[str]:
    """Where a call answered or left something else than it should."""
    if call.op.name not in CALLS:
        before, after = meaning(call.before), meaning(call.after)
        return [] if before == after else [f"model: {call.op.name} changed the run"]
    word, after = CALLS[call.op.name](meaning(call.before), call.op.more)
    found = call.answer.value.word
    wrong = [] if word in (None, found) else [f"model: {call.op.name} answered {found}, not {word}"]
    left = meaning(call.after)
    if left != after:
        wrong.append(f"model: {call.op.name} ({found}) left {_told(left, after)}")
    return wrong


def _told(left: Run, meant: Run) -> str:
    if (left.status, left.generation, left.fence) != (meant.status, meant.generation, meant.fence):
        return f"run {left.status}/{left.generation}/{left.fence}, not {meant.status}/{meant.generation}/{meant.fence}"
    wrong = [step_id for step_id, step in left.steps.items() if step != meant.steps[step_id]]
    return "; ".join(f"{step_id} {left.steps[step_id]}, not {meant.steps[step_id]}" for step_id in wrong)


# ---- doing


def claim_step(run: Run, said: dict[str, Any]) -> Meant:
    step_id = said["step_id"]
    step = run.steps[step_id]
    if run.generation != said["generation"]:
        return "other_generation", run
    if step.status == "completed":
        return "completed", run
    if run.status != "running":
        return "stop", run
    if step.status == "running":
        if not step.dead:
            return "busy", run
        if step.effect != "pure" or step.tries >= step.most:
            return "close_first", run
    elif step.status != "dispatched":
        return "not_due", run
    fence = run.fence + 1
    return "granted", replace(run, fence=fence).put(
        step_id, status="running", tries=step.tries + 1, holder=fence, dead=False
    )


def complete_step(run: Run, said: dict[str, Any]) -> Meant:
    if not _holds(run, said):
        return None, run
    return "committed", _completed(run, said["step_id"])


def fail_step(run: Run, said: dict[str, Any]) -> Meant:
    if not _holds(run, said):
        return None, run
    return _ended(run, said, may_retry=bool(said["retryable"]), again=("backoff", "retry_at"))


def hand_back(run: Run, said: dict[str, Any]) -> Meant:
    if not _holds(run, said):
        return None, run
    step_id = said["step_id"]
    run = run.put(step_id, tries=run.steps[step_id].tries - 1)
    return _ended(run, said, may_retry=True, again=("backoff", "retry_at"))


def expire_lease(run: Run, said: dict[str, Any]) -> Meant:
    step = run.steps[said["step_id"]]
    if step.status != "running" or step.holder != said["fence"]:
        return None, run
    if step.effect == "pure" and step.kept and not step.dead:
        return "not_lapsed", run
    return _ended(run, said, may_retry=True, again=("dispatched", "again"))


def _holds(run: Run, said: dict[str, Any]) -> bool:
    step = run.steps[said["step_id"]]
    return step.status == "running" and step.holder == said["fence"] and run.status in GOES_ON


def _ended(run: Run, said: dict[str, Any], *, may_retry: bool, again: tuple[str, str]) -> Meant:
    """A claim ends without a commit. The one decision of the protocol: by what is known, the run, and the attempts."""
    step_id, fact = said["step_id"], said["fact"]
    if fact == "landed":
        return "committed", _completed(run, step_id)
    step = run.steps[step_id]
    touched = step.touched or fact == "maybe"
    run = run.put(step_id, touched=touched, holder=0, dead=False)
    safe = not (step.effect == "once" and fact == "maybe")
    if run.status == "running" and may_retry and step.tries < step.most and safe:
        return again[1], run.put(step_id, status=again[0])
    if touched:
        run = run.put(step_id, status="in_doubt")
        return "in_doubt", run if run.asks else _leave_running(run)
    if run.status != "running":
        return "skipped", run.put(step_id, status="skipped")
    return "failed", _leave_running(run.put(step_id, status="failed"))


def _completed(run: Run, step_id: str) -> Run:
    run = run.put(step_id, status="completed", holder=0, dead=False)
    if run.status != "running":
        return run
    for name, step in run.steps.items():
        if step.status == "pending" and all(run.steps[need].status == "completed" for need in step.needs):
            run = run.put(name, status="dispatched")
    return run


def _leave_running(run: Run) -> Run:
    """What never started is skipped; what some attempt may have done stays in doubt; who runs goes on."""
    if run.status != "running":
        return run
    for name, step in run.steps.items():
        if step.status in IDLE:
            run = run.put(name, status="in_doubt" if step.touched else "skipped")
    return replace(run, status="failing")


def renew_lease(run: Run, said: dict[str, Any]) -> Meant:
    """None but who holds, and whose child is not known to be dead. An undo is not told to stop."""
    if said["kind"] == "undo":
        undo = run.steps[said["step_id"]].undo
        return ("ok" if _undoes(run, said) and undo and not undo.dead else "lost"), run
    step = run.steps[said["step_id"]]
    if step.status != "running" or step.holder != said["fence"] or step.dead:
        return "lost", run
    return ("ok" if run.status == "running" else "stop"), run


def end_claim(run: Run, said: dict[str, Any]) -> Meant:
    step_id = said["step_id"]
    step = run.steps[step_id]
    if step.status == "running" and step.worker == said["worker"]:
        return "ended", run.put(step_id, dead=True)
    undo = step.undo
    if step.status == "compensating" and undo and undo.state == "running" and step.undoer == said["worker"]:
        return "ended", run.put(step_id, undo=replace(undo, dead=True))
    return "other", run


def retry_due(run: Run, said: dict[str, Any]) -> Meant:
    step_id = said["step_id"]
    step = run.steps[step_id]
    if step.status == "compensating" and step.undo and step.undo.state == "backoff":
        return "again", run.put(step_id, undo=replace(step.undo, state="dispatched"))
    if step.status == "backoff" and run.status == "running":
        return "again", run.put(step_id, status="dispatched")
    return "not_due", run


# ---- ending


def settle(run: Run, said: dict[str, Any]) -> Meant:
    if run.generation != said["generation"]:
        return "other_generation", run
    if run.status in RUN_TERMINAL:
        return "settled", run
    if run.status == "running" and run.all("completed"):
        return "settled", replace(run, status="succeeded")
    if run.status == "failing" and not any(step.status == "running" for step in run.steps.values()):
        if run.compensates and any(step.owes for step in run.steps.values()):
            return ("compensating", _turns(replace(run, status="compensating"))) if said["undo"] else ("owing", run)
        return "settled", replace(run, status="cancelled" if run.why == "cancelled" else "failed")
    if run.status == "compensating" and not any(step.owes for step in run.steps.values()):
        given_up = any(step.status == "compensation_failed" for step in run.steps.values())
        return "settled", replace(run, status="compensation_failed" if given_up else "compensated")
    return "waiting", run


def cancel(run: Run, said: dict[str, Any]) -> Meant:
    """None: the same decision, repeated, answers what it answered; another is of no generation or time any more."""
    if run.generation != said["generation"] or run.status != "running":
        return None, run
    return ("too_late", run) if run.all("completed") else ("ending", _leave_running(run))


def deadline(run: Run, said: dict[str, Any]) -> Meant:
    return cancel(run, {"generation": run.generation})


def wait_over(run: Run, said: dict[str, Any]) -> Meant:
    step = run.steps[said["step_id"]]
    return (
        ("in_doubt", _leave_running(run)) if step.status == "in_doubt" and run.status == "running" else ("not_due", run)
    )


# ---- undoing


def _turns(run: Run) -> Run:
    """The turn of a step comes when nothing that needed it, directly or through others, is still to be undone."""
    for name, step in run.steps.items():
        waits = step.undo is None or step.undo.state == "waiting"
        if step.owes and waits and not _needed(run, name):
            tries = step.undo.tries if step.undo else 0
            run = run.put(name, status="compensating", undo=Undo("dispatched", tries))
    return run


def _needed(run: Run, step_id: str) -> bool:
    return any(step_id in step.needs and (step.owes or _needed(run, name)) for name, step in run.steps.items())


def claim_undo(run: Run, said: dict[str, Any]) -> Meant:
    step_id = said["step_id"]
    step = run.steps[step_id]
    if run.generation != said["generation"]:
        return "other_generation", run
    if step.status == "compensated":
        return "completed", run
    if run.status != "compensating":
        return "stop", run
    if step.undo is None or step.status != "compensating":
        return "not_due", run
    if step.undo.state == "running":
        return ("close_first" if step.undo.dead else "busy"), run
    if step.undo.state != "dispatched":
        return "not_due", run
    fence = run.fence + 1
    return "granted", replace(run, fence=fence).put(step_id, undo=Undo("running", step.undo.tries + 1, fence))


def complete_undo(run: Run, said: dict[str, Any]) -> Meant:
    return ("committed", _undone(run, said["step_id"], "compensated")) if _undoes(run, said) else (None, run)


def fail_undo(run: Run, said: dict[str, Any]) -> Meant:
    if not _undoes(run, said):
        return None, run
    step_id = said["step_id"]
    if said["reason"]:
        undo = run.steps[step_id].undo
        assert undo is not None
        run = run.put(step_id, undo=replace(undo, tries=undo.tries - 1))
    return _undo_ended(
        run, said, may_retry=bool(said["reason"]) or bool(said["retryable"]), again=("backoff", "retry_at")
    )


def expire_undo(run: Run, said: dict[str, Any]) -> Meant:
    if not _undoes(run, said):
        return None, run
    state = "waiting" if _needed(run, said["step_id"]) else "dispatched"  # one that needed it is undone again meanwhile
    return _undo_ended(run, said, may_retry=True, again=(state, "again"))


def _undoes(run: Run, said: dict[str, Any]) -> bool:
    step = run.steps[said["step_id"]]
    undo = step.undo
    return (
        step.status == "compensating" and undo is not None and undo.state == "running" and undo.holder == said["fence"]
    )


def _undo_ended(run: Run, said: dict[str, Any], *, may_retry: bool, again: tuple[str, str]) -> Meant:
    step_id, fact = said["step_id"], said["fact"]
    step, undo = run.steps[step_id], run.steps[step_id].undo
    assert undo is not None
    if fact == "landed":
        return "committed", _undone(run, step_id, "compensated")
    if may_retry and undo.tries < max(2, step.most) and not (step.effect == "once" and fact == "maybe"):
        return again[1], run.put(step_id, undo=Undo(again[0], undo.tries))
    return "given_up", _undone(run, step_id, "compensation_failed")


def _undone(run: Run, step_id: str, status: str) -> Run:
    undo = run.steps[step_id].undo
    assert undo is not None
    return _turns(run.put(step_id, status=status, undo=Undo("over", undo.tries)))


# ---- people


def resolve(run: Run, said: dict[str, Any]) -> Meant:
    step_id = said["step_id"]
    if run.generation != said["generation"]:
        return "other_generation", run
    if run.status not in SETTLEABLE or run.steps[step_id].status != "in_doubt":
        return None, run
    if said["landed"]:
        return "committed", _completed(run, step_id)
    if run.status == "running":
        return "again", run.put(step_id, status="dispatched", touched=False, tries=0)
    return "skipped", run.put(step_id, status="skipped", touched=False)


def retry(run: Run, said: dict[str, Any]) -> Meant:
    """A new generation: what is completed stays, and what is known of effects; attempts begin anew."""
    if run.generation != said["generation"] or run.status not in ("failed", "cancelled"):
        return None, run
    if any(step.status == "in_doubt" and step.effect == "once" for step in run.steps.values()):
        return "in_doubt", run
    run = replace(run, status="running", generation=run.generation + 1)
    for name, step in run.steps.items():
        if step.status != "completed":
            ready = all(run.steps[need].status == "completed" for need in step.needs)
            run = run.put(name, status="dispatched" if ready else "pending", tries=0, holder=0, dead=False)
    return "retried", run


def undo_again(run: Run, said: dict[str, Any]) -> Meant:
    """The undo of this fence, which was given up, once more, with all its attempts; after an end in a new generation.
    Undos that are not under way wait again for those of steps that needed theirs.
    """
    step_id = said["step_id"]
    undo = run.steps[step_id].undo
    if run.status not in ("compensating", "compensation_failed") or undo is None:
        return None, run
    if run.steps[step_id].status != "compensation_failed" or undo.fence != int(said["fence"]):
        return None, run
    if run.status == "compensation_failed":
        run = replace(run, status="compensating", generation=run.generation + 1)
    run = run.put(step_id, status="compensating", undo=Undo("waiting"))
    for name, step in run.steps.items():
        if step.undo and step.undo.state in WITHDRAWN and _needed(run, name):
            run = run.put(name, undo=replace(step.undo, state="waiting"))
    return "undoing", _turns(run)


CALLS: dict[str, Callable[[Run, dict[str, Any]], Meant]] = {
    call.__name__: call
    for call in (
        *(claim_step, complete_step, fail_step, hand_back, expire_lease, renew_lease, end_claim, retry_due),
        *(settle, cancel, deadline, wait_over),
        *(claim_undo, complete_undo, fail_undo, expire_undo),
        *(resolve, retry, undo_again),
    )
}
