"""Asking an action's probe what became of a lost attempt: has its effect happened?

The answer is written into the effect row before the store is told. `landed` is always believed. `absent` is believed
only if the attempt's process is proven dead; of one that may be alive, nobody can say that it will do nothing more.
"""

from dataclasses import dataclass, replace
from typing import Any, NoReturn

from orchestrator.ledger import RowClosed, fact
from orchestrator.telemetry import aftermath, events, logs
from orchestrator.within import within
from schemas.states import Fact
from workers import failures
from workers.attempt import Attempt
from workers.context import Context
from workers.effects import Closing
from workers.outcomes import PermanentError
from workers.results import result_text

_UNKNOWN = Closing(Fact.MAYBE)


class NothingToReport(PermanentError):
    """A probe looks and changes nothing, so it has no effect to report."""

    kind = "probe_effect"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the probe said. text: the step's result as JSON, None: it did not happen."""

    text: str | None


def ask(attempt: Attempt, *, dead: bool, limit_s: float) -> Closing:
    """What is known of the attempt's effect, once its row is closed and found open. LedgerUnavailable is raised."""
    if attempt.find_action().ask is None:
        return _UNKNOWN
    try:
        answer = within(limit_s, lambda: _answer(attempt), "probe")
    except Exception as error:  # noqa: BLE001  (whatever a probe raises means that it cannot tell)
        _tell(attempt, "unknown", dead, error)
        return _UNKNOWN
    _tell(attempt, "absent" if answer.text is None else "landed", dead)
    if answer.text is None and not dead:
        return _UNKNOWN
    row = _write(attempt, answer)
    return Closing(fact(attempt.effect_name.effect, row.state), row.result_text or "")


def _answer(attempt: Attempt) -> Answer:
    action = attempt.find_action()
    assert action.ask is not None
    services = replace(attempt.context_services(), effect=_refuse)
    value = action.ask(attempt.params(), Context(attempt.identity, attempt.policy, services))
    if value is None:
        return Answer(None)
    return Answer(result_text(value, action.spec.result_model, attempt.policy.result_bytes_for(attempt.action)))


def _refuse(*_: Any) -> NoReturn:
    raise NothingToReport("a probe has no effect", hint="look, and return what you found")


def _write(attempt: Attempt, answer: Answer) -> RowClosed:
    name = attempt.effect_name
    return attempt.services.ledger.effects.found(name.run_id, name.step_id, "do", name.fence, answer.text)


def _tell(attempt: Attempt, answer: Any, dead: bool, error: Exception | None = None) -> None:
    kind = failures.kind_of(error) if error else None
    where = events.where(error) if error else None
    logs.emit(aftermath.ProbeAnswered(attempt.granted.fence, answer, dead, kind, where))
