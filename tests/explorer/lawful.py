"""Every move of the real system is a legal move of the specification: its facts lie in `lawful.json`.

The specification is a program of its own, which explores the step protocol as values; no part of it is here. What it
allows was written down by `python -m tests.explorer.specification FOLDER`, so a real move is looked up, not argued:

store   of each script, every change of a run that it makes somewhere: "before > after"; where the class of the first
        step is `*`, with the classes it is for
rows    of each transaction on an effect row, every change, as the fence sees it that is acting
order   what an attempt does next, by its effect and by what it was answered last
rules   what can be switched off there
made    by which program, from which specification: their digests

A call that changes nothing is legal anywhere. Both sides are told in the same words, in which a few things are one: a
step that is ready, on its way or waiting to be tried again is `ready`; runs that ended failed or cancelled are `ended`;
of a run that is being undone, what is still to be undone is `owed`. Attempts are told as "the last", times not at all.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from orchestrator.ledger import AlreadyLanded, AlreadyOpen, Closed, Landed, Opened
from orchestrator.store.views import StepState, UndoState
from schemas.states import EffectClass
from tests.explorer.operations import Answer, Heard, Op
from tests.explorer.stored import Call, Content
from tests.explorer.written import Book
from workers.outcomes import Snooze

FACTS: Final = Path(__file__).with_name("lawful.json")
READY: Final = ("ready", "dispatched", "backoff")
OPEN_ENDED: Final = ("pending", *READY, "running")
ENDED: Final = {"failed": "ended", "cancelled": "ended"}
BEGUN_AGAIN: Final = "undo_again"  # which the specification does not have, nor what comes behind it
SAME: Final = {"cancel": "leave_running", "deadline": "leave_running", "wait_over": "leave_running"}
ENDS: Final = {"fail_step": "end", "expire_lease": "end", "fail_undo": "undo_end", "expire_undo": "undo_end"}
ANSWERS: Final = {Opened: "ok", Landed: "ok", AlreadyOpen: "open", AlreadyLanded: "landed", Closed: "closed"}
WORDS: Final = {
    "act": "act",
    "effects.open": "open",
    "effects.land": "land",
    "effects.found": "probe",
    **dict.fromkeys(("complete_step", "complete_undo"), "commit"),
    **dict.fromkeys(("fail_step", "hand_back", "fail_undo"), "end"),
    **dict.fromkeys(("effects.close", "effects.leave", "transactional.close"), "close"),
}
RAISES: Final = "act=raises"
BEFORE_THE_ACT: Final = ("granted", "open=ok")


def rules() -> frozenset[str]:
    """All sentences of the protocol without which the specification is seen to go wrong."""
    return frozenset(json.loads(FACTS.read_text(encoding="utf-8"))["rules"])


@cache
def facts() -> dict[str, dict[str, frozenset[str]]]:
    """By part, then by what is done."""
    read = json.loads(FACTS.read_text(encoding="utf-8"))
    store = {name: frozenset(_each(moves)) for name, moves in read["store"].items()}
    others = {part: {name: frozenset(moves) for name, moves in read[part].items()} for part in ("rows", "order")}
    return {"store": store, **others}


def _each(moves: dict[str, str]) -> Iterator[str]:
    """A move of each class that it is for."""
    return (move.replace("*", effect) for move, classes in moves.items() for effect in classes.split())


# ---- the store


def of_call(call: Call) -> list[str]:
    """Whether the specification has this change of a run, by this script."""
    if call.op.name == BEGUN_AGAIN or _is_begun_again(call.before):
        return []
    last = call.op.more.get("step_id") if _gives_up(call) else None
    before, after = told(call.before, last), told(call.after, None)
    if told(call.before, None) == after:
        return []
    name = _script(call)
    known = f"{before} > {after}" in facts()["store"].get(name, ())
    return [] if known else [f"not in the specification: {name}: {before} > {after}"]


def _is_begun_again(content: Content) -> bool:
    """Whether a person has had an undo begun again, by what that was answered."""
    return any('"undoing"' in reply for _, reply in content.values["sent"])


def _script(call: Call) -> str:
    name, fact = call.op.name, call.op.more.get("fact")
    if name == "hand_back":
        return f"{'end' if _gives_up(call) else 'back'} {fact}"
    return f"{ENDS[name]} {fact}" if name in ENDS else SAME.get(name, name)


def _gives_up(call: Call) -> bool:
    """Whether no further attempt is wanted, though there may be one left."""
    if call.op.name == "hand_back":
        return bool(call.answer.value.word == "too_often")
    return call.op.name in ("fail_step", "fail_undo") and not (call.op.more["retryable"] or call.op.more.get("reason"))


def told(content: Content, last: str | None) -> str:
    """A run as both sides tell it. last: a step of which no further attempt is wanted."""
    run, steps = content.run.status, content.steps
    numbers = {name: number for number, name in enumerate(steps)}
    words = [_step(run, step, [numbers[need] for need in step.needs], step.id == last) for step in steps.values()]
    return " | ".join([ENDED.get(run, run), *words])


def _step(run: str, step: StepState, needs: list[int], given_up: bool) -> str:
    head = step.effect + "".join(f"<{number}" for number in needs)
    if run == "compensating" and owes(step):
        return _words(head, "owed", *_undo(step.undo, max(2, step.max_attempts), given_up))
    status = "ready" if step.status in READY else step.status
    if step.status not in OPEN_ENDED:
        return _words(head, status)
    is_last = given_up or step.attempt >= step.max_attempts
    is_dead = step.status == "running" and step.dead
    return _words(head, status, step.touched and "touched", is_last and "last", is_dead and "dead")


def _undo(undo: UndoState | None, most: int, given_up: bool) -> tuple[str | bool, ...]:
    if undo is None:
        return ()
    is_last = undo.attempt >= most or given_up
    return bool(undo.holder) and "held", undo.dead and "dead", is_last and "last"


def owes(step: StepState) -> bool:
    """Whether it is still to be undone, once its run is."""
    return step.status in ("in_doubt", "compensating") or (
        step.status == "completed" and step.effect != EffectClass.PURE
    )


def _words(*parts: str | bool) -> str:
    return " ".join(part for part in parts if isinstance(part, str))


# ---- effect rows


def of_rows(op: Op, before: Book, after: Book) -> list[str]:
    """Whether the specification has each change of a row, by this transaction."""
    changed = [place for place in after.effects if before.effects.get(place) != after.effects[place]]
    wrong = []
    for step_id, kind in changed:
        if kind == "late":  # what comes late is undone once more, which the specification leaves to the reader
            continue
        name, fence = _transaction(op, after.effects[step_id, kind])
        was, now = (row(book.effects.get((step_id, kind)), fence) for book in (before, after))
        if was != now and f"{was} > {now}" not in facts()["rows"].get(name, ()):
            wrong.append(f"not in the specification: {op.name} as {name}: row {was} > {now}")
    return wrong


def _transaction(op: Op, found: dict[str, Any]) -> tuple[str, int]:
    """What it is called there, and the fence that acts."""
    method = op.name.rpartition(".")[2]
    if method == "open":
        return f"open {op.args[5]}", op.args[3]
    if method in ("close", "leave"):
        return "void" if op.more.get("void") or True in op.args else "close", op.args[3]
    if method in ("land", "found"):
        return method, op.args[3]
    return {"set_aside": "close", "answer_effect": "word"}.get(method, method), found["closed_to"]


def row(found: dict[str, Any] | None, fence: int) -> str:
    """A row as the acting fence sees it."""
    if found is None:
        return "none"
    whose = ("by this" if found["since"] == fence else "by another") if found["state"] == "open" else False
    return _words(found["state"], whose, 0 < found["closed_to"] >= fence and "closed", bool(found["late"]) and "late")


# ---- what an attempt does, in its order


@dataclass(frozen=True)
class Place:
    """How far a process is with its claim. last: what it did, and was answered; empty without a claim. held: what it
    was granted: step, fence and kind.
    """

    claim: str = ""
    last: str = ""
    held: tuple[str, int, str] | None = None

    def then(self, op: Op, heard: Heard) -> "Place":
        """After this operation."""
        if not isinstance(heard, Answer):
            return self
        if op.name in ("claim_step", "claim_undo"):
            return _claimed(op, heard)
        said = _said(self, op, heard)
        return replace(self, last=said) if said and self.claim else self

    def refuses(self, op: Op) -> list[str]:
        """Why this operation is not the next of an attempt that is here."""
        word = _word(self, op)
        if not self.claim or word is None or word == "close":  # whoever may not go on closes, wherever he is
            return []
        allowed = facts()["order"][self.claim]
        lasts = (self.last, RAISES) if self.last in BEFORE_THE_ACT else (self.last,)  # an action may raise at once
        if any(f"{last} > {then}" in allowed for last in lasts for then in (word, "over")):
            return []
        return [f"not in the specification: {self.claim}: {op.name} after {self.last}"]


def _claimed(op: Op, heard: Answer) -> Place:
    reply = heard.value
    if reply.word != "granted":
        return Place()
    kind = "do" if op.name == "claim_step" else "undo"
    return Place(f"{kind} {reply['effect']}", "granted", (op.more["step_id"], reply["fence"], kind))


def _word(place: Place, op: Op) -> str | None:
    """What the specification calls it; None: it has nothing like it."""
    if place.claim.endswith(" transactional"):  # act and row are one
        return {"act": None, "transactional.land": "act"}.get(op.name, WORDS.get(op.name))
    return WORDS.get(op.name)


def _said(place: Place, op: Op, heard: Answer) -> str | None:
    if op.name == "act" and (heard.error is not None or isinstance(heard.value, Snooze)):
        return RAISES
    if op.name == "transactional.look":
        return "act=" + ANSWERS[type(heard.value)] if type(heard.value) in ANSWERS else None
    word = _word(place, op)
    if word is None:
        return None
    return f"{word}={_answer(word, heard.value)}"


def _answer(word: str, value: Any) -> str:
    if word == "act" and value is None:
        return "ok"
    if word == "close":
        return str(value.state)
    if word == "land":
        return "closed" if isinstance(value, Closed) else "ok"
    if word == "commit":
        return "ok" if value.word == "committed" else "fenced"
    return ANSWERS.get(type(value), "")
