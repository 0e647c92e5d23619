"""A planner's answers: how the ledger keeps them, and what the dead letter tells of those that were refused. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.admission import PayloadDrift
from orchestrator.admission.repair import Refusal
from orchestrator.ledger import PlannerAnswer
from schemas.canonical import sha256_hex
from workers.planners import Answer


@dataclass(frozen=True, slots=True)
class RefusedAnswer:
    """An answer and the door's verdict on it."""

    answer: Answer
    drift: PayloadDrift

    def as_refusal(self) -> Refusal:
        """What the planner may know of it."""
        return Refusal(self.answer.raw, self.drift)


class Refused(Exception):
    """The door refused every answer there will be; all of them are kept, in the order they were given."""

    def __init__(self, refusals: Sequence[RefusedAnswer]) -> None:
        super().__init__(str(refusals[-1].drift))
        self.refusals = tuple(refusals)

    @property
    def drift(self) -> PayloadDrift:
        """The verdict on the last answer."""
        return self.refusals[-1].drift


def bounded(answer: Answer, most_bytes: int) -> Answer:
    """The answer, cut just beyond the size at which the door refuses it."""
    return answer if len(answer.raw) <= most_bytes else replace(answer, raw=answer.raw[: most_bytes + 1])


def raw_text(answer: Answer) -> str:
    """The answer as a JSON string of ASCII characters, which any database takes."""
    return json.dumps(answer.raw)


def details_text(answer: Answer) -> str:
    """All but the answer's text, as a JSON object."""
    return json.dumps(_details(answer))


def stored_answer(row: PlannerAnswer) -> Answer:
    """An answer as the ledger has it."""
    return Answer(json.loads(row.raw_text), **json.loads(row.details_text))


def _details(answer: Answer) -> dict[str, Any]:
    return {
        "finish_reason": answer.finish_reason,
        "model": answer.model,
        "prompt": dict(answer.prompt) if answer.prompt is not None else None,
        "tokens": dict(answer.tokens) if answer.tokens is not None else None,
    }


def attempts(refused: Refused) -> list[dict[str, Any]]:
    """Every refused answer with its errors and all that is known about how it came to be."""
    return [_attempt(number, one) for number, one in enumerate(refused.refusals)]


def _attempt(number: int, refused: RefusedAnswer) -> dict[str, Any]:
    answer = refused.answer
    details = _details(answer)
    return {
        "number": number,
        "raw": answer.raw,
        "raw_hash": _hash(answer.raw),
        "errors": refused.drift.errors(),
        **details,
        "prompt_hash": _hash(json.dumps(details["prompt"], sort_keys=True)) if details["prompt"] else None,
    }


def _hash(text: str) -> str:
    return sha256_hex(text.encode("utf-8", "surrogatepass"))
