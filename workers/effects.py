"""The effect row of one attempt: may the effect start, has it happened, and what is known of it when the attempt ends.

Undoing a step is an effect like the step itself, of the same class, with a row of its own.

    class            begin              finish            close
    pure             -                  -                 nothing to know: none
    idempotent       -                  land              none proves nothing: maybe
    transactional    look               (in the action)   none or landed
    keyed, once      open               land              none, maybe or landed

An attempt that began and ends in any other way than by landing leaves its row by `close`: its effect may be out all the
same, and if somebody else has ended its claim before, that is owed as late. So is a landing that is refused.

`begin`, `recall` and `finish` raise what ends the attempt: AlreadyApplied (go on with that result), EffectClosed (this
claim has been ended by somebody else), EffectOpen (`once`: an earlier attempt may have done it), LedgerUnavailable.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

from orchestrator.errors import LedgerUnavailable
from orchestrator.ledger import (
    AlreadyLanded,
    AlreadyOpen,
    Closed,
    EffectState,
    Fresh,
    Kind,
    Landed,
    Ledger,
    Opened,
    fact,
)
from orchestrator.telemetry import aftermath, events, logs
from schemas.states import EffectClass, Fact
from workers.failures import EffectOpen
from workers.outcomes import AlreadyApplied, LeaseLost, PermanentError

_ROWED: Final = frozenset({EffectClass.KEYED, EffectClass.ONCE})
_ANSWERING: Final = _ROWED | {EffectClass.TRANSACTIONAL}  # what has landed is not had again
_MAY_COME_LATE: Final = _ROWED | {EffectClass.IDEMPOTENT}
T = TypeVar("T")


class EffectClosed(LeaseLost):
    """The row is closed to this fence."""

    kind = "effect_closed"

    def __init__(self, closed_to: int) -> None:
        super().__init__(f"the effect row is closed up to fence {closed_to}")


class Lateness(StrEnum):
    """What an attempt knows of its effect after somebody else had ended its claim."""

    NOT = "not late"
    MAYBE = "may be out"
    SURE = "has happened"


class EffectNotReported(PermanentError):
    """A transactional action returned without having put its effect row into its transaction."""

    kind = "effect_not_reported"


@dataclass(frozen=True, slots=True)
class EffectName:
    """Which row, and who asks. kind: whether the step is done or undone."""

    run_id: str
    step_id: str
    fence: int
    token: str
    effect: EffectClass
    kind: Kind = "do"


@dataclass(frozen=True, slots=True)
class Closing:
    """What is known of an attempt that ends without a commit. result_text: of an effect that has landed."""

    fact: Fact
    result_text: str = ""


class Patience(Protocol):
    """Repeats a call while the ledger is away, within reason. about_effect: of what only this process can say."""

    def __call__(self, call: Callable[[], T], *, about_effect: bool = False) -> T: ...


class AttemptEffect:
    """The effect row as one attempt uses it."""

    def __init__(self, ledger: Ledger, name: EffectName, patiently: Patience) -> None:
        self._ledger = ledger
        self._name = name
        self._patiently = patiently
        self._begun = False
        self._started = False
        self._told = False
        self._landed_within = False
        self.late = Lateness.NOT

    def begin(self) -> None:
        """Ask leave to have the effect. Before it returns nothing may happen outside."""
        name = self._name
        if name.effect is EffectClass.TRANSACTIONAL:
            self._heed(self._ledger.transactional.look(name.run_id, name.step_id, name.kind, name.fence, name.token))
        self._begun = True
        if name.effect in _ROWED:
            self._heed(self._open())
        if name.effect is EffectClass.IDEMPOTENT and name.kind == "undo":
            self._say_undoing()
        self._started = name.effect in _MAY_COME_LATE

    def recall(self) -> None:
        """Of an attempt that cannot begin: raise AlreadyApplied if an earlier one landed. Changes nothing."""
        name = self._name
        if name.effect in _ANSWERING:
            rows = self._ledger.rows_of(name.effect)
            self._heed(rows.look(name.run_id, name.step_id, name.kind, name.fence, name.token))

    def land_within(self, connection: Any, result_text: str) -> None:
        """Put the row into the action's own transaction."""
        if self._name.effect is not EffectClass.TRANSACTIONAL:
            raise EffectNotReported(
                f"ctx.effect is for transactional actions, this one is {self._name.effect}",
                hint='declare it with effect="transactional"',
            )
        name = self._name
        names = (name.run_id, name.step_id, name.kind, name.fence, name.token)
        self._heed(self._ledger.transactional.land(*names, result_text, connection))
        self._landed_within = True

    def finish(self, result_text: str) -> str:
        """The action has returned: say that its effect happened. Answers the result that stands."""
        effect = self._name.effect
        if effect is EffectClass.TRANSACTIONAL and not self._landed_within:
            raise EffectNotReported(
                "a transactional effect was not reported: ctx.effect was not called",
                hint="call ctx.effect(connection, result) before the transaction commits",
            )
        if effect in _ROWED:
            return self._landed(self._patiently(lambda: self._land(result_text), about_effect=True), result_text)
        if effect is EffectClass.IDEMPOTENT:
            return self._land_if_possible(result_text)
        return result_text

    def pass_over(self, result_text: str) -> str:
        """The effect need not be had, or no further: it is taken for one that happened. Refused, it is not late."""
        if self._name.effect is EffectClass.IDEMPOTENT:
            return self._land_if_possible(result_text)
        self._heed(self._patiently(lambda: self._land(result_text)))
        return result_text

    def close(self, *, void: bool) -> Closing:
        """End what this attempt may do, before the store is told that it ended. void: it raised NoEffect.

        LedgerUnavailable: nothing is known, and the claim must be left as it is.
        """
        effect = self._name.effect
        if not self._begun:
            return Closing(Fact.NONE)
        try:
            return self._patiently(lambda: self._close(void), about_effect=effect in _ROWED)
        except LedgerUnavailable:
            if effect is not EffectClass.IDEMPOTENT:
                raise
            return Closing(fact(effect, EffectState.NONE, void))

    def leave(self, *, void: bool) -> None:
        """The store has not taken how the attempt ended. If its effect may be out and the row does not know, tell it.

        LedgerUnavailable: it could not be told while this process may live.
        """
        if self._started and not self._told:
            self._patiently(lambda: self._close(void), about_effect=True)

    def _close(self, void: bool) -> Closing:
        closing, late = end_row(self._ledger, self._name, void=void, started=self._started)
        self._told = True
        if late:
            logs.emit(aftermath.EffectMayBeLate(self._name.fence))
            self.late = Lateness.MAYBE
        return closing

    def _say_undoing(self) -> None:
        """What came late until now need not be undone once more. If the ledger is away it will be, and does no harm."""
        with suppress(LedgerUnavailable):
            self._ledger.effects.begin_undo(self._name.run_id, self._name.step_id, self._name.fence)

    def _open(self) -> Opened | AlreadyOpen | AlreadyLanded | Closed:
        name = self._name
        try:
            return self._ledger.effects.open(name.run_id, name.step_id, name.kind, name.fence, name.token, name.effect)
        except LedgerUnavailable:
            self._begun = False  # nothing was started, and a row we do not know of is found open by the next attempt
            raise

    def _land(self, result_text: str) -> Landed | AlreadyLanded | Closed:
        name = self._name
        return self._ledger.effects.land(name.run_id, name.step_id, name.kind, name.fence, name.token, result_text)

    def _land_if_possible(self, result_text: str) -> str:
        """An idempotent effect may be had again: it does not wait for the ledger."""
        try:
            return self._landed(self._land(result_text), result_text)
        except LedgerUnavailable:
            return result_text

    def _landed(self, answer: Landed | AlreadyLanded | Closed, result_text: str) -> str:
        self._told = True
        match answer:
            case AlreadyLanded():
                return answer.result_text
            case Closed():
                logs.emit(events.EffectRefused(self._name.fence, answer.closed_to, late=True))
                self.late = Lateness.SURE
                raise EffectClosed(answer.closed_to)
        logs.emit(events.EffectLanded(self._name.fence))
        return result_text

    def _heed(self, answer: Fresh | Opened | AlreadyOpen | Landed | AlreadyLanded | Closed) -> None:
        match answer:
            case AlreadyLanded():
                logs.emit(events.IdempotencyHit("effect", self._name.fence))
                raise AlreadyApplied(answer.result_text)
            case AlreadyOpen():
                raise EffectOpen(f"an attempt with fence {answer.since} may have had the effect of this step")
            case Closed():
                logs.emit(events.EffectRefused(self._name.fence, answer.closed_to))
                raise EffectClosed(answer.closed_to)
            case Opened():
                logs.emit(events.EffectOpened(self._name.fence))


def close_row(ledger: Ledger, name: EffectName, *, void: bool = False) -> Closing:
    """Close the row to a fence and say what that proves about its claim. A pure step has no row."""
    return end_row(ledger, name, void=void, started=False)[0]


def end_row(ledger: Ledger, name: EffectName, *, void: bool, started: bool) -> tuple[Closing, bool]:
    """The same; and whether the effect of the attempt itself, which started it, is owed as late."""
    if name.effect is EffectClass.PURE:
        return Closing(Fact.NONE), False
    end = ledger.effects.leave if started else ledger.rows_of(name.effect).close
    found = end(name.run_id, name.step_id, name.kind, name.fence, void=void)
    logs.emit(events.EffectClosed(name.fence, found.state.value))
    return Closing(fact(name.effect, found.state, void), found.result_text or ""), found.late
