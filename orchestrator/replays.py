"""What a replay of a dead letter is, by its kind: looked at before anybody decides, and carried out afterwards.

A plan or a submission is submitted again, as a run whose id derives from the letter; a step is what its run is started
over for; an undo is begun again; a callback is posted again, under its own id. Looking writes nothing: it raises
DecisionRefused, SubmissionRefused or PayloadDrift, naming the fields. What is carried out may be repeated, and may come
too late: then it says so in its outcome.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from orchestrator import decisions, late_effects, stars, startover, submission, undoagain
from orchestrator.admission import validate_handoff
from orchestrator.admission.catalogue import Catalogue
from orchestrator.decisions import Desk
from orchestrator.errors import DecisionRefused, NotFound, SubmissionRefused
from orchestrator.ledger import Delivery, DeliveryState, LedgerRun, LetterDecision
from orchestrator.policies import FROM_BROKER
from orchestrator.settings import settings
from orchestrator.undoagain import GivenUpUndo
from schemas.canonical import NotCanonical, parse_json
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.issues import Issue
from schemas.policy import Policy
from schemas.run import Submission, submission_text
from schemas.states import RUN_RETRIABLE

POSTED_AGAIN: Final = "posted_again"
POSTED_BEFORE: Final = "posted_before"
CARRIED_OUT: Final = frozenset(
    {"submitted", "retried", undoagain.BEGUN, undoagain.BEGUN_BEFORE, POSTED_AGAIN, POSTED_BEFORE}
)
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
            f"a letter of kind {letter.kind} has nothing to edit, nor a planner",
            path="planner" if wish.planner else "edited",
            hint="replay it as it is",
        )
    if letter.kind is DeadLetterKind.STEP:
        return _of_step(desk, letter)
    if letter.kind is DeadLetterKind.DELIVERY:
        return _of_delivery(desk, letter)
    if letter.kind is DeadLetterKind.UNDO:
        return {"way": "undo", **asdict(undoagain.look(desk.ledger, desk.store, letter))}
    message = "nobody could read this message, so nobody can say what it was to do"
    raise DecisionRefused(message, path="letter_id", hint=_DROP.format(letter=letter))


_DROP: Final = "if there is nothing to be done: `mandor dlq drop {letter.id} --reason …`"


def _of_plan(desk: Desk, letter: DeadLetter, wish: Wish) -> dict[str, Any]:
    """The submission once more, by another planner or with a ready plan if so wished."""
    row = desk.ledger.run(letter.run_id or "")
    if row is None:
        message = f"the ledger has let go of run {letter.run_id}, and with it of what was submitted"
        raise DecisionRefused(message, path="letter_id", hint=_DROP.format(letter=letter))
    generation = int(letter.content.get("generation", 1))
    if refused := _goes_on(desk, row, generation):
        raise DecisionRefused(refused, path="letter_id", hint=f"see `mandor run show {row.run_id}`")
    sent = Submission.model_validate_json(row.submission_text).document() | {"request_id": request_id(letter)}
    if wish.planner is not None:
        sent = {**_without(sent, "plan"), "planner": wish.planner}
    if wish.edited is not None:
        _refuse_hidden(_as_far_as_read(wish.edited), letter, f"attempts.{_last_attempt(letter)}.raw")
        sent = {**_without(sent, "planner"), "plan": wish.edited}
    return _submitting(sent, row.principal, letter, wish) | {"generation": generation}


def _goes_on(desk: Desk, row: LedgerRun, generation: int) -> str | None:
    """Why what a run was submitted for is not to be submitted once more: it may be had by that run itself."""
    if desk.lookup.newest_generation(row) > generation or _is_to_start_over(desk, row, generation):
        return f"run {row.run_id} was started over since this letter was written"
    if not startover.ended_unplanned(row):
        return f"run {row.run_id} is {row.status}, and may have, or get, a plan: it would be had twice"
    return None


def _is_to_start_over(desk: Desk, row: LedgerRun, generation: int) -> bool:
    """Whether somebody has decided so, and it was not refused."""
    retries = [one for one in desk.ledger.decisions_of(row.run_id) if one.kind == "retry"]
    return any(one.generation >= generation and (one.outcome or "retried").startswith("retried") for one in retries)


def _of_submission(letter: DeadLetter, wish: Wish) -> dict[str, Any]:
    """The submission as it stands in the letter, or as it was edited; under its sender's request_id, if it has one."""
    kept = letter.content.get("submission")
    sent = _fields(wish.edited) if wish.edited is not None else kept
    if not isinstance(sent, dict) or (wish.edited is None and sent.get("cut") is True):
        message = "the letter has only the beginning of this submission, for it was too long"
        raise DecisionRefused(message, path="letter_id", hint="give the whole of it: `mandor dlq edit ID --file FILE`")
    if wish.planner is not None:
        sent = {**_without(sent, "plan"), "planner": wish.planner}
    _refuse_hidden(sent, letter, "submission")
    return _submitting(sent, FROM_BROKER, letter, wish)


def _submitting(sent: Mapping[str, Any], principal: str, letter: DeadLetter, wish: Wish) -> dict[str, Any]:
    read, fallback_id = _read(sent, letter), request_id(letter)
    policy = submission.resolve_policy(read, settings(), principal)[-1].policy
    if wish.edited is not None and wish.catalogue is not None:
        _judge(read, wish.catalogue, policy)
    run_id = submission.run_id_of(read, principal, fallback_id)
    named = {"run_id": run_id, "principal": principal, "fallback_id": fallback_id}
    return {"way": "submit", "submission_text": submission_text(read), **named}


def _read(sent: Mapping[str, Any], letter: DeadLetter) -> Submission:
    try:
        return submission.read(sent, settings())
    except SubmissionRefused as refused:
        refused.hint = f"correct it: `mandor dlq edit {letter.id}`"
        raise


def _judge(read: Submission, catalogue: Catalogue, policy: Policy) -> None:
    """PayloadDrift: the plan does not pass. SubmissionRefused: no worker would know the planner, and the letter would
    be spent on a run that fails."""
    if read.plan is not None:
        validate_handoff(read.plan, catalogue=catalogue, policy=policy, context_hash=read.context_hash())
    elif read.planner is not None and (fault := catalogue.planner_fault(read.planner)):
        raise submission.refusal([Issue("planner", "unknown_planner", fault)])


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


def _as_far_as_read(text: str) -> Any:
    """What the text says, or the text itself, of which the door says what is wrong with it."""
    with suppress(NotCanonical):
        return parse_json(text, max_bytes=MOST_BYTES)
    return text


def _refuse_hidden(sent: Any, letter: DeadLetter, about: str) -> None:
    """DecisionRefused: what stands in place of a secret is still there, and would be taken for the value."""
    if hidden := stars.of_secrets(sent, letter.content, about):
        message = f"a secret stood here, and letters keep none ({', '.join(hidden)})"
        raise DecisionRefused(message, path=hidden[0], hint=f"write it in again: `mandor dlq edit {letter.id}`")


def _last_attempt(letter: DeadLetter) -> int:
    return len(letter.content.get("attempts", [])) - 1


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
    if isinstance(generation, int) and desk.lookup.newest_generation(row) > generation:
        return {"way": "retry", "generation": generation}
    try:
        return {"way": "retry", "generation": decisions.may_retry(desk, run_id)[0].generation}
    except (DecisionRefused, NotFound) as refused:
        if (row.status in RUN_RETRIABLE and desk.lookup.state(row) is not None) or row.ended_at is None:
            raise
        hint = f"submit it again, then `mandor dlq drop {letter.id} --reason …`"
        raise DecisionRefused(refused.message, path="letter_id", hint=hint) from None


def _of_delivery(desk: Desk, letter: DeadLetter) -> dict[str, Any]:
    delivery_id, attempts = str(letter.content.get("delivery_id")), int(letter.content.get("attempts", 0))
    told = desk.ledger.deliveries.one(delivery_id)
    if told is None:
        message = f"the ledger has let go of run {letter.run_id}, and with it of what was to be told"
        raise DecisionRefused(message, path="letter_id", hint=_DROP.format(letter=letter))
    if not _stands_behind(told, attempts):
        message = f"callback {delivery_id} is {_word_of(told)}, after what was done since this letter was written"
        is_over = told.state is not DeliveryState.PENDING
        hint = _DROP.format(letter=letter) if is_over else f"see `mandor run show {letter.run_id}`"
        raise DecisionRefused(message, path="letter_id", hint=hint)
    return {"way": "post", "delivery_id": delivery_id, "attempts": attempts}


def _stands_behind(told: Delivery, attempts: int) -> bool:
    """Given up after so many attempts, or posted again since, perhaps by somebody who replays the letter just now."""
    if told.state is DeliveryState.PENDING:
        return told.attempts_before == attempts
    return told.state is DeliveryState.GIVEN_UP and told.attempts == attempts


# ---- carried out


def carry_out(desk: Desk, letter: DeadLetter, decision: LetterDecision) -> str:
    """Do it; answers the outcome. Repeated, it is done once. StoreError, LedgerError: not now."""
    details = json.loads(decision.details_text or "{}")
    return _WAYS[details["way"]](desk, letter, decision, details)


def _submit(desk: Desk, letter: DeadLetter, _: LetterDecision, details: Mapping[str, Any]) -> str:
    """Whoever starts a refused run over writes that down before he looks for this decision, so one of two sees the
    other; both may, and then neither goes on. What was accepted before is not asked about again."""
    is_new = "generation" in details and desk.ledger.run(details["run_id"]) is None
    row = desk.ledger.run(letter.run_id or "") if is_new else None
    if row is not None and (refused := _goes_on(desk, row, details["generation"])):
        return f"refused:{refused}"
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
        if desk.lookup.newest_generation(row) > generation and desk.ledger.decision(decision.id) is None:
            return f"retried:{desk.lookup.newest_generation(row)}"
        said = (decision.made_by, decision.reason, generation, decision.id)
        decided = decisions.start_over(desk, row.run_id, *said)
    except NotFound as gone:
        return f"refused:{gone.message}"
    if decided.word == "other_generation":  # somebody else has started it over meanwhile
        return f"retried:{desk.lookup.newest_generation(row)}"
    return decided.outcome if decided.carried_out else f"refused:{decided.outcome}"


def _undo_again(desk: Desk, letter: DeadLetter, decision: LetterDecision, details: Mapping[str, Any]) -> str:
    given_up = GivenUpUndo(details["step_id"], details["fence"], details["generation"])
    run_id, effect = letter.run_id or "", letter.content.get("effect")
    is_new = desk.ledger.decision(decision.id) is None  # else the undo that it began may be under way
    if is_new and undoagain.is_in_doubt(desk.ledger, run_id, given_up.step_id, effect):
        return f"refused:undo_in_doubt:{given_up.step_id}"
    try:
        decided = decisions.undo_again(desk, run_id, decision.made_by, decision.reason, given_up, decision.id)
    except NotFound as gone:
        return f"refused:{gone.message}"
    return decided.outcome if decided.carried_out else f"refused:{decided.outcome}"


def _post_again(desk: Desk, letter: DeadLetter, _: LetterDecision, details: Mapping[str, Any]) -> str:
    """What was given up after so many attempts is owed anew, once: behind it the row says that a round began there."""
    desk.ledger.deliveries.send_again(details["delivery_id"], given_up_after=details["attempts"])
    told = desk.ledger.deliveries.one(details["delivery_id"])
    if told is None:
        return f"refused:the ledger has let go of run {letter.run_id}"
    if told.attempts_before != details["attempts"]:
        return f"{POSTED_BEFORE}:{_word_of(told)}"
    return f"{POSTED_AGAIN}:{told.id}"


def _word_of(told: Delivery) -> str:
    return told.state.value.replace("_", " ")


_WAYS: Final = {"submit": _submit, "retry": _start_over, "undo": _undo_again, "post": _post_again}
