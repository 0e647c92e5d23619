"""Loaded by workers of the fault kit beside its example: two guards that hold nothing back."""

from typing import Any

from orchestrator.ledger import Opened
from orchestrator.ledger import effects as rows
from schemas.states import Fact
from workers import effects, undo

_fact = vars(effects)["fact"]


def lenient(*given: Any) -> Any:
    """Whatever is open has not happened."""
    found = _fact(*given)
    return Fact.NONE if found is Fact.MAYBE else found


def in_words_only(attempt: Any) -> str:
    """Undone, so it says."""
    attempt.effect.begin()
    return str(attempt.effect.finish(undo.NOTHING))


vars(effects)["fact"] = lenient
vars(rows)["may_open"] = lambda *_: Opened()
vars(undo)["perform"] = in_words_only
