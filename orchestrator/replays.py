"""What a replay of a dead letter is, by its kind: looked at before anybody decides, and carried out afterwards.

A plan or a submission is submitted again, as a run whose id derives from the letter; a step is what its run is started
over for. Looking writes nothing: it raises DecisionRefused, SubmissionRefused or PayloadDrift, naming the fields. What
is carried out may be repeated, and may come too late: then it says so in its outcome.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator import decisions, late_effects, submission
from orchestrator.admission import validate_handoff
from orchestrator.admission.catalogue import Catalogue
from orchestrator.decisions import Desk
from orchestrator.errors import DecisionRefused, NotFound, SubmissionRefused
from orchestrator.ledger import LedgerRun, LetterDecision
from orchestrator.policies import FROM_BROKER
from orchestrator.settings import settings
from orchestrator.telemetry.text import HIDDEN
from schemas.canonical import NotCanonical, parse_json
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.run import Submission, submission_text

CARRIED_OUT: Final = frozenset({"submitted", "retried", "undoing"})
MOST_BYTES: Final = 64 * 1024 * 1024  # far above any limit a submission can have


@dataclass(frozen=True, slots=True)
class Wish:
    """How a letter is to be replayed other than it was. planner: asked instead; edited: the plan, or the submission as
    a JSON object, that stands in place of what was refused. catalogue: by which an edited plan is judged before
    anything is decided; without one it is judged where the run is planned.
    """

    planner: str | None = None
    edited: str | None = None
    catalogue: Catalogue | None = None

    def __bool__(self) -> bool:
        return self.planner is not None or self.edited is not None


AS_IT_WAS: Final = Wish()


# ---- looked at


def look(desk: Desk, letter: DeadLetter, wish: Wish) -> dict[str, Any]:
    """How the letter is replayed, as JSON values, for the ledger to keep with the decision."""
    match letter.kind:
        case DeadLetterKind.PLAN:
            return _of_plan(desk, letter, wish)
        case DeadLetterKind.SUBMISSION:
            return _of_submission(letter, wish)
    if wish:
        raise DecisionRefused(
            f"a letter about a {letter.kind} has nothing to edit, nor a planner",
            path="planner" if wish.planner else "edited",
            hint="replay it as it is",
        )
    match letter.kind:
        case DeadLetterKind.STEP:
            return _of_step(desk, letter)
    raise DecisionRefused(_NO_REPLAY[letter.kind], path="letter_id", hint=_DROP.format(letter=letter))


_DROP: Final = "if there is nothing to be done: `mandor dlq drop {letter.id} --reason …`"
_NO_REPLAY: Final[dict[str, str]] = {
    DeadLetterKind.MESSAGE: "nobody could read this message, so nobody can say what it was to do",
    DeadLetterKind.DELIVERY: "there is nothing yet that would deliver it again",
    DeadLetterKind.UNDO: "the run has ended with this effect in place: undo it by hand",
}


def _of_plan(desk: Desk, letter: DeadLetter, wish: Wish) -> dict[str, Any]:
    """The submission once more, by another planner or with a ready plan if so wished."""
    row = desk.ledger.run(letter.run_id or "")
    if row is None:
        message = f"the ledger has let go of run {letter.run_id}, and with it of what was submitted"
        raise DecisionRefused(message, path="letter_id", hint=_DROP.format(letter=letter))
    sent = Submission.model_validate_json(row.submission_text).document() | {"request_id": request_id(letter)}
    if wish.planner is not None:
        sent = {**_without(sent, "plan"), "planner": wish.planner}
    if wish.edited is not None:
        sent = {**_without(sent, "planner"), "plan": wish.edited}
    return _submitting(sent, row.principal, letter, wish)


def _of_submission(letter: DeadLetter, wish: Wish) -> dict[str, Any]:
    """The submission as it stands in the letter, or as it was edited; under its sender's request_id, if it has one."""
    kept = letter.content.get("submission")
    sent = _fields(wish.edited) if wish.edited is not None else kept
    if not isinstance(sent, dict) or (wish.edited is None and sent.get("cut") is True):
        message = "the letter has only the beginning of this submission, for it was too long"
        raise DecisionRefused(message, path="letter_id", hint="give the whole of it: `mandor dlq edit ID --file FILE`")
    if wish.planner is not None:
        sent = {**_without(sent, "plan"), "planner": wish.planner}
    hidden = sorted(_hidden(sent, kept))
    if hidden:
        message = f"a secret stood here, and letters keep none ({', '.join(hidden)})"
        raise DecisionRefused(message, path=hidden[0], hint="write it in again: `mandor dlq edit ID`")
    return _submitting(sent, FROM_BROKER, letter, wish)


def _submitting(sent: Mapping[str, Any], principal: str, letter: DeadLetter, wish: Wish) -> dict[str, Any]:
    read, fallback_id = submission.read(sent, settings()), request_id(letter)
    policy = submission.resolve_policy(read, settings(), principal)[-1].policy
    if wish.edited is not None and wish.catalogue is not None and read.plan is not None:
        validate_handoff(read.plan, catalogue=wish.catalogue, policy=policy, context_hash=read.context_hash())
    run_id = submission.run_id_of(read, principal, fallback_id)
    named = {"run_id": run_id, "principal": principal, "fallback_id": fallback_id}
    return {"way": "submit", "submission_text": submission_text(read), **named}


def request_id(letter: DeadLetter) -> str:
    """What the run's id derives from: a letter is replayed as one run, whoever does it and however often."""
    return f"letter:{letter.id}"


def _fields(text: str) -> Any:
    try:
        found = parse_json(text, max_bytes=MOST_BYTES)
    except NotCanonical as wrong:
        raise SubmissionRefused(str(wrong), path=wrong.path or None, hint="correct it") from None
    if not isinstance(found, dict):
        raise SubmissionRefused("a submission is a JSON object", hint="correct it")
    return found


def _hidden(sent: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Where a text still is as the letter has it, with a secret taken out."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name in sent.keys() & kept.keys():
            yield from _hidden(sent[name], kept[name], f"{path}.{name}" if path else str(name))
    elif isinstance(sent, list) and isinstance(kept, list):
        for at, (one, other) in enumerate(zip(sent, kept, strict=False)):
            yield from _hidden(one, other, f"{path}.{at}")
    elif isinstance(sent, str) and sent == kept and HIDDEN in sent:
        yield path


def _without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


def _of_step(desk: Desk, letter: DeadLetter) -> dict[str, Any]:
    """Its run is started over, unless it has been since the letter was written."""
    if letter.reason == late_effects.REASON:
        message = "this tells of an effect that came late: there is no attempt to make again"
        raise DecisionRefused(message, path="letter_id", hint=_DROP.format(letter=letter))
    run_id, generation = letter.run_id or "", letter.content.get("generation")
    row = desk.ledger.run(run_id)
    if row is None:
        raise DecisionRefused(
            f"the ledger has let go of run {run_id}", path="letter_id", hint=_DROP.format(letter=letter)
        )
    if isinstance(generation, int) and _generation(desk, row) > generation:
        return {"way": "retry", "generation": generation}
    return {"way": "retry", "generation": decisions.may_retry(desk, run_id)[0].generation}


def _generation(desk: Desk, row: LedgerRun) -> int:
    state = desk.lookup.state(row)
    return max(row.generation, state.generation if state else 0)


# ---- carried out


def carry_out(desk: Desk, letter: DeadLetter, decision: LetterDecision) -> str:
    """Do it; answers the outcome. Repeated, it is done once. StoreError, LedgerError: not now."""
    details = json.loads(decision.details_text or "{}")
    return _WAYS[details["way"]](desk, letter, decision, details)


def _submit(desk: Desk, _: DeadLetter, __: LetterDecision, details: Mapping[str, Any]) -> str:
    read = Submission.model_validate_json(details["submission_text"])
    identity = (details["fallback_id"], details["principal"])
    try:
        answer = submission.submit(desk.app, desk.store, desk.ledger, settings(), read, *identity)
    except SubmissionRefused as refused:  # settings or the run of this id are others than they were
        return f"refused:{refused.message}"
    return f"submitted:{answer.run_id}"


def _start_over(desk: Desk, letter: DeadLetter, decision: LetterDecision, details: Mapping[str, Any]) -> str:
    generation = int(details["generation"])
    try:
        row = desk.lookup.find(letter.run_id or "")
        if _generation(desk, row) > generation and desk.ledger.decision(decision.id) is None:
            return f"retried:{_generation(desk, row)}"
        said = (decision.made_by, decision.reason, generation, decision.id)
        decided = decisions.start_over(desk, row.run_id, *said)
    except NotFound as gone:
        return f"refused:{gone.message}"
    if decided.word == "other_generation":  # somebody else has started it over meanwhile
        return f"retried:{_generation(desk, row)}"
    return decided.outcome if decided.carried_out else f"refused:{decided.outcome}"


_WAYS: Final = {"submit": _submit, "retry": _start_over}
